// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A work is what a goroutine does for a caller, which can leave at once.
type work struct {
	began time.Time
	waits bool            // for permits, and not for a reply
	down  <-chan struct{} // closed when an outage begins
	done  chan struct{}   // closed when it has ended before the caller has left
	a     reply
	err   error

	mu    sync.Mutex
	told  reply // that of the caller, and that the list is rejected as soon as that is known
	left  bool  // the caller has left
	ended bool
}

func (w *waiter) newWork() *work {
	return &work{began: time.Now(), down: w.engine.OutageBegins(), done: make(chan struct{}), told: w.told}
}

// end tells the caller how the work has ended. It reports false if the caller has left.
func (x *work) end(a reply, err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left {
		return false
	}
	x.a, x.err, x.ended = a, err, true
	close(x.done)
	return true
}

// tell notes a, if it is a rejection, for a caller that does not wait for the end. x may be nil.
func (x *work) tell(a reply) {
	if x != nil && a.rejected {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.told = a
	}
}

// lastTold returns what x was told last.
func (x *work) lastTold() reply {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.told
}

// leave lets the work go on without the caller. It reports false if the work has ended.
func (x *work) leave() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = !x.ended
	return x.left
}

// await returns what x ends with, or leaves it when ctx is done, the time of the caller is up or an outage begins, and, if it
// waits for permits, when the Engine is closed.
func (w *waiter) await(ctx context.Context, x *work) (reply, error) {
	var closed <-chan struct{}
	if x.waits {
		closed = w.engine.Closed()
	}
	timeUp, stop := w.timeUp()
	defer stop()
	for {
		var why error
		var told reply
		select {
		case <-x.done:
			return x.a, x.err
		case <-ctx.Done():
			why = ctx.Err()
			asks := !x.waits && !x.lastTold().rejected
			if failure := w.failure(asks && time.Since(x.began) >= permit.Patience); asks || failure != nil {
				why = permit.Left(w.names(), x.began, failure, why)
			}
		case <-closed:
			why = permit.ErrClosed
		case <-timeUp:
			told = x.lastTold()
			failure := w.failure(!told.rejected)
			if told.rejected && failure == nil {
				break // that counts
			}
			why = permit.Left(w.names(), x.began, failure, nil)
		case <-x.down:
			x.down = w.engine.OutageBegins()
			cause := w.downBecause()
			if cause == nil {
				continue
			}
			why = fmt.Errorf("%w: %s: %w", permit.ErrUnavailable, w.names(), cause)
		}
		if x.leave() {
			if why == nil {
				return told.now(), nil
			}
			return nothing, why
		}
		<-x.done
		return x.a, x.err
	}
}

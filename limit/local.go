// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A Local is a limiter for one process. It limits the calls of its own methods only; processes that keep a
// limit together need a [Shared].
//
// It uses the monotonic clock, which is never put back, and needs neither Redis nor a goroutine. The zero
// value is not usable; call [NewLocal]. A call of a Local that NewLocal did not return, or of nil, returns
// ratelimiter.ErrInvalidArgument. Its methods are safe for concurrent use. It must not be copied.
type Local struct {
	by    *calls.Setting
	began time.Time

	waits chan struct{} // has an element while a caller is the first of those that wait for their turns

	mu    sync.Mutex
	calls uint64
	state calls.State
}

// NewLocal returns a new limiter. It returns ratelimiter.ErrInvalidArgument if a is nil, a pointer that is nil, or has a parameter
// that is out of its range.
func NewLocal(a Algorithm) (*Local, error) {
	a, err := checked(a)
	if err != nil {
		return nil, err
	}
	l := &Local{by: newSetting(a), began: time.Now(), waits: make(chan struct{}, 1)}
	l.state = l.begunLocked()
	return l, nil
}

// begunLocked returns the state of a limiter that begins now.
func (l *Local) begunLocked() calls.State {
	if m, ok := l.by.Algorithm.(interface{ initial(now int64) calls.State }); ok {
		return m.initial(l.nowLocked())
	}
	return l.by.Idle()
}

// Algorithm returns the algorithm of the limiter: a value, also if NewLocal got a pointer to it.
func (l *Local) Algorithm() Algorithm {
	if !l.made() {
		return nil
	}
	return l.by.Algorithm.(Algorithm)
}

// made reports whether NewLocal returned l.
func (l *Local) made() bool { return l != nil && l.by != nil }

// setting returns the algorithm with its parameters, or why l cannot be used.
func (l *Local) setting() (*calls.Setting, error) {
	if !l.made() {
		return nil, errNotLocal
	}
	return l.by, nil
}

// errNotLocal is the error of a Local that is nil or the zero value.
var errNotLocal = calls.Invalid("the Local is not one that NewLocal returned")

// Allow implements [Limiter].
func (l *Local) Allow(ctx context.Context, n int64) (ratelimiter.Result, error) {
	o, err := l.ask(ctx, ratelimiter.OperationAllow, calls.Demand{N: n, Spend: true})
	return o.Result, err
}

// Peek implements [Limiter].
func (l *Local) Peek(ctx context.Context, n int64) (ratelimiter.Result, error) {
	o, err := l.ask(ctx, ratelimiter.OperationPeek, calls.Demand{N: n})
	return o.Result, err
}

// Reserve is like [Shared.Reserve].
func (l *Local) Reserve(ctx context.Context, n int64, atMost time.Duration) (ratelimiter.Result, error) {
	o, err := l.ask(ctx, ratelimiter.OperationReserve, calls.Demand{N: n, AtMost: calls.AtMostMicros(atMost), Spend: true})
	return o.Result, err
}

// AllowAtMost is as that of a [Shared].
func (l *Local) AllowAtMost(ctx context.Context, n int64) (permits int64, r ratelimiter.Result, err error) {
	o, err := l.ask(ctx, ratelimiter.OperationAllow, calls.Demand{N: n, Spend: true, UpTo: true})
	return o.Permits, o.Result, err
}

func (l *Local) ask(ctx context.Context, _ ratelimiter.Operation, q calls.Demand) (calls.Outcome, error) {
	n, err := l.setting()
	if err == nil && q.UpTo {
		err = checkParts(n)
	}
	if err == nil {
		err = calls.ContextError(ctx)
	}
	if err == nil {
		err = q.Check(&n.Model)
	}
	if err != nil {
		return calls.Outcome{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q.Now = l.nowLocked()
	id := l.idLocked()
	if q.UpTo {
		q.N = l.mostLocked(q.Now, q.N, id)
	}
	return l.state.Take(q, id).Outcome(q), nil
}

// mostLocked returns how many of n permits one call would be granted now, or 1 if it would be granted none. A bucket that gains
// more than a permit a µs has more than those that are left of its burst, as in the script.
func (l *Local) mostLocked(now, n int64, id calls.Epoch) int64 {
	ask := func(n int64) calls.Decision { return l.state.Take(calls.Demand{Now: now, N: n}, id) }
	low := max(1, min(n, ask(1).Remaining))
	if low == n || !ask(low+1).Granted {
		return low
	}
	high := min(n, 2*low)
	for low < high && ask(high).Granted {
		low, high = high, min(n, 2*high)
	}
	for low < high {
		if middle := low + (high-low+1)/2; ask(middle).Granted {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// idLocked returns the id of a call.
func (l *Local) idLocked() (id calls.Epoch) {
	l.calls++
	binary.BigEndian.PutUint64(id[:], l.calls)
	return id
}

// queue blocks until the caller is the first of those that wait for a turn of n permits, and reports true. Then the caller calls
// next. It reports false with the outcome of a wait that has ended, or whose turn would come too late.
func (l *Local) queue(ctx context.Context, n int64, timeout time.Duration) (first, byContext bool, err error) {
	var late <-chan time.Time
	left, byContext := calls.TimeLeft(ctx, timeout)
	if r, err := l.Peek(ctx, n); err != nil || max(0, left) < r.Wait {
		return false, byContext, err
	}
	if left < math.MaxInt64 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case l.waits <- struct{}{}: // the runtime lets those that are blocked here send in the order in which they came
		return true, byContext, nil
	default:
	}
	select {
	case l.waits <- struct{}{}:
		return true, byContext, nil
	case <-late:
		return false, byContext, nil
	case <-ctx.Done():
		return false, byContext, ctx.Err()
	}
}

// next lets the next one of those that wait be the first.
func (l *Local) next() { <-l.waits }

// nowLocked returns the time by the monotonic clock. Under the lock no call sees an earlier instant than the last.
func (l *Local) nowLocked() int64 { return l.began.UnixMicro() + time.Since(l.began).Microseconds() }

// Reset makes the limiter as if it had never been used. Callers in Wait notice within a second.
func (l *Local) Reset() {
	if !l.made() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = l.begunLocked()
}

var _ reserver = (*Local)(nil)

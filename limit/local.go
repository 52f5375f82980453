// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"sync"
	"time"
)

// A Local is a limiter for one process. It limits the calls of its own methods only; processes that keep a
// limit together need a [Shared].
//
// It uses the monotonic clock, which is never put back, and needs neither Redis nor a goroutine. The zero
// value is not usable; call [NewLocal]. Its methods are safe for concurrent use. It must not be copied.
type Local struct {
	algorithm Algorithm
	began     time.Time

	mu    sync.Mutex
	state state
}

// NewLocal returns a new limiter. It returns ratelimiter.ErrInvalidArgument if a parameter of a is out of its
// range.
func NewLocal(a Algorithm) (*Local, error) {
	if a == nil {
		return nil, invalid("the algorithm is nil")
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	l := &Local{algorithm: a, began: time.Now()}
	l.state = l.begunLocked()
	return l, nil
}

// begunLocked returns the state of a limiter that begins now.
func (l *Local) begunLocked() state {
	if m, ok := l.algorithm.(interface{ initial(now int64) state }); ok {
		return m.initial(l.nowLocked())
	}
	return l.algorithm.idle()
}

// Algorithm returns the algorithm of the limiter.
func (l *Local) Algorithm() Algorithm { return l.algorithm }

// Allow implements [Limiter].
func (l *Local) Allow(ctx context.Context, n int64) (Result, error) {
	return l.ask(ctx, demand{n: n, spend: true})
}

// Peek implements [Limiter].
func (l *Local) Peek(ctx context.Context, n int64) (Result, error) {
	return l.ask(ctx, demand{n: n})
}

// Reserve implements [Reserver].
func (l *Local) Reserve(ctx context.Context, n int64, atMost time.Duration) (Result, error) {
	return l.ask(ctx, demand{n: n, atMost: atMostMicros(atMost), spend: true})
}

func (l *Local) ask(ctx context.Context, q demand) (Result, error) {
	d, err := l.decide(ctx, q)
	return d.result(), err
}

func (l *Local) decide(ctx context.Context, q demand) (decision, error) {
	if err := contextError(ctx); err != nil {
		return decision{}, err
	}
	if err := checkPermits(l.algorithm, q.n); err != nil {
		return decision{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q.now = l.nowLocked()
	return l.state.take(q), nil
}

// nowLocked returns the time by the monotonic clock. Under the lock no call sees an earlier instant than the last.
func (l *Local) nowLocked() int64 { return l.began.UnixMicro() + time.Since(l.began).Microseconds() }

// atMostMicros returns how long a caller would wait, in µs.
func atMostMicros(d time.Duration) int64 { return min(max(d, 0), longest).Microseconds() }

var _ Reserver = (*Local)(nil)

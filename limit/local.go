package limit

import (
	"context"
	"sync"
	"time"
)

// A Local is a limiter in this process: it counts what is asked of this value and no more. A limit that a
// fleet keeps together needs a [Shared] one.
//
// Its clock is the process' monotonic one, which nobody puts back. It needs neither Redis nor a goroutine.
// The zero value is not usable; make one with [NewLocal]. Its methods are safe for concurrent use, and
// must not be called on a copy.
type Local struct {
	algorithm Algorithm
	began     time.Time

	mu    sync.Mutex
	state state
}

// NewLocal is a limiter of its own, unused. Errors: ratelimiter.ErrInvalidArgument for numbers out of
// their range.
func NewLocal(a Algorithm) (*Local, error) {
	if a == nil {
		return nil, invalid("the algorithm is nil")
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	l := &Local{algorithm: a, began: time.Now(), state: a.idle()}
	if m, ok := a.(interface{ made(now int64) state }); ok {
		l.state = m.made(l.began.UnixMicro())
	}
	return l, nil
}

// Algorithm is what the limiter was made with.
func (l *Local) Algorithm() Algorithm { return l.algorithm }

// Allow implements [Limiter].
func (l *Local) Allow(ctx context.Context, n int64) (Result, error) {
	return l.ask(ctx, request{n: n, spend: true})
}

// Peek implements [Limiter].
func (l *Local) Peek(ctx context.Context, n int64) (Result, error) {
	return l.ask(ctx, request{n: n})
}

// Reserve implements [Reserver].
func (l *Local) Reserve(ctx context.Context, n int64, atMost time.Duration) (Result, error) {
	return l.ask(ctx, request{n: n, atMost: patience(atMost), spend: true})
}

func (l *Local) ask(ctx context.Context, q request) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if err := checkPermits(l.algorithm, q.n); err != nil {
		return Result{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The difference is that of the monotonic clock. Read under the lock, so that it never goes back.
	q.now = l.began.UnixMicro() + time.Since(l.began).Microseconds()
	return l.state.take(q).result(), nil
}

// patience is how long a caller waits, in µs.
func patience(d time.Duration) int64 { return min(max(d, 0), longest).Microseconds() }

var _ Reserver = (*Local)(nil)

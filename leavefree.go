// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A class is the lower class of the requests of a handle.
type class struct {
	handle engine.Handle
	age    time.Duration // for how long a request that waits is of the class
}

// LeaveFree returns a handle of the same limiter whose requests are of a lower class, for work that is to give way to
// others, such as a batch job beside the requests of users: each is granted only if that many permits stay free, whoever
// took the rest, in whatever process or language. The requests of l go on as before, and find at least these permits, as
// long as they do not use them up themselves. The larger permits is, the sooner they are served; it should be no less than
// what one of them asks for.
//
// The requests of a class that wait stand in a queue of their own. One that has waited for age is from then on like a
// request of l that comes at that moment, so that it does not starve even if l uses up the whole rate. If a class keeps
// asking for more than is left to it, it takes part like everybody after that time. Give its calls a timeout below age if
// they are rather to fail.
//
// While Redis is unavailable, the [OutagePolicy] decides without a look at classes. The requests of a class reserve nothing,
// as large ones of l do. [RateLimiter.Peek] and [RateLimiter.Allow] tell what holds for the class; in
// [Client.TryAcquireAll], demands for one limiter are together of the lowest class among them, and all demands age when the
// last of them does.
//
// A request for more permits than the rate has beyond those that are to stay free is ErrPermitsExceedRate. If permits is not
// in 0..2^32-1, or age is not above 0, every call of the handle returns ErrInvalidArgument. With 0 permits, the handle is as
// good as l.
func (l *RateLimiter) LeaveFree(permits int64, age time.Duration) *RateLimiter {
	handle := *l
	handle.class = nil
	switch {
	case handle.err != nil:
	case permits < 0 || permits > permit.Max:
		handle.err = invalid("LeaveFree: %d permits are not in 0..%d", permits, int64(permit.Max))
	case age <= 0:
		handle.err = invalid("LeaveFree: the age of %v is not above 0", age)
	case permits > 0:
		handle.class = &class{handle: l.handle.Lower(permits), age: age}
	}
	return &handle
}

// ageing returns for how long the requests of l are of a lower class, 0 if they are not.
func (l *RateLimiter) ageing() time.Duration {
	if l.class == nil || l.handle.Health().Down() {
		return 0
	}
	return l.class.age
}

// floor returns how many permits the requests of l leave free.
func (l *RateLimiter) floor() int64 {
	if l.class == nil {
		return 0
	}
	return l.class.handle.Floor
}

// in returns the handle of the requests of l, of their class if lower is set.
func (l *RateLimiter) in(lower bool) *engine.Handle {
	if lower && l.class != nil {
		return &l.class.handle
	}
	return &l.handle
}

// acquireInClass passes a request on to the queue of its class and, when it has waited for long, to that of all.
func (l *RateLimiter) acquireInClass(ctx context.Context, want engine.Request) (engine.Outcome, error) {
	age := l.ageing()
	if age == 0 || !want.Wait {
		return l.in(age > 0).Acquire(ctx, want)
	}
	return whileYoung(ctx, age, deadlineAfter(want.Timeout), func(ctx context.Context, lower bool, deadline time.Time) (engine.Outcome, error) {
		want.Timeout = engine.Timeout(deadline)
		return l.in(lower).Acquire(ctx, want)
	})
}

// whileYoung calls wait for the lower class, and once that has lasted for age, for all. The deadline is zero for none.
func whileYoung[T any](ctx context.Context, age time.Duration, deadline time.Time, wait func(ctx context.Context, lower bool, deadline time.Time) (T, error)) (T, error) {
	if !deadline.IsZero() && time.Until(deadline) <= age {
		return wait(ctx, true, deadline)
	}
	young, cancel := context.WithTimeout(ctx, age)
	defer cancel()
	r, err := wait(young, true, time.Time{})
	if err == nil || young.Err() == nil || ctx.Err() != nil {
		return r, err
	}
	return wait(ctx, false, deadline)
}

// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A class makes the requests of a handle leave permits free for others.
type class struct {
	handle engine.Handle
	age    time.Duration // for how long a request that waits is of the class
}

// LeaveFree returns a handle of the same limiter whose requests leave permits free for others. It is for work that
// should give way, such as a batch job beside the requests of users. A request of the handle is granted only if at
// least that number of permits stays free afterwards, no matter which processes, in Go or Java, took the others. The
// requests of l go on as before, and find these permits free as long as they do not use them up themselves. The
// larger the number, the sooner they are served; it should be at least the size of one of their requests.
//
// The waiting requests of the handle form a lower class with a queue of its own. A request that has waited for age
// becomes like a request of l that arrives at that moment, so it does not starve even if l uses up the whole rate. If
// a class constantly asks for more than is left to it, its requests come to compete with those of l after that time.
// To have them fail instead, give its calls a timeout below age.
//
// While Redis is unavailable, the [OutagePolicy] decides and ignores classes. The requests of a class reserve no
// permits, unlike large requests of l. [RateLimiter.Peek] and [RateLimiter.Allow] report what holds for the class. In
// [Client.TryAcquireAll], several demands for one limiter leave free the most that any of them does, and all demands
// turn ordinary when the longest age among them is over.
//
// A request of more permits than the rate minus those that stay free returns ErrPermitsExceedRate. If permits is not
// in 0..2^32-1, or age is not above 0, every call of the handle returns ErrInvalidArgument. With 0 permits, the
// requests of the handle are ordinary ones.
func (l *RateLimiter) LeaveFree(permits int64, age time.Duration) *RateLimiter {
	l = l.made()
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

// ageing returns for how long the requests of l are of a lower class, or 0 if they are not.
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

// acquireInClass sends a request to the queue of its class, and to that of l once it has waited for the age of the
// class.
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

// whileYoung calls wait for the lower class and, once that has lasted for age, for all. A zero deadline means none.
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

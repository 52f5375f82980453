// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Lower returns a Handle of the same limiter for a lower class of requests, which are granted only if floor permits
// stay free. They have a wait queue of their own and reserve nothing.
func (h *Handle) Lower(floor int64) Handle {
	low := *h
	low.Floor = floor
	return low
}

// acquireLower is Acquire for a request of a lower class. During an outage it is like any other.
func (h *Handle) acquireLower(ctx context.Context, want Request) (Outcome, error) {
	low := h.Lower(want.Floor)
	want.Floor = 0
	switch {
	case h.Health().Down():
		return h.Acquire(ctx, want)
	case !want.Wait:
		return low.Acquire(ctx, want)
	}
	return WhileYoung(ctx, want.Age, Deadline(want.Timeout), func(ctx context.Context, lower bool, deadline time.Time) (Outcome, error) {
		want.Timeout = Timeout(deadline)
		if lower {
			return low.Acquire(ctx, want)
		}
		return h.Acquire(ctx, want)
	})
}

// WhileYoung calls wait for the lower class and, once that has lasted for age, for all. A zero deadline means none.
func WhileYoung[T any](ctx context.Context, age time.Duration, deadline time.Time, wait func(ctx context.Context, lower bool, deadline time.Time) (T, error)) (T, error) {
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

// lowerYield is how long after its permits are free the queue of a lower class asks for them. So callers of the other
// classes that wait for the same instant come first.
const lowerYield = 10 * time.Millisecond

func (l *limiter) yield(r permit.Rate) time.Duration {
	if l.link.Floor == 0 {
		return 0
	}
	return min(lowerYield, r.Interval/10)
}

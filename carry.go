// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
)

// maxCarried is how often a call sets the rate that its handle carries: again if Redis loses it in the same moment.
const maxCarried = 2

// WithRate returns a handle of the same limiter that carries its rate: a call that acquires permits and finds a limiter without
// one, because it is new, was evicted, or Redis was flushed, sets r as [RateLimiter.TrySetRate] does and goes on. A limiter
// that has a rate keeps it, whatever r is. The other calls of the handle, such as Release and Peek, return
// ErrNotInitialized as ever. If r is out of range, every call of the handle returns ErrInvalidArgument. The default is to
// carry none, because the rate may be Java's to set.
func (l *RateLimiter) WithRate(r Rate) *RateLimiter {
	handle := *l
	handle.rate = &r
	if err := r.validate(); err != nil && handle.err == nil {
		handle.err = err
	}
	return &handle
}

// acquireCarrying passes a request on, and sets the rate that l carries where it is missing.
func (l *RateLimiter) acquireCarrying(ctx context.Context, want engine.Request) (engine.Outcome, error) {
	if l.rate == nil {
		return l.acquireInClass(ctx, want)
	}
	deadline := time.Now().Add(want.Timeout)
	return carry(ctx, []Demand{{Limiter: l}}, func() (engine.Outcome, error) {
		if want.Timeout > 0 {
			want.Timeout = max(time.Until(deadline), 1)
		}
		return l.acquireInClass(ctx, want)
	})
}

// carry calls acquire, and again after it has set the rates that the limiters of the demands carry and lack.
func carry[T any](ctx context.Context, demands []Demand, acquire func() (T, error)) (T, error) {
	for sets := 0; ; sets++ {
		r, err := acquire()
		if sets == maxCarried || !errors.Is(err, ErrNotInitialized) {
			return r, err
		}
		carried := false
		for _, d := range demands {
			if d.Limiter.rate == nil {
				continue
			}
			carried = true
			if _, err := d.Limiter.TrySetRate(ctx, *d.Limiter.rate); err != nil {
				return *new(T), err
			}
		}
		if !carried {
			return r, err
		}
	}
}

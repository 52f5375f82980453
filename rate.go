// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Rate is what a limiter allows, as Redis stores it: Permits permits in any window of length Interval. Rates
// are comparable with ==. The type corresponds to Redisson's RateLimiterConfig.
type Rate struct {
	// Type tells whether all clients share the permits or each client has its own.
	Type RateType
	// Permits is the number of permits that may be acquired within any Interval, from 1 to 2^32-1.
	Permits int64
	// Interval is the length of the window: a whole number of milliseconds, and at least one.
	Interval time.Duration
	// KeepAlive is how long the limiter lives after the last acquire, granted or rejected; then Redis deletes it together
	// with its rate. As long as callers wait for permits of this limiter alone it is renewed. A [Client.AcquireAll] that
	// waits behind others for another limiter does not renew it, so it should be longer than such callers wait. It is 0
	// for a limiter that stays, or a whole number of milliseconds and at least Interval. Redisson before 3.38.0 ignores it.
	KeepAlive time.Duration
	// MinGap is the least time between two permits, which keeps them from leaving in one burst: after a grant
	// of n permits the next grant comes n gaps later at the soonest. It is 0 for no gap, or a whole number of
	// milliseconds and at most Interval. The callers of this package obey it in all processes; Redisson does
	// not know it and leaves it alone.
	MinGap time.Duration
}

// String returns the rate in a form for log lines, such as "OVERALL 5/10s".
func (r Rate) String() string { return r.permit().String() }

func (r Rate) permit() permit.Rate {
	return permit.Rate{Type: permit.Type(r.Type), Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive, MinGap: r.MinGap}
}

func rateOf(r permit.Rate) Rate {
	return Rate{Type: RateType(r.Type), Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive, MinGap: r.MinGap}
}

// validate rejects the rates that Redisson accepts and then fails on: a rate or an interval of 0 or less, and
// rates that DECRBY cannot count, which are those from 1e17 on.
func (r Rate) validate() error {
	if r.Type != Overall && r.Type != PerClient {
		return invalid("Rate.Type %d is neither Overall nor PerClient", int(r.Type))
	}
	if r.Permits < 1 || r.Permits > permit.Max {
		return invalid("Rate.Permits %d is not in 1..%d", r.Permits, int64(permit.Max))
	}
	interval, err := millis("Rate.Interval", r.Interval)
	if err != nil {
		return err
	}
	if interval < 1 {
		return invalid("Rate.Interval %v is shorter than a millisecond", r.Interval)
	}
	if _, err := millis("Rate.KeepAlive", r.KeepAlive); err != nil {
		return err
	}
	if r.KeepAlive != 0 && r.KeepAlive < r.Interval {
		return invalid("Rate.KeepAlive %v is shorter than Rate.Interval %v", r.KeepAlive, r.Interval)
	}
	if _, err := millis("Rate.MinGap", r.MinGap); err != nil {
		return err
	}
	if r.MinGap < 0 || r.MinGap > r.Interval {
		return invalid("Rate.MinGap %v is not in 0..%v, which is Rate.Interval", r.MinGap, r.Interval)
	}
	return nil
}

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
	deadline := deadlineAfter(want.Timeout)
	return carry(ctx, []Demand{{Limiter: l}}, func() (engine.Outcome, error) {
		want.Timeout = engine.Timeout(deadline)
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

// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"time"

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

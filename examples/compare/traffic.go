// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A traffic is a series of requests, and the limit for them.
type traffic struct {
	name, about string
	rate        ratelimiter.Rate
	bursts      []burst
}

// A burst is count requests for permits each, spread evenly over [from, to); all at once if from and to are equal.
type burst struct {
	from, to time.Duration
	count    int
	permits  int64
}

// An arrival is one request, or one grant.
type arrival struct {
	at      time.Duration // since the beginning, in whole microseconds
	permits int64
}

// arrivals returns the requests by time; those of one instant are in the order of the bursts.
func (t *traffic) arrivals() (all []arrival) {
	for _, b := range t.bursts {
		for i := range b.count {
			at := b.from + ((b.to - b.from) * time.Duration(i) / time.Duration(b.count)).Truncate(time.Microsecond)
			all = append(all, arrival{at, b.permits})
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

const ms, second = time.Millisecond, time.Second

var ten = ratelimiter.Rate{Permits: 10, Interval: second}

// cases holds the traffics. Write yours here.
var cases = []*traffic{
	{"articles", "10, 10, 980, 900 and 100 requests in five successive seconds, evenly within each", ratelimiter.Rate{Permits: 1000, Interval: 3 * second},
		[]burst{{0, second, 10, 1}, {second, 2 * second, 10, 1}, {2 * second, 3 * second, 980, 1}, {3 * second, 4 * second, 900, 1}, {4 * second, 5 * second, 100, 1}}},
	{"edge", "1 request that opens a window, 4 just before its end (0.95s), 5 just after it (1.05s)", ratelimiter.Rate{Permits: 5, Interval: second},
		[]burst{{0, 0, 1, 1}, {950 * ms, 950 * ms, 4, 1}, {1050 * ms, 1050 * ms, 5, 1}}},
	{"trickle", "9 requests a second for 4s, then 12 a second for 10s", ten,
		[]burst{{0, 4 * second, 36, 1}, {4 * second, 14 * second, 120, 1}}},
	{"burst", "10 requests a second for 1s, idle until 4s, 25 at once, then 10 a second until 7s", ten,
		[]burst{{0, second, 10, 1}, {4 * second, 4 * second, 25, 1}, {4100 * ms, 7 * second, 29, 1}}},
	{"large", "10 requests for 1 permit a second for 4s, and one for 8 permits at 0.95s, 1.95s and 2.95s", ten,
		[]burst{{0, 4 * second, 40, 1}, {950 * ms, 950 * ms, 1, 8}, {1950 * ms, 1950 * ms, 1, 8}, {2950 * ms, 2950 * ms, 1, 8}}},
}

// limiters returns the limiters for a rate, with room for the permits of one interval wherever they have room for some.
func limiters(r ratelimiter.Rate) []limit.Algorithm {
	perSecond := float64(r.Permits) / r.Interval.Seconds()
	return []limit.Algorithm{
		limit.FixedWindow{Rate: r},
		limit.SlidingLog{Rate: r},
		RRateLimiter{limit.SlidingLog{Rate: r}},
		limit.SlidingCounter{Rate: r},
		limit.IntervalBucket{Rate: r, Burst: r.Permits},
		limit.TokenBucket{Rate: r, Burst: r.Permits},
		limit.GCRA{Rate: r, Burst: r.Permits},
		limit.DebtBucket{Rate: r, Burst: r.Permits, Debt: r.Permits},
		limit.LeakyQueue{Rate: r, Capacity: r.Permits},
		limit.SmoothBursty{PermitsPerSecond: perSecond, MaxBurst: r.Interval},
		limit.SmoothWarmingUp{PermitsPerSecond: perSecond, Warmup: r.Interval},
	}
}

// RRateLimiter stands for the limiter of the root package, which has the bound of a SlidingLog.
type RRateLimiter struct{ limit.Algorithm }

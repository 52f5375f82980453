// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/limit"
)

// A traffic is a series of requests, and the limit for them.
type traffic struct {
	name   string
	about  string
	rate   limit.Rate
	bursts []burst
}

// A burst is count requests for so many permits each, spread evenly over the time from from, inclusive, to
// to, exclusive. If both are equal, all requests come at that instant.
type burst struct {
	from, to time.Duration
	count    int
	permits  int64
}

// An arrival is one request.
type arrival struct {
	at      time.Duration // since the beginning, in whole microseconds
	permits int64
}

// arrivals returns the requests by time; those of one instant are in the order of the bursts.
func (t traffic) arrivals() []arrival {
	var all []arrival
	for _, b := range t.bursts {
		length := (b.to - b.from).Microseconds()
		for i := range b.count {
			at := b.from + time.Duration(length*int64(i)/int64(b.count))*time.Microsecond
			all = append(all, arrival{at, b.permits})
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// theCases returns the traffics that the command knows by name.
func theCases() []traffic {
	second := func(n, count int) burst {
		return burst{time.Duration(n) * time.Second, time.Duration(n+1) * time.Second, count, 1}
	}
	atOnce := func(at time.Duration, count int, permits int64) burst { return burst{at, at, count, permits} }
	const ms = time.Millisecond
	ten := limit.Rate{Permits: 10, Interval: time.Second}
	return []traffic{
		{
			// The requests come evenly, so that the effect of a window's edge is not that of a burst.
			name:   "articles",
			about:  "10, 10, 980, 900 and 100 requests in five successive seconds, evenly within each",
			rate:   limit.Rate{Permits: 1000, Interval: 3 * time.Second},
			bursts: []burst{second(0, 10), second(1, 10), second(2, 980), second(3, 900), second(4, 100)},
		},
		{
			// A window begins with its first grant, so the first request opens one.
			name:   "edge",
			about:  "1 request that opens a window, 4 just before its end (0.95s), 5 just after it (1.05s)",
			rate:   limit.Rate{Permits: 5, Interval: time.Second},
			bursts: []burst{atOnce(0, 1, 1), atOnce(950*ms, 4, 1), atOnce(1050*ms, 5, 1)},
		},
		{
			name:   "trickle",
			about:  "9 requests a second for 4s, then 12 a second for 10s",
			rate:   ten,
			bursts: []burst{{0, 4 * time.Second, 36, 1}, {4 * time.Second, 14 * time.Second, 120, 1}},
		},
		{
			name:   "burst",
			about:  "10 requests a second for 1s, idle until 4s, 25 at once, then 10 a second until 7s",
			rate:   ten,
			bursts: []burst{second(0, 10), atOnce(4*time.Second, 25, 1), {4100 * ms, 7 * time.Second, 29, 1}},
		},
		{
			name:  "large",
			about: "10 requests for 1 permit a second for 4s, and one for 8 permits at 0.95s, 1.95s and 2.95s",
			rate:  ten,
			bursts: []burst{{0, 4 * time.Second, 40, 1},
				atOnce(950*ms, 1, 8), atOnce(1950*ms, 1, 8), atOnce(2950*ms, 1, 8)},
		},
	}
}

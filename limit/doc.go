// SPDX-License-Identifier: Apache-2.0

// Package limit has the rate limiters of the literature besides RRateLimiter, each in two forms: local,
// for one process, and shared, in Redis, by every process that uses the same name and parameters.
//
//	api, err := limit.NewShared(rdb, "api", limit.TokenBucket{
//		Rate:     limit.Rate{Permits: 10, Interval: time.Second},
//		Burst: 20,
//	})
//	...
//	r, err := api.For(userID).Allow(ctx, 1)
//	if err == nil && !r.Granted {
//		// 429, Retry-After: r.Wait
//	}
//
// The algorithms differ in what they admit. The comment of each type describes its model, its bound (which
// is also its method Bound), what it does not promise, and where it comes from:
//
//	FixedWindow      cheapest; up to twice the rate around the edge of two windows
//	SlidingLog       exact; memory for each grant
//	SlidingCounter   two counters; near the rate for even traffic, up to twice the rate for uneven
//	CalendarQuota    so many in each day, week or month of a time zone
//	IntervalBucket   a token bucket that is refilled in steps
//	TokenBucket      a token bucket that is refilled continuously
//	DebtBucket       a TokenBucket in which one call may go into debt, which the next one waits for
//	GCRA             the leaky bucket as a meter, whose whole state is one instant
//	LeakyQueue       the leaky bucket as a queue: an even outflow, and waits that are known
//	SmoothBursty     Guava's RateLimiter.create(rate)
//	SmoothWarmingUp  Guava's RateLimiter.create(rate, warmup)
//
// The counters and buckets among them have grants that can be settled, once it is known what was used: see [Grant].
//
// All but Guava's two count permits and microseconds in whole numbers and lose nothing to rounding; Guava's
// two follow Guava's arithmetic. [NewAdapter] makes a RRateLimiter one of them. Package limittest tests that
// a limiter, one of these or your own, keeps its promises.
//
// A shared limiter is one script on one Redis key for each key. It decides by the clock of Redis and needs Redis 5
// or later, or Valkey. Concurrent calls share a round trip, and what is known to be rejected is
// rejected without a call. A call whose reply is lost is sent again and takes its permits once; see [Shared].
package limit

// SPDX-License-Identifier: Apache-2.0

// Package limit provides rate limiters with eleven algorithms, from fixed windows to token buckets and calendar quotas.
// A [Shared] is kept in Redis by all processes that use its name; a [Local] limits one process.
//
//	api, err := limit.NewShared(rdb, "api", limit.TokenBucket{
//		Rate:  ratelimiter.PerSecond(10),
//		Burst: 20,
//	})
//	if err != nil {
//		return err
//	}
//	result, err := api.For(userID).Allow(ctx, 1) // each user has a bucket
//	if err != nil {
//		return err // no permits were granted
//	}
//	if !result.Granted {
//		return fmt.Errorf("too many requests, try again in %v", result.Wait)
//	}
//
// [Shared.For] costs nothing for each request. A tenant with a rate of its own is For(tenant) and [Shared.With], and
// [Shared.AllowAtMost] takes as many permits as there are.
//
// Allow never waits; the functions [Wait] and [WaitTimeout] do. A ratelimiter.RateLimiter is
// a [Limiter] too.
//
// Which one? [GCRA] if in doubt: it stores a few numbers a key and allows bursts. [SlidingLog] if no window may hold more
// than the rate. [CalendarQuota] for so many calls in a day or month. [LeakyQueue] for an even flow. The comment of
// each type describes its model, its bound, which [Bound] returns, what it does not promise, and its source:
//
//	FixedWindow      one count a window; up to twice the rate around the edge of two windows
//	SlidingLog       exact; stores each grant
//	SlidingCounter   two counts; near the rate for even traffic, up to twice the rate for uneven
//	CalendarQuota    permits for each day, week or month of a time zone
//	IntervalBucket   a token bucket that is refilled in steps
//	TokenBucket      a token bucket that is refilled continuously
//	DebtBucket       a TokenBucket that one call may overdraw; the next call waits until it is even
//	GCRA             the leaky bucket as a meter; its state is what has not flowed out
//	LeakyQueue       the leaky bucket as a queue: an even outflow, and known waits
//	SmoothBursty     Guava's RateLimiter.create(rate)
//	SmoothWarmingUp  Guava's RateLimiter.create(rate, warmup)
//
// Grants of the windows, counters and buckets can be settled to what was used: see [Grant]. Guava's two follow Guava's
// arithmetic; the others count in whole permits and microseconds and lose nothing to rounding.
//
// A Shared runs one script on one Redis key for each key, by the clock of Redis, on Redis 5 or later, or Valkey.
// Concurrent calls share a round trip, a call that is known to be rejected is rejected without one, and a call
// whose reply is lost is sent again and takes its permits once. To share a limit with Java, or to take permits of several limiters
// at once, use package ratelimiter.
package limit

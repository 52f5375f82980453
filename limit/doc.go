// Package limit has the other limiters of the literature beside RRateLimiter, each in two forms: local,
// in this process, and shared, in Redis, by every process that uses the same name and numbers.
//
//	api, err := limit.NewShared(rdb, "api", limit.TokenBucket{
//		Rate:     limit.Rate{Permits: 10, Interval: time.Second},
//		Capacity: 20,
//	})
//	...
//	r, err := api.For(userID).Allow(ctx, 1)
//	if err == nil && !r.Granted {
//		// 429, Retry-After: r.Wait
//	}
//
// They differ in what they admit. Each type says its model, its bound (and has it as a method, Bound),
// what it does not promise, and where it comes from:
//
//	FixedWindow      cheapest; up to twice the rate around an edge
//	SlidingLog       exact; memory for each grant
//	SlidingCounter   two counters; near the rate for even traffic, up to twice for uneven
//	IntervalBucket   a token bucket filled in steps
//	TokenBucket      a token bucket filled evenly
//	DebtBucket       as TokenBucket; one call may go into debt, the next pays
//	GCRA             the leaky bucket as a meter: one instant is all its state
//	LeakyQueue       the leaky bucket as a queue: even outflow, told waits
//	SmoothBursty     Guava's RateLimiter.create(rate)
//	SmoothWarmingUp  Guava's RateLimiter.create(rate, warmup)
//
// All count whole permits and whole microseconds, in integers, and lose nothing to rounding; Guava's two
// follow Guava's arithmetic instead. A RRateLimiter joins them through [NewAdapter]. Package limittest
// holds a limiter, these and yours, to what it promises.
//
// A shared limiter is one script on two keys of one hash slot. It decides by the clock of Redis and needs
// Redis 5 or Valkey. A call whose reply is lost is sent again and spends once; see [Shared], and
// [WithoutReplay] for what that costs.
package limit

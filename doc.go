// Package ratelimiter is a rate limiter in Redis for Go services that share it with each other and
// with Java services on Redisson: a port of Redisson's RRateLimiter on go-redis, with the same keys,
// the same members and the same meaning.
//
//	client := ratelimiter.New(rdb)
//	defer client.Close()
//	limiter := client.RateLimiter("sms")
//	_, err := limiter.TrySetRate(ctx, ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
//	ok, err := limiter.TryAcquire(ctx, 2, time.Minute)
//
// Most callers want [RateLimiter.TryAcquire], which waits at most a timeout. [RateLimiter.Acquire]
// waits as long as it takes, for workers. [RateLimiter.Try] never waits and says how long it would
// take and what is left, for HTTP middleware. All three grant at the same limit: no window of
// Rate.Interval holds more than Rate.Permits.
//
// A limiter is made once by whoever comes first: [RateLimiter.TrySetRate] leaves a limiter that has
// a rate as it is. [RateLimiter.SetRate] and [RateLimiter.UpdateRate] change it. Everything is safe
// for concurrent use, and an idle limiter costs nothing: no goroutine, no finalizer, no global state.
//
// What is in Redis is described in docs/protocol.md, enough to write a third implementation; where
// this package does otherwise than Redisson, and why, in docs/compatibility.md.
package ratelimiter

// SPDX-License-Identifier: Apache-2.0

// Package ratelimiter provides a rate limiter that lives in Redis, for Go services that share it with each
// other and with Java services that use Redisson. It is a port of Redisson's RRateLimiter to go-redis, with the
// same keys, the same members and the same semantics.
//
//	client, err := ratelimiter.New(rdb)
//	defer client.Close()
//	limiter := client.RateLimiter("sms")
//	_, err := limiter.TrySetRate(ctx, ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
//	ok, err := limiter.TryAcquire(ctx, 2, time.Minute)
//
// Most callers should use [RateLimiter.TryAcquire], which waits for permits until a timeout is over.
// [RateLimiter.Acquire] waits as long as it takes, which suits background workers. [RateLimiter.Allow] never
// waits; it reports how long the wait would be and how many permits are left, which suits HTTP middleware. All
// three grant by the same limit: no window of length Rate.Interval holds more than Rate.Permits permits.
//
// [RateLimiter.TrySetRate] creates a limiter and leaves one that already has a rate unchanged, so every process
// may call it when it starts. [RateLimiter.SetRate] and [RateLimiter.UpdateRate] change the rate of a limiter.
// Clients and limiters are safe for concurrent use. An idle limiter costs nothing: it has no goroutine, no
// timer and no finalizer.
//
// The file docs/design/protocol.md describes what is stored in Redis, in enough detail to write another
// implementation. The file docs/compatibility.md lists where this package differs from Redisson, and why.
package ratelimiter

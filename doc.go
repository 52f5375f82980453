// SPDX-License-Identifier: Apache-2.0

// Package ratelimiter provides a rate limiter in Redis that Go services share with each other and with Java services.
// It is a port of Redisson's RRateLimiter to go-redis, with Redisson's keys and encoding.
//
//	client, err := ratelimiter.New(rdb)
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	if err := client.Ping(ctx); err != nil { // the address, the password or TLS is wrong
//		return err
//	}
//	limiter := client.RateLimiter("sms").WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
//
//	ok, err := limiter.TryAcquire(ctx, 1, time.Minute)
//	if err != nil {
//		return err // no permits were acquired
//	}
//	if !ok {
//		return errors.New("too many text messages")
//	}
//
// [New] returns a [Client], of which a process needs one for each Redis, and [Client.Ping] tells whether Redis replies.
// The rate of a limiter is in Redis. A handle of [RateLimiter.WithRate] sets it if there is none; a limiter that has a
// rate keeps it until [RateLimiter.SetRate] changes it.
//
// Three methods acquire permits. All grant by the same limit: by the clock of Redis, no window of length Rate.Interval
// holds more than Rate.Permits permits.
//
//   - [RateLimiter.Allow] never waits. It returns a [Result] with the permits left and the wait. Use it in handlers.
//   - [RateLimiter.TryAcquire] waits until a timeout. Use it for work that has a deadline.
//   - [RateLimiter.Acquire] waits as long as it takes. Use it in workers.
//
// A rejection is not an error. After an error you do not have the permits. While Redis is down, calls return
// [ErrUnavailable], those that wait after half a minute: see [WithOutageLimit], and [WithOutagePolicy] to grant permits
// nevertheless. [Client.TryAcquireAll] takes permits of several limiters, [RateLimiter.AcquireGrant] those of work
// whose cost is not known yet, and [RateLimiter.CoolDown] pauses all callers. [RateLimiter.Admin] has what an operator
// uses. An idle limiter has no goroutine, timer or finalizer.
//
// The other packages:
//
//   - [github.com/goredisson/ratelimiter/httplimit/inbound] limits the requests that an HTTP server receives, grpclimit
//     the calls of a gRPC server.
//   - [github.com/goredisson/ratelimiter/httplimit] keeps the requests that a program sends within the limits of a
//     platform, from its subpackage platform or a file that rulefile reads. The command rrl-gateway is a proxy that does
//     so.
//   - [github.com/goredisson/ratelimiter/limit] has other algorithms, such as token bucket, GCRA and calendar quotas.
//   - otelratelimiter, prometheusratelimiter and metricname are for metrics, ratelimiterpage is a web page of live
//     limiters, and ratelimitertest tests programs in virtual time.
//
// In the repository, docs/README.md lists all pages; docs/compatibility.md has the differences from Redisson.
package ratelimiter

// SPDX-License-Identifier: Apache-2.0

// Package ratelimitertest tests code that uses limiters, without a Redis server and without waiting.
//
//	func TestSixthMessageWaits(t *testing.T) {
//		ratelimitertest.Run(t, func(t *testing.T, rdb *redis.Client) {
//			client := ratelimitertest.NewClient(t, rdb)
//			limiter := client.RateLimiter("sms").WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
//			start := time.Now()
//			for range 6 {
//				if err := limiter.Acquire(t.Context(), 1); err != nil {
//					t.Fatal(err)
//				}
//			}
//			if waited := time.Since(start); waited != 10*time.Second { // exactly, and at once
//				t.Error(waited)
//			}
//		})
//	}
//
// [Run] runs a test with a Redis in memory and in virtual time: a minute passes at once, and durations are exact. [NewRedis]
// returns that Redis alone, for a test in real time, or for one that has made its own bubble with synctest.Test. In both,
// miniredis runs the scripts of this module, so limiters behave as with a Redis server. A [Fake] is for code that depends on an
// interface with the few methods that it calls.
//
// Only tests should import this package: it links github.com/alicebob/miniredis/v2.
package ratelimitertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/redis/go-redis/v9"
)

// Run runs f in a bubble of [testing/synctest], with a client of a Redis of its own that lives in the bubble. The time of both is
// virtual. It begins on 2000-01-01 and passes, at once, when all goroutines of the bubble sleep or wait: time.Sleep is the clock that
// a test sets. Run closes the client when f has returned. Goroutines of f and its Clients must have ended by then:
// [NewClient] closes a Client in time.
//
// Tests that call Run may do so one after another and in parallel; f must not call t.Run or t.Parallel, as in synctest.Test. Make every
// client inside f and use none after it: what crosses the border of a bubble ends the test binary.
//
// A caller that waits asks Redis once a second of virtual time; for waits of hours set ratelimiter.WithRecheck.
func Run(t *testing.T, f func(t *testing.T, rdb *redis.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// A command under way fails when its client is closed, and go-redis sleeps before it tries again. A bubble whose test
		// has ended has no more time for that, so it is given here, once all clients are closed.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		f(t, NewRedis(t))
	})
}

// NewRedis returns a client of a new Redis in memory, both of which are closed when the test ends. It can be called inside and outside
// of a bubble of testing/synctest, and goes by the time of where it is called. It listens on no port.
func NewRedis(t testing.TB) *redis.Client {
	s := embedredis.InBubble()
	t.Cleanup(s.Close)
	rdb := s.NewClient()
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// NewClient returns a Client that uses rdb, as ratelimiter.New does, and is closed when the test ends. It fails the test if the options are
// not valid.
func NewClient(t testing.TB, rdb redis.UniversalClient, opts ...ratelimiter.Option) *ratelimiter.Client {
	t.Helper()
	c, err := ratelimiter.New(rdb, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

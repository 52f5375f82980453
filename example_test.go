// SPDX-License-Identifier: Apache-2.0

package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
)

// redisAddr is the address of the Redis that the examples use.
var redisAddr = func() string {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	return m.Addr()
}()

// A limiter of five permits in ten seconds, which carries its rate.
func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	client, err := ratelimiter.New(rdb)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	limiter := client.RateLimiter("sms").WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
	ok, err := limiter.TryAcquire(ctx, 2, time.Minute)
	fmt.Println(ok, err)
	// Output: true <nil>
}

// A worker waits as long as it takes, or until its context is done.
func ExampleRateLimiter_Acquire() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	limiter := client.RateLimiter("worker")
	ctx := context.Background()
	_ = limiter.SetRate(ctx, ratelimiter.Rate{Permits: 2, Interval: 100 * time.Millisecond})

	for job := range 5 {
		if err := limiter.Acquire(ctx, 1); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("job", job)
	}
	// Output:
	// job 0
	// job 1
	// job 2
	// job 3
	// job 4
}

// Allow never waits, and returns what an HTTP response needs.
func ExampleRateLimiter_Allow() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	limiter := client.RateLimiter("http")
	ctx := context.Background()
	_ = limiter.SetRate(ctx, ratelimiter.Rate{Permits: 3, Interval: time.Hour})

	for range 2 {
		r, err := limiter.Allow(ctx, 2)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("granted:", r.Granted, "left:", r.Available, "retry after:", r.Wait.Round(time.Hour))
	}
	_, err := limiter.Allow(ctx, 4)
	fmt.Println("more than the rate:", errors.Is(err, ratelimiter.ErrPermitsExceedRate))
	// Output:
	// granted: true left: 1 retry after: 0s
	// granted: false left: 1 retry after: 1h0m0s
	// more than the rate: true
}

// A batch job leaves 4 permits to the requests of users, which may take all of them. One that waits, waits behind them for a
// minute at most.
func ExampleRateLimiter_LeaveFree() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	users := client.RateLimiter("classes")
	batch := users.LeaveFree(4, time.Minute)
	ctx := context.Background()
	_ = users.SetRate(ctx, ratelimiter.Rate{Permits: 6, Interval: time.Hour})

	for _, l := range []*ratelimiter.RateLimiter{batch, batch, batch, users, batch} {
		fmt.Println(l.TryAcquire(ctx, 1, 0))
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
	// true <nil>
	// false <nil>
}

// SetRate with KeepState changes the rate of a limiter that is in use, without a second burst.
func ExampleRateLimiter_UpdateRate() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	limiter := client.RateLimiter("updated")
	ctx := context.Background()
	_ = limiter.SetRate(ctx, ratelimiter.Rate{Permits: 10, Interval: time.Hour})
	_, _ = limiter.TryAcquire(ctx, 8, 0)

	_, err := limiter.UpdateRate(ctx, ratelimiter.Rate{Permits: 20, Interval: time.Hour}, ratelimiter.KeepState())
	n, _ := limiter.AvailablePermits(ctx)
	fmt.Println(n, err)
	// Output: 12 <nil>
}

// A call of a language model takes about 500 tokens; how many it took is known when the answer has come.
func ExampleGrant_Settle() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	limiter := client.RateLimiter("tokens")
	ctx := context.Background()
	_ = limiter.SetRate(ctx, ratelimiter.Rate{Permits: 1000, Interval: time.Minute})

	grant, err := limiter.AcquireGrant(ctx, 500)
	if err != nil {
		panic(err)
	}
	if err := grant.Settle(ctx, 320); err != nil { // less comes back at once
		panic(err)
	}
	left, _ := limiter.AvailablePermits(ctx)
	fmt.Println(left)
	// Output: 680
}

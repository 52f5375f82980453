// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
)

// Each user has a limit, which all processes share.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	api, err := limit.NewShared(rdb, "api", limit.TokenBucket{
		Rate:  ratelimiter.PerSecond(10),
		Burst: 20,
	})
	if err != nil {
		panic(err)
	}
	r, err := api.For("user-42").Allow(context.Background(), 1)
	switch {
	case err != nil:
		fmt.Println("no decision, and no grant:", err)
	case !r.Granted:
		fmt.Println("429, Retry-After:", r.Wait)
	}
}

// The tokens of a language model are known when the answer is there.
func ExampleGrant_Settle() {
	l, err := limit.NewLocal(limit.TokenBucket{Rate: ratelimiter.PerHour(1000), Burst: 1000})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	grant, _, err := l.AllowGrant(ctx, 600) // as estimated
	if err != nil || grant == nil {
		panic(err)
	}
	if err := grant.Settle(ctx, 250); err != nil { // as used
		panic(err)
	}
	r, err := l.Peek(ctx, 1)
	fmt.Println(r.Available, err)
	// Output: 750 <nil>
}

// A limiter that only smooths the load grants everything while Redis is down.
func ExampleWithOutagePolicy() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	search, err := limit.NewShared(rdb, "search", limit.GCRA{
		Rate:  ratelimiter.PerSecond(100),
		Burst: 100,
	}, limit.WithOutagePolicy(ratelimiter.FailOpen()))
	if err != nil {
		panic(err)
	}
	r, err := search.Allow(context.Background(), 1)
	fmt.Println(r.Granted, r.Degraded, err)
}

// New parameters count for all processes within ten seconds, and what was spent by the old ones counts.
func ExampleWithFleetParameters() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	api, err := limit.NewShared(rdb, "api", limit.GCRA{
		Rate:  ratelimiter.PerMinute(2),
		Burst: 2,
	}, limit.WithFleetParameters(limit.KeepState))
	if err != nil {
		panic(err)
	}
	if err := api.Start(context.Background()); err != nil {
		panic(err)
	}
}

// A limiter of this process, whose callers wait.
func ExampleWait() {
	l, err := limit.NewLocal(limit.LeakyQueue{
		Rate:     ratelimiter.Rate{Permits: 1, Interval: 20 * time.Millisecond},
		Capacity: 100,
	})
	if err != nil {
		panic(err)
	}
	begin := time.Now()
	for range 3 {
		if err := limit.Wait(context.Background(), l, 1); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(begin) >= 40*time.Millisecond)
	// Output: true
}

// Algorithms of the same rate differ in how many permits they let through in the worst minute.
func ExampleAlgorithm() {
	rate := ratelimiter.PerMinute(100)
	for _, a := range []limit.Algorithm{
		limit.SlidingLog{Rate: rate},
		limit.SlidingCounter{Rate: rate},
		limit.FixedWindow{Rate: rate},
		limit.IntervalBucket{Rate: rate, Burst: 150},
		limit.SmoothBursty{PermitsPerSecond: 100. / 60, MaxBurst: time.Second},
	} {
		fmt.Printf("%T %d\n", a, limit.Bound(a, time.Minute, 1))
	}
	// Output:
	// limit.SlidingLog 100
	// limit.SlidingCounter 200
	// limit.FixedWindow 199
	// limit.IntervalBucket 249
	// limit.SmoothBursty 102
}

// A limiter that Java services share stands where a Limiter is asked for.
func ExampleLimiter() {
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	shared := client.RateLimiter("orders").WithRate(ratelimiter.PerSecond(50))
	ok, err := limit.WaitTimeout(context.Background(), shared, 1, 2*time.Second)
	fmt.Println(ok, err)
}

// Calls that are bought by the month, which begins at midnight in Shanghai.
func ExampleCalendarQuota() {
	month, err := limit.NewLocal(limit.CalendarQuota{
		Permits:  10_000,
		Per:      limit.Month,
		Location: time.FixedZone("CST", 8*60*60),
	})
	if err != nil {
		panic(err)
	}
	r, err := month.Allow(context.Background(), 1)
	fmt.Println(r.Granted, r.Available, err)
	// Output: true 9999 <nil>
}

// A large call is granted at once, and the calls after it wait for it.
func ExampleDebtBucket() {
	l, err := limit.NewLocal(limit.DebtBucket{Rate: ratelimiter.PerHour(60), Burst: 10, Debt: 50})
	if err != nil {
		panic(err)
	}
	for _, n := range []int64{60, 1} {
		r, err := l.Allow(context.Background(), n)
		fmt.Println(r.Granted, r.Wait.Round(time.Minute), err)
	}
	// Output:
	// true 0s <nil>
	// false 50m0s <nil>
}

// A service that has just started is called slowly at first. Reserve says when, and leaves the wait to the caller.
func ExampleLocal_Reserve() {
	l, err := limit.NewLocal(limit.SmoothWarmingUp{PermitsPerSecond: 1. / 60, Warmup: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 3 {
		reserved, err := l.Reserve(context.Background(), 1, time.Hour)
		fmt.Println(reserved.Granted, reserved.Wait.Round(time.Minute), err)
	}
	// Output:
	// true 0s <nil>
	// true 3m0s <nil>
	// true 6m0s <nil>
}

// A rejected caller comes again after Wait; the limiter is unused again after Reset.
func ExampleLocal_Allow() {
	l, err := limit.NewLocal(limit.TokenBucket{Rate: ratelimiter.PerHour(60), Burst: 10})
	if err != nil {
		panic(err)
	}
	for range 2 {
		r, err := l.Allow(context.Background(), 8)
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Granted, r.Available, r.Wait.Round(time.Minute), r.Reset.Round(time.Minute))
	}
	// Output:
	// true 2 0s 8m0s
	// false 2 6m0s 8m0s
}

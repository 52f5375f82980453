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
		Rate:  limit.Rate{Permits: 10, Interval: time.Second},
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
func ExampleLocal_AllowGrant() {
	l, err := limit.NewLocal(limit.TokenBucket{Rate: limit.Rate{Permits: 1000, Interval: time.Hour}, Burst: 1000})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	_, grant, err := l.AllowGrant(ctx, 600) // as estimated
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
		Rate:  limit.Rate{Permits: 100, Interval: time.Second},
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
		Rate:  limit.Rate{Permits: 2, Interval: time.Minute},
		Burst: 2,
	}, limit.WithFleetParameters(limit.KeepSpent))
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
		Rate:     limit.Rate{Permits: 1, Interval: 20 * time.Millisecond},
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

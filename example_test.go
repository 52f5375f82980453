// SPDX-License-Identifier: Apache-2.0

package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
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

// A response says how many requests are left, and when to come again.
func ExampleResult() {
	respond := func(w http.ResponseWriter, r ratelimiter.Result) {
		w.Header().Set("X-RateLimit-Limit", strconv.FormatInt(r.Rate.Permits, 10))
		w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(r.Available, 10))
		if !r.Granted {
			w.Header().Set("Retry-After", strconv.FormatFloat(math.Ceil(r.Wait.Seconds()), 'f', 0, 64))
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	w := httptest.NewRecorder()
	respond(w, ratelimiter.Result{Rate: ratelimiter.Rate{Permits: 10, Interval: time.Minute}, Wait: 2500 * time.Millisecond})
	fmt.Println(w.Code, w.Header())
	// Output: 429 map[Retry-After:[3] X-Ratelimit-Limit:[10] X-Ratelimit-Remaining:[0]]
}

// A call spends the limiters of its user and of everybody, or neither of them.
func ExampleAllResult() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	user := client.RateLimiter("{api}:42").WithRate(ratelimiter.Rate{Permits: 1, Interval: time.Hour})
	all := client.RateLimiter("{api}").WithRate(ratelimiter.Rate{Permits: 100, Interval: time.Hour})

	for range 2 {
		r, err := client.TryAcquireAll(context.Background(), 0,
			ratelimiter.Demand{Limiter: user, Permits: 1}, ratelimiter.Demand{Limiter: all, Permits: 1})
		if err != nil {
			panic(err)
		}
		if !r.Granted {
			fmt.Println("rejected by", r.RejectedBy.Name())
		}
	}
	left, _ := all.AvailablePermits(context.Background())
	fmt.Println(left, "left")
	// Output:
	// rejected by {api}:42
	// 99 left
}

// A Hook that logs what somebody on call wants to know.
func ExampleHook() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}), ratelimiter.WithHook(ratelimiter.Hook{
		Request: func(_ context.Context, r ratelimiter.RequestInfo) {
			if r.Operation == ratelimiter.OperationAllow && r.Outcome == ratelimiter.RequestRejected {
				fmt.Println(r.Limiter, "rejected a request of", r.Permits, "with", r.Available, "left")
			}
		},
		Call: func(c ratelimiter.CallInfo) {
			if c.Healed != (ratelimiter.Healed{}) {
				fmt.Println(c.Limiter, "was found broken and was healed")
			}
		},
		Event: func(e ratelimiter.Event) {
			if e.Kind == ratelimiter.OutageBegan {
				fmt.Println("Redis is unavailable:", e.Err)
			}
		},
	}))
	defer client.Close()
	limiter := client.RateLimiter("hooked").WithRate(ratelimiter.Rate{Permits: 3, Interval: time.Hour})
	for range 2 {
		_, _ = limiter.Allow(context.Background(), 2)
	}
	// Output: hooked rejected a request of 2 with 1 left
}

// A process whose connections have the id of its Client in their name. rrl inspect and the page show it as "Go 28d0, orders at 10.0.0.7".
func ExampleClientInfo() {
	id := "28d0c3a1-5b1c-4c11-9e07-2d7b3c1f0a55" // uuid.NewString()
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ClientName: "orders-" + id})
	defer func() { _ = rdb.Close() }()
	client, err := ratelimiter.New(rdb, ratelimiter.WithClientID(id), ratelimiter.WithHook(ratelimiter.Hook{
		Started: func(c ratelimiter.ClientInfo) { fmt.Println("Go", c.Process) },
	}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	// Output: Go 28d0
}

// A platform asks for a pause of a minute: no process gets a permit until then, nor all of them at once after it.
func ExampleRateLimiter_CoolDown() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	ctx := context.Background()
	limiter := client.RateLimiter("platform")
	_ = limiter.SetRate(ctx, ratelimiter.Rate{Permits: 20, Interval: time.Second})

	err := limiter.CoolDown(ctx, time.Now().Add(time.Minute), ratelimiter.Reopen(10*time.Second))
	if err != nil {
		panic(err)
	}
	fmt.Println(limiter.TryAcquire(ctx, 1, 0))
	// Output: false <nil>
}

// A limiter that nobody has given a TTL lives for another day.
func ExampleAdmin_Expire() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	ctx := context.Background()
	limiter := client.RateLimiter("campaign")
	_ = limiter.SetRate(ctx, ratelimiter.Rate{Permits: 100, Interval: time.Minute})

	for range 2 {
		fmt.Println(limiter.Admin().Expire(ctx, 24*time.Hour, ratelimiter.IfNotSet()))
	}
	// Output:
	// true <nil>
	// false <nil>
}

// Each client has two permits an hour for itself.
func ExampleRateType() {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	for _, id := range []string{"node-1", "node-2"} {
		client, err := ratelimiter.New(rdb, ratelimiter.WithClientID(id))
		if err != nil {
			panic(err)
		}
		limiter := client.RateLimiter("nodes").WithRate(ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 2, Interval: time.Hour})
		fmt.Println(limiter.TryAcquire(context.Background(), 2, 0))
		_ = client.Close()
	}
	// Output:
	// true <nil>
	// true <nil>
}

// Who took the permits that are gone, and how many.
func ExampleState() {
	client, _ := ratelimiter.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	defer client.Close()
	ctx := context.Background()
	limiter := client.RateLimiter("inspected").WithRate(ratelimiter.Rate{Permits: 10, Interval: time.Hour})
	_, _ = limiter.TryAcquire(ctx, 3, 0)

	state, err := limiter.Admin().Inspect(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(state.Value, "of", state.Rate.Permits)
	show := func(m ratelimiter.Member) { fmt.Println(m.Permits, "taken by", m.Writers) }
	for _, m := range state.Members {
		show(m)
	}
	// Output:
	// 7 of 10
	// 3 taken by Go
}

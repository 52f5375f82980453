// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
)

// Where there is no net/http, such as behind a queue, Decide decides by keys of the caller's.
func ExampleMiddleware_Decide() {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	defer m.Close()
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: m.Addr()}))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	limit, err := inbound.New(client, "jobs", ratelimiter.PerMinute(2))
	if err != nil {
		panic(err)
	}
	for range 3 {
		d := limit.Decide(context.Background(), 1, "tenant-7")
		fmt.Println(d.Passes(), d.Result.Available, d.RetryAfter)
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}

// Ten requests a second of an address, and of a user a bucket of 100 that gets 1000 an hour: a request has to pass both, and
// one that is rejected spends nothing.
func ExampleNewRules() {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	client, err := ratelimiter.New(rdb)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	users, err := limit.NewShared(rdb, "user", limit.TokenBucket{Rate: ratelimiter.PerHour(1000), Burst: 100})
	if err != nil {
		panic(err)
	}
	limits, err := inbound.NewRules(client, []inbound.Rule{{
		Name: "address",
		Rate: ratelimiter.PerSecond(10),
		Keys: []inbound.KeyFunc{inbound.ByClientAddress(inbound.ClientAddress{})},
	}, {
		Name:       "user",
		Rate:       ratelimiter.PerHour(1000), // what the fields tell
		Keys:       []inbound.KeyFunc{inbound.ByHeader("X-Api-Key")},
		LimiterFor: func(key string) limit.Limiter { return users.For(key) },
	}}, inbound.WithXRateLimit())
	if err != nil {
		panic(err)
	}
	served := limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	response := httptest.NewRecorder()
	served.ServeHTTP(response, httptest.NewRequest("GET", "/", nil))
	fmt.Println(response.Body)
	fmt.Println(response.Header()["Ratelimit"])
	fmt.Println(response.Header().Get("X-RateLimit-Limit"), response.Header().Get("X-RateLimit-Remaining"))
	// Output:
	// served
	// ["address";r=9 "user";r=99]
	// 10 9
}

// A program with a server of its own kind writes the fields and the status of a Decision itself.
func ExampleDecision_Status() {
	pass := func(w http.ResponseWriter, d inbound.Decision) bool {
		for name, values := range d.Header() {
			w.Header()[name] = values
		}
		if !d.Passes() {
			w.WriteHeader(d.Status())
		}
		return d.Passes()
	}
	w := httptest.NewRecorder()
	fmt.Println(pass(w, inbound.Decision{Outcome: inbound.OutcomeRejected, RetryAfter: time.Minute}), w.Code, w.Header())
	// Output: false 429 map[Retry-After:[60]]
}

// Requests that passed because Redis was away are logged, and panics of the functions that the Middleware was given.
func ExampleDecision() {
	logDecision := func(r *http.Request, d inbound.Decision) {
		var panicked *inbound.PanicError
		switch {
		case errors.As(d.Err, &panicked):
			fmt.Println(d.Policy, "has a defect in", panicked.Func)
		case d.Outcome == inbound.OutcomeFailedOpen:
			fmt.Println(r.URL.Path, "passed without a decision of", d.Policy)
		}
	}
	_ = inbound.WithDecisions(logDecision)
	logDecision(httptest.NewRequest("GET", "/orders", nil), inbound.Decision{Policy: "user", Outcome: inbound.OutcomeFailedOpen})
	// Output: /orders passed without a decision of user
}

// A rejection in the form of an API's own errors. Other responses do not have the fields of the limits.
func ExampleWithRejection() {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	defer m.Close()
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: m.Addr()}))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	limits, err := inbound.New(client, "api", ratelimiter.PerHour(1),
		inbound.WithHeadersOnRejection(),
		inbound.WithRejection(func(w http.ResponseWriter, _ *http.Request, d inbound.Decision) {
			w.WriteHeader(d.Status())
			fmt.Fprintf(w, `{"error": "too many requests", "minutes": %.0f}`, d.RetryAfter.Minutes())
		}))
	if err != nil {
		panic(err)
	}
	served := limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	for range 2 {
		w := httptest.NewRecorder()
		served.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 served
	// 429 {"error": "too many requests", "minutes": 60}
}

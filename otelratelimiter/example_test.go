// SPDX-License-Identifier: Apache-2.0

package otelratelimiter_test

import (
	"log"
	"strings"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/otelratelimiter"
	"github.com/redis/go-redis/v9"
)

// Metrics and traces go to the global providers. All limiters of users are one value of the attribute policy.
func ExampleNewHook() {
	hook, err := otelratelimiter.NewHook(otelratelimiter.WithPolicies(func(limiter string) string {
		kind, _, _ := strings.Cut(limiter, ":")
		return kind
	}))
	if err != nil {
		log.Fatal(err)
	}
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), ratelimiter.WithHook(hook))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

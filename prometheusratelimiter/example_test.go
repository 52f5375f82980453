// SPDX-License-Identifier: Apache-2.0

package prometheusratelimiter_test

import (
	"log"
	"strings"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/prometheusratelimiter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// All limiters of users are one value of the label policy. Watch adds what a few limiters have left.
func ExampleNewHook() {
	hook, err := prometheusratelimiter.NewHook(prometheus.DefaultRegisterer, prometheusratelimiter.WithPolicies(func(limiter string) string {
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
	watched, err := prometheusratelimiter.Watch(client, []string{"orders:create"})
	if err != nil {
		log.Fatal(err)
	}
	prometheus.MustRegister(watched)
}

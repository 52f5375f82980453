// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"log"
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/gateway"
	"github.com/redis/go-redis/v9"
)

// A proxy on the loopback for programs in any language: they trust ca.pem, and have HTTPS_PROXY=http://127.0.0.1:8080.
func ExampleNew() {
	client, err := ratelimiter.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ca, err := gateway.LoadCA("ca") // where gateway.CreateCA has made one
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(client, []httplimit.Rule{{
		Match:  httplimit.Match{Hosts: []string{"api.example.com"}},
		Limits: []httplimit.Limit{{Name: "example", Rate: ratelimiter.Rate{Permits: 20, Interval: time.Second}}},
	}}, gateway.WithCA(ca))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", g))
}

// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage_test

import (
	"log"
	"net/http"
	"os"

	"github.com/goredisson/ratelimiter/ratelimiterpage"
	"github.com/redis/go-redis/v9"
)

// The page in a service's own server. Whoever knows the token may look, and nobody may change anything.
func ExampleHandler() {
	page, err := ratelimiterpage.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}),
		ratelimiterpage.WithTitle("production"),
		ratelimiterpage.WithToken(os.Getenv("PAGE_TOKEN")),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/limiters/", page)
	log.Print(http.ListenAndServe("127.0.0.1:8080", mux))
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
)

// newService returns the handler of the API, with its limit and its metrics.
func newService(client *ratelimiter.Client, s settings, log *slog.Logger, metrics http.Handler) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(s.busy)
		fmt.Fprintf(w, "order %q\n", r.PathValue("id"))
	})
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "well") })
	mux.Handle("GET /ready", readiness(client))

	// The proxy in front of this server, which runs on the same machine here. Only what it adds to
	// X-Forwarded-For counts; the rest may be forged.
	clients := inbound.ByClientAddress(inbound.ClientAddress{
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	})
	limit, err := inbound.New(client, s.name, s.rate(),
		inbound.WithKeys(func(r *http.Request) (string, bool) {
			if _, pattern := mux.Handler(r); pattern == "GET /health" || pattern == "GET /ready" || pattern == "GET /metrics" {
				return "", false // not limited
			}
			return clients(r)
		}),
		// Without Redis, requests are rejected. A public page might use ratelimiter.FailOpen() instead.
		inbound.WithOutagePolicy(ratelimiter.FailClosed()),
		inbound.WithFailures(func(r *http.Request, err error) {
			log.Warn("a request could not be decided", "method", r.Method, "pattern", r.Pattern, "error", err)
		}),
	)
	if err != nil {
		return nil, err
	}
	return limit.Handler(mux), nil
}

// readiness returns the handler of the readiness probe. A server is ready once Redis has replied: a wrong address or password
// then ends a rollout. It stays ready in an outage, since the outage policy decides requests, and all servers at once
// would leave the load balancer. The process lives, in the sense of GET /health, in any case.
func readiness(client *ratelimiter.Client) http.Handler {
	var reached atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !reached.Load() {
			if err := client.Ping(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			reached.Store(true)
		}
		fmt.Fprintln(w, "ready")
	})
}

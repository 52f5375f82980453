// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/goredisson/ratelimiter"
)

// A Middleware limits the requests that a server receives. A request takes its permits before the handler runs. If it
// gets none, the response has status 429 (RFC 6585) with Retry-After. If it cannot be decided, because Redis is
// unavailable and the outage policy is closed, the response is 503 with Retry-After.
//
//	m, err := inbound.New(client, "api", ratelimiter.Rate{Permits: 100, Interval: time.Minute},
//		inbound.WithKeys(inbound.ByClientAddress(inbound.ClientAddress{})))
//	if err != nil {
//		return err
//	}
//	return http.ListenAndServe(":8080", m.Handler(mux))
//
// All servers that use the name share the limit, and Java services may share it too. No request waits: a rejected
// request costs one round trip to Redis and takes no permits. [NewRules] combines several limits, such as one per
// second for each address and one per hour for each user, and limiters of other algorithms. You can also nest
// Middlewares; a request that the inner one rejects has taken its permits in the outer one.
//
// The zero value is not usable, and rejects every request with 503; use [New] or [NewRules]. Methods are safe for concurrent use.
type Middleware struct {
	client     *ratelimiter.Client
	rules      []*rule
	cfg        config
	rejections rejections

	toldNoPattern atomic.Bool

	mu   sync.Mutex
	told map[difference]bool // the other rates that the function of WithFailures was told of
}

// Handler returns a handler that calls next for the requests that pass, and responds to the others itself. It panics
// if next is nil.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("inbound: Handler was called with a handler that is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// admit reports whether the request may go on. If not, it has written the response.
func (m *Middleware) admit(w http.ResponseWriter, r *http.Request) bool {
	d := m.DecideRequest(r)
	d.setHeader(w.Header())
	if d.Passes() {
		return true
	}
	if m != nil && m.cfg.rejected != nil {
		m.cfg.rejected(w, r, d)
		return false
	}
	status := d.Status()
	// The problem types are the draft's.
	p := problem{"https://iana.org/assignments/http-problem-types#quota-exceeded", "Too many requests", status, d.violated()}
	if status == http.StatusServiceUnavailable {
		p.Type, p.Title = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "The limit cannot be checked now"
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p) // fails only when nobody listens any more
	return false
}

// violated returns the names of the policies that rejected the request.
func (d *Decision) violated() []string {
	var names []string
	for _, p := range d.parts {
		if p.rejected() {
			names = append(names, policyName(p.rule.Name))
		}
	}
	if len(names) == 0 {
		names = []string{d.Policy}
	}
	return names
}

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
}

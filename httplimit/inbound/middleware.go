// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A Middleware limits the requests that a server gets. A request takes its permits
// before the handler runs. One that gets none gets status 429 (RFC 6585) with Retry-After. One that cannot be decided,
// because of an outage of Redis under a policy that is closed, gets 503 with Retry-After.
//
//	m, err := inbound.New(client, "api", ratelimiter.Rate{Permits: 100, Interval: time.Minute},
//		inbound.WithKeys(inbound.ByClientAddress(inbound.ClientAddress{})))
//	http.ListenAndServe(addr, m.Handler(mux))
//
// The limit is that of all servers that use the name, which Java services may share. Nobody waits: a
// request that is rejected costs one round trip to Redis and spends nothing. [NewRules] has several limits in one, such as
// one a second for each address and one an hour for each user, and limiters of other algorithms. Middlewares can also be
// put around each other; a request that the inner one rejects has spent its permits in the outer.
//
// The zero value is not usable. Its methods are safe for concurrent use.
type Middleware struct {
	client     *ratelimiter.Client
	rules      []*rule
	cfg        config
	rejections rejections

	toldNoPattern atomic.Bool

	mu   sync.Mutex
	told map[difference]bool // the other rates that the function of WithFailures was told of
}

// A Rejection says why a request is rejected.
type Rejection struct {
	// Status is 429, or 503 when nobody could decide.
	Status int
	// Limiter is the limiter's name in Redis. It may tell the client more than it should know.
	Limiter string
	// Policy is the name of the rule that rejects, that of the Middleware where it has one rule, without braces, as in
	// RateLimit-Policy; of several that with the longest wait.
	Policy string
	// RetryAfter is what the header field of that name says, whole seconds; 0 where it says nothing,
	// since the request can never be granted.
	RetryAfter time.Duration
	// Err is the cause of a 503, and of a 429 for more permits than there are or a weight that is not known.
	Err error
}

// Handler returns a handler that calls next for the requests that get their permits.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// admit reports whether the request may go on. Otherwise it has written the response.
func (m *Middleware) admit(w http.ResponseWriter, r *http.Request) bool {
	a := m.DecideRequest(r)
	a.setHeader(w.Header())
	if a.Passes() {
		return true
	}
	status := http.StatusTooManyRequests
	if a.Outcome == OutcomeClosed {
		status = http.StatusServiceUnavailable
	}
	why := Rejection{Status: status, Limiter: a.Limiter, Policy: policyName(a.Policy), RetryAfter: a.RetryAfter, Err: a.Err}
	if m.cfg.rejected != nil {
		m.cfg.rejected(w, r, why)
		return false
	}
	// The problem types are the draft's.
	p := problem{"https://iana.org/assignments/http-problem-types#quota-exceeded", "Too many requests", status, a.violated()}
	if status == http.StatusServiceUnavailable {
		p.Type, p.Title = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "The limit cannot be checked now"
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p) // fails only when nobody listens any more
	return false
}

// violated returns the names of the policies because of which the request does not pass.
func (a *Answer) violated() []string {
	var names []string
	for _, p := range a.parts {
		if p.rejected() {
			names = append(names, policyName(p.rule.Name))
		}
	}
	if len(names) == 0 {
		names = []string{policyName(a.Policy)}
	}
	return names
}

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
}

package inbound

import (
	"encoding/json"
	"net/http"
	"strconv"
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
// request that is rejected costs one round trip to Redis and spends nothing. Several Middlewares can be
// put around each other, for a limit a second and one a day for instance; a request that the inner one
// rejects has spent its permits in the outer.
//
// The zero value is not usable. Its methods are safe for concurrent use.
type Middleware struct {
	client *ratelimiter.Client
	name   string
	policy string // the name as a structured field
	rate   ratelimiter.Rate
	cfg    config

	anyKeepAlive bool // the KeepAlive of rate is the default, and no other one differs from it

	toldNoPattern atomic.Bool

	mu   sync.Mutex
	told map[ratelimiter.Rate]bool // the other rates that the function of WithFailures was told of
}

// A Rejection says why a request is rejected.
type Rejection struct {
	// Status is 429, or 503 when nobody could decide.
	Status int
	// Limiter is the limiter's name in Redis. It may tell the client more than it should know.
	Limiter string
	// Policy is the name of the Middleware without braces, as in RateLimit-Policy.
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
	name, weight, err := m.spends(r)
	var a Answer
	if err != nil {
		a = m.undecided(r.Context(), r, name, err)
	} else {
		a = m.answer(r.Context(), r, name, weight)
	}
	if known := a.Result.Rate.Permits > 0 && a.Result.Rate.Interval > 0; known && m.cfg.headers == HeadersAlways ||
		known && m.cfg.headers == HeadersRejected && !a.Result.Granted {
		setHeaders(w.Header(), m.policy, a.Result.Rate, a.Result.Available, a.Result.Wait)
	}
	a.DryRun = m.cfg.dryRun
	m.decide(r, a.Decision)
	if a.Passes() {
		return true
	}
	status := http.StatusTooManyRequests
	if a.Outcome == OutcomeClosed {
		status = http.StatusServiceUnavailable
	}
	m.reject(w, r, Rejection{Status: status, Limiter: a.Limiter, RetryAfter: a.RetryAfter, Err: a.Err})
	return false
}

func (m *Middleware) reject(w http.ResponseWriter, r *http.Request, why Rejection) {
	why.Policy = policyName(m.name)
	if why.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(why.RetryAfter/time.Second), 10))
	}
	if m.cfg.rejected != nil {
		m.cfg.rejected(w, r, why)
		return
	}
	// The problem types are the draft's.
	p := problem{"https://iana.org/assignments/http-problem-types#quota-exceeded", "Too many requests", why.Status, []string{why.Policy}}
	if why.Status == http.StatusServiceUnavailable {
		p.Type, p.Title = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "The limit cannot be checked now"
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(why.Status)
	_ = json.NewEncoder(w).Encode(p) // fails only when nobody listens any more
}

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
}

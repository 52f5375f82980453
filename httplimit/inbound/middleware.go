package inbound

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/httplimit/internal/rates"
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

type config struct {
	keys     []KeyFunc
	weight   func(*http.Request) int64
	outage   *ratelimiter.OutagePolicy
	headers  Headers
	rejected func(http.ResponseWriter, *http.Request, Rejection)
	failed   func(*http.Request, error)
	decided  func(*http.Request, Decision)
	longest  time.Duration
	known    time.Duration
	dryRun   bool
	hashKey  []byte
	keyed    bool
}

// An Option configures a Middleware.
type Option func(*config)

// WithKeys divides the limit: requests for which all keys are the same share a limiter of their own,
// named by the Middleware and the keys. The default is one limiter for all requests.
func WithKeys(keys ...KeyFunc) Option {
	return func(c *config) { c.keys = append(c.keys, keys...) }
}

// WithWeight sets how many permits a request takes; 0 is a request that is not limited. A request that weighs more
// than the rate has can never be granted, and one of a negative weight, such as an unknown Content-Length, cannot be
// counted: both are rejected with 429 and no Retry-After, whatever the outage policy. The default is one permit.
func WithWeight(weight func(*http.Request) int64) Option {
	return func(c *config) { c.weight = weight }
}

// WithOutagePolicy sets what becomes of requests while Redis is unavailable, and of those that cannot be decided for
// another reason: Redis replied with an error or took too long, or a KeyFunc panicked. Such a request passes under
// ratelimiter.FailOpen, and gets 503 under any other policy. The default is the policy of the Client; see
// [ratelimiter.Client.OutagePolicy].
func WithOutagePolicy(p ratelimiter.OutagePolicy) Option {
	return func(c *config) { c.outage = &p }
}

// WithHeaders says on which responses there are RateLimit and RateLimit-Policy. The default is
// HeadersAlways.
func WithHeaders(h Headers) Option { return func(c *config) { c.headers = h } }

// WithRejection sets what writes the response to a request that is rejected. The header fields are there
// already; f calls WriteHeader with Rejection.Status, or another. It is a handler, whose panics are the server's.
// The default is a problem of RFC 9457 in JSON.
func WithRejection(f func(w http.ResponseWriter, r *http.Request, why Rejection)) Option {
	return func(c *config) { c.rejected = f }
}

// WithFailures sets what is told of errors that are not the client's: those of Redis, for logs and
// alarms, each [*PanicError], and [ErrRateDiffers]. It runs in the request's goroutine. The default is nobody.
func WithFailures(f func(*http.Request, error)) Option {
	return func(c *config) { c.failed = f }
}

// WithDecisionTime bounds how long a request waits for Redis; then it counts as one that cannot be
// decided. It has to be longer than the fifth of a second in which a call is sent again. Requests wait for so long only
// until an outage is known, which takes one second and a half if Redis does not reply in time; then the outage policy
// decides at once. The default is one second.
func WithDecisionTime(d time.Duration) Option {
	return func(c *config) { c.longest = d }
}

// WithCachedRejections sets for how long a rejection is known: until then, as long as permits do not come back by themselves,
// the process rejects requests of the same keys that weigh as much or more without asking Redis. A flood of requests
// that are rejected then costs Redis about one call in each bound from each process. If permits become free early, by a
// release or a new rate of another process, requests may be rejected for bound longer; see
// [ratelimiter.WithCachedRejections]. 0 makes each request ask. The default is one second.
func WithCachedRejections(bound time.Duration) Option {
	return func(c *config) { c.known = bound }
}

// WithDryRun passes every request on. Permits are counted, the header fields are those of a limit, and the function of
// [WithDecisions] is told what the Middleware would have done, with DryRun. The default is to limit.
func WithDryRun() Option { return func(c *config) { c.dryRun = true } }

// WithHashKey keys the hashes of secrets in limiters' names, those of [ByHeader] and [Hash], so that nobody who reads
// Redis can try out secrets that are short or can be guessed. A key has 16 bytes or more, and is the same in all
// servers that share the limit. The default is no key: SHA-256 alone.
func WithHashKey(key []byte) Option {
	return func(c *config) { c.hashKey, c.keyed = slices.Clone(key), true }
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

// New returns a Middleware that limits requests to r by limiters whose names begin with name, which is also that of the
// policy in the header fields, where it has no braces: printable ASCII. Where a limiter has a rate already, that one counts, and the
// function of [WithFailures] is told so by [ErrRateDiffers]. A rate without a KeepAlive gets one of ten minutes or an interval, whichever is longer: without one each
// client that was ever seen would stay in Redis forever.
//
// Errors: ratelimiter.ErrInvalidArgument for a name, a rate or an option that cannot be.
func New(client *ratelimiter.Client, name string, r ratelimiter.Rate, opts ...Option) (*Middleware, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
	}
	m := &Middleware{client: client, name: name, rate: r, cfg: config{longest: time.Second, known: time.Second}}
	for _, o := range opts {
		o(&m.cfg)
	}
	var ok bool
	if m.policy, ok = sfString(policyName(name)); !ok || policyName(name) == "" {
		return nil, bad("a middleware's name is printable ASCII, and not braces alone: %q", name)
	}
	switch {
	case client == nil:
		return nil, bad("the client is nil")
	case m.cfg.keyed && len(m.cfg.hashKey) < keyname.MinKey:
		return nil, bad("WithHashKey: a key of %d bytes is shorter than %d", len(m.cfg.hashKey), keyname.MinKey)
	case m.cfg.longest <= 0:
		return nil, bad("WithDecisionTime: %v is not positive", m.cfg.longest)
	case m.cfg.known < 0:
		return nil, bad("WithCachedRejections: %v is negative", m.cfg.known)
	case m.cfg.headers < HeadersAlways || m.cfg.headers > HeadersNever:
		return nil, bad("WithHeaders: %d is none of HeadersAlways, HeadersRejected and HeadersNever", m.cfg.headers)
	}
	for _, k := range m.cfg.keys {
		if k == nil {
			return nil, bad("WithKeys: a key is nil")
		}
	}
	var faults []error
	rates.Check(r, func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf("rate.%s: %s", field, fmt.Sprintf(format, args...)))
	})
	if len(faults) > 0 {
		return nil, bad("%v", errors.Join(faults...))
	}
	if m.cfg.outage != nil {
		if err := m.cfg.outage.Validate(); err != nil {
			return nil, err
		}
	}
	if r.KeepAlive == 0 {
		m.rate.KeepAlive, m.anyKeepAlive = max(10*time.Minute, r.Interval), true
	}
	return m, nil
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

// An Answer is what [Middleware.Decide] returns.
type Answer struct {
	Decision
	// Result is what the limiter replied: what is left, and the rate. It is zero where the limiter was not asked, or did
	// not reply.
	Result ratelimiter.Result
	// RetryAfter is when the request may come again, in whole seconds; 0 where that is now or never.
	RetryAfter time.Duration
}

// Decide decides as [Middleware.Handler] does, without net/http: for other frameworks, remote procedure calls and queues. The
// request is one of the limiter that the keys together name, such as a client's address; without a key it is one of the limiter
// that has the name of the Middleware. Its weight is as [WithWeight] has it, which is not called, as the KeyFuncs are not. The
// functions of WithFailures and WithDecisions are told with a nil request. ctx bounds the decision, beside WithDecisionTime.
func (m *Middleware) Decide(ctx context.Context, weight int64, keys ...string) Answer {
	name := m.name
	for _, k := range keys {
		name += ":" + keyname.Part(k, true)
	}
	a := m.answer(ctx, nil, name, weight)
	a.DryRun = m.cfg.dryRun
	m.decide(nil, a.Decision)
	return a
}

// answer decides about a request of that weight, which is nil for Decide.
func (m *Middleware) answer(ctx context.Context, r *http.Request, name string, weight int64) Answer {
	if weight == 0 {
		return Answer{Decision: Decision{Outcome: OutcomeUnlimited}}
	}
	if err := checkWeight(weight); err != nil {
		return Answer{Decision: Decision{Outcome: OutcomeRejected, Limiter: name, Err: err}}
	}
	bounded, cancel := context.WithTimeout(ctx, m.cfg.longest)
	defer cancel()
	// A limiter without a rate is new, has expired, or somebody has deleted it. To ask first spares a list of those that
	// have one, and leaves the first word to the outage policy when Redis is unavailable.
	limiter := m.client.RateLimiter(name).CachedRejections(m.cfg.known).WithRate(m.rate)
	if m.cfg.outage != nil {
		limiter = limiter.OnOutage(*m.cfg.outage)
	}
	result, err := limiter.Allow(bounded, weight)
	if err != nil {
		if errors.Is(err, ratelimiter.ErrPermitsExceedRate) && weight <= m.rate.Permits {
			m.tellRate(r, name, ratelimiter.Rate{}, err.Error())
		}
		return m.undecided(ctx, r, name, err)
	}
	if !result.Degraded && result.Rate != m.rate {
		m.compareRate(r, name, result.Rate)
	}
	a := Answer{Decision: Decision{Outcome: OutcomeGranted, Limiter: name, Degraded: result.Degraded}, Result: result}
	if !result.Granted {
		a.Outcome = OutcomeRejected
		a.RetryAfter = time.Duration(min(rates.WholeSeconds(result.Wait), math.MaxInt64/int64(time.Second))) * time.Second
	}
	return a
}

// checkWeight returns an error for a weight that no limiter can grant. Such a request is rejected and not undecided:
// a client whose requests are too heavy, or do not tell how heavy they are, must not get past a limit that fails open.
func checkWeight(weight int64) error {
	switch {
	case weight < 0:
		return fmt.Errorf("%w: the weight of the request is not known (%d)", ratelimiter.ErrInvalidArgument, weight)
	case weight > rates.MaxPermits:
		return fmt.Errorf("%w: a request of weight %d, where no rate has more than %d permits",
			ratelimiter.ErrPermitsExceedRate, weight, int64(rates.MaxPermits))
	}
	return nil
}

// outagePolicy returns the policy of m, or that of the Client if m has none.
func (m *Middleware) outagePolicy() ratelimiter.OutagePolicy {
	if m.cfg.outage != nil {
		return *m.cfg.outage
	}
	return m.client.OutagePolicy()
}

// undecided returns the answer to a request for which Redis gave no decision.
func (m *Middleware) undecided(ctx context.Context, r *http.Request, name string, err error) Answer {
	a := Answer{Decision: Decision{Outcome: OutcomeClosed, Limiter: name, Err: err}, RetryAfter: time.Second}
	if errors.Is(err, ratelimiter.ErrPermitsExceedRate) {
		a.Outcome, a.RetryAfter = OutcomeRejected, 0
		return a
	}
	if ctx.Err() == nil {
		m.fail(r, err)
		if m.outagePolicy() == ratelimiter.FailOpen() {
			a.Outcome, a.RetryAfter = OutcomeOpen, 0
		}
	}
	return a
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

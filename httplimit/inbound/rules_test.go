// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func (w *world) withRules(rules []Rule, opts ...Option) *Middleware {
	w.t.Helper()
	m, err := NewRules(w.client, rules, opts...)
	require.NoError(w.t, err)
	return m
}

// shared returns a Rule.LimiterFor of a limiter in Redis.
func (w *world) shared(name string, a limit.Algorithm) func(string) limit.Limiter {
	w.t.Helper()
	var opts []limit.Option
	if !redistest.TTLsAreVirtual() {
		opts = append(opts, limit.WithClientClock())
	}
	l, err := limit.NewShared(w.rdb, name, a, opts...)
	require.NoError(w.t, err)
	return func(key string) limit.Limiter { return l.For(key) }
}

// available returns how many permits the RRateLimiter of that name has left.
func (w *world) available(name string) int64 {
	w.t.Helper()
	n, err := w.client.RateLimiter(name).AvailablePermits(w.t.Context())
	require.NoError(w.t, err)
	return n
}

// A fakeLimiter says what it is told to.
type fakeLimiter struct {
	peek, allow ratelimiter.Result
	err         error
	taken       int64
}

func (f *fakeLimiter) Peek(context.Context, int64) (ratelimiter.Result, error) { return f.peek, f.err }
func (f *fakeLimiter) Allow(_ context.Context, n int64) (ratelimiter.Result, error) {
	if f.allow.Granted {
		f.taken += n
	}
	return f.allow, f.err
}
func (f *fakeLimiter) of(string) limit.Limiter { return f }

// TestRulesAnswer shows two limits a request, of an address and of a user, step by step: each has its items in the fields, and a
// request that one of them rejects takes nothing of the other. It is the same whichever algorithms they have.
func TestRulesAnswer(t *testing.T) {
	address := ratelimiter.Rate{Permits: 2, Interval: 10 * time.Second}
	user := ratelimiter.Rate{Permits: 3, Interval: time.Hour}
	shared := func(w *world, name string, r ratelimiter.Rate) func(string) limit.Limiter {
		return w.shared(w.key+name, limit.SlidingLog{Rate: ratelimiter.Rate{Permits: r.Permits, Interval: r.Interval}})
	}
	none := func(*world, string, ratelimiter.Rate) func(string) limit.Limiter { return nil }
	for name, of := range map[string][2]func(*world, string, ratelimiter.Rate) func(string) limit.Limiter{
		"RRateLimiters": {none, none}, "limit": {shared, shared}, "both": {shared, none}, "both, turned round": {none, shared},
	} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			a, u := w.key+"-a", w.key+"-u"
			h := w.withRules([]Rule{
				{Name: a, Rate: address, Keys: []KeyFunc{ByClientAddress(ClientAddress{})}, LimiterFor: of[0](w, "-a", address)},
				{Name: u, Rate: user, Keys: []KeyFunc{func(r *http.Request) (string, bool) {
					user := r.Header.Get("X-User")
					return user, user != ""
				}}, LimiterFor: of[1](w, "-u", user)},
			}, WithXRateLimit()).Handler(answers)
			policies := []string{fmt.Sprintf("%q;q=2;w=10", a), fmt.Sprintf("%q;q=3;w=3600", u)}
			for i, c := range []struct {
				after                 time.Duration
				addr, user            string
				status                int
				limits                string // of RateLimit: the rest of each item
				x, retry, xReset, bad string
			}{
				{0, "1.1.1.1:1", "ann", 200, "r=1 r=2", "2 1", "", "10", ""},
				{0, "1.1.1.1:1", "ann", 200, "r=0 r=1", "2 0", "", "10", ""},
				{0, "1.1.1.1:1", "ann", 429, "r=0;t=10 r=1", "2 0", "10", "10", a},
				{0, "2.2.2.2:1", "ann", 200, "r=1 r=0", "3 0", "", "3600", ""}, // the rejected one took nothing of the user's
				{time.Second, "2.2.2.2:1", "ann", 429, "r=1 r=0;t=3599", "3 0", "3599", "3599", u},
				{0, "2.2.2.2:1", "bob", 200, "r=0 r=2", "2 0", "", "10", ""}, // nor of the address's
				{time.Second, "1.1.1.1:1", "bob", 429, "r=0;t=8 r=2", "2 0", "8", "8", a},
				{0, "3.3.3.3:1", "", 200, "r=1", "2 1", "", "10", ""}, // no user, no limit of one
			} {
				time.Sleep(c.after)
				r := ask(h, c.addr, "/", "X-User", c.user)
				require.Equal(t, c.status, r.Code, i)
				require.Equal(t, c.retry, r.Header().Get("Retry-After"), i)
				var got []string
				for j, item := range r.Header()["Ratelimit"] {
					rest, ok := strings.CutPrefix(item, fmt.Sprintf("%q;", []string{a, u}[j]))
					require.True(t, ok, item)
					got = append(got, rest)
				}
				require.Equal(t, c.limits, strings.Join(got, " "), i)
				require.Equal(t, policies[:len(got)], r.Header()["Ratelimit-Policy"], i)
				require.Equal(t, c.x, r.Header().Get("X-RateLimit-Limit")+" "+r.Header().Get("X-RateLimit-Remaining"), i)
				require.Equal(t, c.xReset, r.Header().Get("X-RateLimit-Reset"), i)
				if c.bad != "" {
					var p problem
					require.NoError(t, json.Unmarshal(r.Body.Bytes(), &p))
					require.Equal(t, []string{c.bad}, p.Violated)
				}
			}
		})
	}
}

// TestRulesTakeAllOrNothing: what looked free and is taken by others meanwhile gives back what was granted, and no more.
func TestRulesTakeAllOrNothing(t *testing.T) {
	yes, no := ratelimiter.Result{Granted: true, Available: 5}, ratelimiter.Result{Wait: 3 * time.Second}
	rate := ratelimiter.Rate{Permits: 5, Interval: time.Minute}
	for name, c := range map[string]struct {
		first, second fakeLimiter
		outage        ratelimiter.OutagePolicy
		outcome       Outcome
		left, taken   int64 // of the RRateLimiter, and of the first
	}{
		"granted":                   {fakeLimiter{peek: yes, allow: yes}, fakeLimiter{peek: yes, allow: yes}, ratelimiter.FailClosed(), OutcomeGranted, 3, 2},
		"a look rejects":            {fakeLimiter{peek: yes, allow: yes}, fakeLimiter{peek: no, allow: yes}, ratelimiter.FailClosed(), OutcomeRejected, 5, 0},
		"the first is overtaken":    {fakeLimiter{peek: yes, allow: no}, fakeLimiter{peek: yes, allow: yes}, ratelimiter.FailClosed(), OutcomeRejected, 5, 0},
		"the second is overtaken":   {fakeLimiter{peek: yes, allow: yes}, fakeLimiter{peek: yes, allow: no}, ratelimiter.FailClosed(), OutcomeRejected, 5, 2},
		"one fails, closed":         {fakeLimiter{err: errFake}, fakeLimiter{peek: yes, allow: yes}, ratelimiter.FailClosed(), OutcomeFailedClosed, 5, 0},
		"one fails, open":           {fakeLimiter{err: errFake}, fakeLimiter{peek: yes, allow: yes}, ratelimiter.FailOpen(), OutcomeFailedOpen, 5, 0},
		"one is not sent, open":     {fakeLimiter{err: ratelimiter.ErrOverloaded}, fakeLimiter{peek: yes, allow: yes}, ratelimiter.FailOpen(), OutcomeFailedClosed, 5, 0},
		"one fails, one rejects":    {fakeLimiter{err: errFake}, fakeLimiter{peek: no}, ratelimiter.FailOpen(), OutcomeRejected, 5, 0},
		"more than there ever are":  {fakeLimiter{err: ratelimiter.ErrPermitsExceedRate}, fakeLimiter{peek: yes}, ratelimiter.FailOpen(), OutcomeRejected, 5, 0},
		"both reject: the longest":  {fakeLimiter{peek: ratelimiter.Result{Wait: time.Second}}, fakeLimiter{peek: no}, ratelimiter.FailClosed(), OutcomeRejected, 5, 0},
		"both reject, turned round": {fakeLimiter{peek: no}, fakeLimiter{peek: ratelimiter.Result{Wait: time.Second}}, ratelimiter.FailClosed(), OutcomeRejected, 5, 0},
	} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			m := w.withRules([]Rule{{Name: w.key, Rate: rate}, {Name: "1", LimiterFor: c.first.of}, {Name: "2", LimiterFor: c.second.of}}, WithOutagePolicy(c.outage))
			require.NoError(t, w.client.RateLimiter(w.key).SetRate(t.Context(), m.rules[0].Rate))
			a := m.Decide(t.Context(), 2)
			require.Equal(t, c.outcome, a.Outcome)
			if a.Outcome == OutcomeRejected && a.Err == nil {
				require.Equal(t, 3*time.Second, a.RetryAfter)
			}
			require.Equal(t, c.left, w.available(w.key))
			require.Equal(t, c.taken, c.first.taken)
		})
	}
}

var errFake = fmt.Errorf("a limiter of one's own fails")

// TestRulesCacheRejections: a flood of requests that are rejected asks once a second, and of no more than it may.
func TestRulesCacheRejections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := &gate{}
		g.before(w.rdb)
		m := w.withRules([]Rule{{Name: w.key, Rate: ratelimiter.Rate{Permits: 2, Interval: time.Minute}},
			{Name: w.key + "-b", Rate: ratelimiter.Rate{Permits: 9, Interval: time.Minute}}})
		require.True(t, m.Decide(t.Context(), 1).Passes())
		require.Equal(t, OutcomeRejected, m.Decide(t.Context(), 2).Outcome)
		time.Sleep(10 * time.Millisecond) // what the decision leaves to be sent is sent
		sent := g.sent.Load()
		for range 98 { // within a second of the rejection
			time.Sleep(10 * time.Millisecond)
			a := m.Decide(t.Context(), 2)
			require.Equal(t, OutcomeRejected, a.Outcome)
			require.Equal(t, w.key, a.Limiter)
		}
		require.Equal(t, sent, g.sent.Load())
		require.Zero(t, m.Decide(t.Context(), 3).RetryAfter, "never, and not in a minute")
		require.True(t, m.Decide(t.Context(), 1).Passes(), "a lighter one is asked for")
		time.Sleep(time.Minute)
		require.True(t, m.Decide(t.Context(), 1).Passes())
	})
}

// TestRulesWithoutRedis: the outage policy decides about several RRateLimiters as about one.
func TestRulesWithoutRedis(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
	for name, c := range map[string]struct {
		policy   ratelimiter.OutagePolicy
		outcomes []Outcome
	}{
		"closed": {ratelimiter.FailClosed(), []Outcome{OutcomeFailedClosed, OutcomeFailedClosed, OutcomeFailedClosed}},
		"open":   {ratelimiter.FailOpen(), []Outcome{OutcomeGranted, OutcomeGranted, OutcomeGranted}},
		"local":  {ratelimiter.LocalQuota(rate, 2), []Outcome{OutcomeGranted, OutcomeGranted, OutcomeRejected}},
	} {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			g := &gate{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
			g.before(w.rdb)
			m := w.withRules([]Rule{{Name: w.key, Rate: rate}, {Name: w.key + "-b", Rate: rate}}, WithOutagePolicy(c.policy))
			require.True(t, m.Decide(t.Context(), 1).Passes())
			g.down.Store(true)
			m.Decide(t.Context(), 1)
			time.Sleep(time.Second)
			for _, want := range c.outcomes {
				require.Equal(t, want, m.Decide(t.Context(), 1).Outcome)
			}
		})
	}
}

// TestRuleOfItsOwn: each rule takes its own weight, and the fields have the numbers of the tenant's limiter.
func TestRuleOfItsOwn(t *testing.T) {
	requests := redistest.Must(limit.NewLocal(limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 10, Interval: time.Minute}}))(t)
	tenants := map[string]limit.Limiter{
		"small": redistest.Must(limit.NewLocal(limit.GCRA{Rate: ratelimiter.Rate{Permits: 100, Interval: time.Second}, Burst: 200}))(t),
		"large": redistest.Must(limit.NewLocal(limit.CalendarQuota{Permits: 1000, Per: limit.Month, Location: time.UTC}))(t),
	}
	m := redistest.Must(NewRules(nil, []Rule{
		{Name: "requests", LimiterFor: func(string) limit.Limiter { return requests }},
		{Name: "bytes", Keys: []KeyFunc{func(r *http.Request) (string, bool) { return r.Header.Get("X-Tenant"), true }},
			Weight:     func(r *http.Request) int64 { return r.ContentLength },
			LimiterFor: func(tenant string) limit.Limiter { return tenants[tenant] }},
	}, WithWeight(func(*http.Request) int64 { return 2 })))(t)
	decide := func(tenant, body string) http.Header {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("X-Tenant", tenant)
		return m.DecideRequest(r).Header()
	}
	require.Equal(t, http.Header{"Ratelimit-Policy": {`"requests";q=10;w=60`, `"bytes";q=100;w=1`}, "Ratelimit": {`"requests";r=8`, `"bytes";r=50`}},
		decide("small", strings.Repeat("x", 150)))
	require.Equal(t, http.Header{"Ratelimit-Policy": {`"requests";q=10;w=60`, `"bytes";q=1000`}, "Ratelimit": {`"requests";r=6`, `"bytes";r=850`}},
		decide("large", strings.Repeat("x", 150)))
	require.Equal(t, http.Header{"Ratelimit-Policy": {`"requests";q=10;w=60`}, "Ratelimit": {`"requests";r=4`}}, decide("small", ""), "a rule of weight 0")
	panics := redistest.Must(NewRules(nil, []Rule{{Name: "x", Weight: func(*http.Request) int64 { panic("heavy") }, LimiterFor: func(string) limit.Limiter { return requests }}}))(t)
	a := panics.DecideRequest(httptest.NewRequest("GET", "/", nil))
	require.Equal(t, OutcomeFailedClosed, a.Outcome)
	require.ErrorContains(t, a.Err, "Rule.Weight panicked: heavy")
}

// TestHeavierAsksAgain: a request is not told the wait of a lighter one that was rejected, which would come back too early.
func TestHeavierAsksAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, rules := range [][]Rule{
			{{Name: w.key, Rate: ratelimiter.Rate{Permits: 3, Interval: time.Minute}}},
			{{Name: w.key + "-a", Rate: ratelimiter.Rate{Permits: 3, Interval: time.Minute}}, {Name: w.key + "-b", Rate: ratelimiter.Rate{Permits: 99, Interval: time.Minute}}},
		} {
			m := w.withRules(rules)
			require.True(t, m.Decide(t.Context(), 1).Passes())
			time.Sleep(30 * time.Second)
			require.True(t, m.Decide(t.Context(), 2).Passes())
			require.Equal(t, 30*time.Second, m.Decide(t.Context(), 1).RetryAfter)
			require.Equal(t, time.Minute, m.Decide(t.Context(), 2).RetryAfter)
			require.Equal(t, 30*time.Second, m.Decide(t.Context(), 1).RetryAfter)
		}
	})
}

// TestAnyLimiter: one rule of another algorithm, with a rate for the fields and without, and limiters that fail.
func TestAnyLimiter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bucket := w.shared(w.key, limit.TokenBucket{Rate: ratelimiter.Rate{Permits: 1, Interval: time.Second}, Burst: 2})
		rate := ratelimiter.Rate{Permits: 1, Interval: time.Second}
		var keys []string
		for _, c := range []struct {
			rate   ratelimiter.Rate
			policy string
			after  time.Duration
			status int
			x      string
		}{
			{rate, fmt.Sprintf("%q;q=1;w=1", w.key), 0, 200, "1 1 1"},
			{ratelimiter.Rate{}, fmt.Sprintf("%q;q=1;w=1", w.key), 0, 200, "1 0 2"},
			{rate, fmt.Sprintf("%q;q=1;w=1", w.key), 0, 429, "1 0 1"},
			{rate, fmt.Sprintf("%q;q=1;w=1", w.key), time.Second, 200, "1 0 2"},
		} {
			time.Sleep(c.after)
			m, err := NewRules(nil, []Rule{{Name: w.key, Rate: c.rate, LimiterFor: func(key string) limit.Limiter {
				keys = append(keys, key)
				return bucket(key)
			}}}, WithXRateLimit(), WithKeys(ByClientAddress(ClientAddress{}), ByHeader("X-User")))
			require.NoError(t, err)
			a := ask(m.Handler(answers), "1.1.1.1:1", "/")
			require.Equal(t, c.status, a.Code)
			require.Equal(t, c.policy, a.Header().Get("RateLimit-Policy"))
			require.Contains(t, a.Header().Get("RateLimit"), fmt.Sprintf("%q;r=", w.key))
			require.Equal(t, c.x, a.Header().Get("X-RateLimit-Limit")+" "+a.Header().Get("X-RateLimit-Remaining")+" "+a.Header().Get("X-RateLimit-Reset"))
			require.Equal(t, c.status == 429, a.Header().Get("Retry-After") == "1")
		}
		require.Equal(t, "1.1.1.1:none", keys[0])

		for name, bad := range map[string]func(string) limit.Limiter{
			"nil": func(string) limit.Limiter { return nil }, "panics": func(string) limit.Limiter { panic("no limiter") },
			"its limiter panics": func(string) limit.Limiter { return (*fakeLimiter)(nil) }, "fails": (&fakeLimiter{err: errFake}).of,
		} {
			var failures []error
			m := redistest.Must(NewRules(nil, []Rule{{Name: "x", LimiterFor: bad}}, WithFailures(func(_ *http.Request, err error) { failures = append(failures, err) })))(t)
			a := ask(m.Handler(answers), "1.1.1.1:1", "/")
			require.Equal(t, 503, a.Code, name)
			require.Empty(t, a.Header().Get("RateLimit"))
			require.Len(t, failures, 1, name)
		}
	})
}

// TestXRateLimitReset checks the whole seconds of X-RateLimit-Reset: 0 for a limiter that is as if it had never been used, and otherwise rounded
// up; of a rejection those after which the request passes.
func TestXRateLimitReset(t *testing.T) {
	for want, results := range map[string][]ratelimiter.Result{
		"0": {{Granted: true, Available: 5}},
		"1": {{Granted: true, Reset: time.Nanosecond}, {Granted: true, Reset: time.Second}, {Wait: time.Microsecond, Reset: time.Hour}},
		"2": {{Granted: true, Reset: time.Second + time.Microsecond}, {Wait: 2 * time.Second, Reset: time.Hour}},
	} {
		for _, r := range results {
			m := redistest.Must(NewRules(nil, []Rule{{Name: "x", LimiterFor: (&fakeLimiter{peek: r, allow: r}).of}}, WithXRateLimit()))(t)
			a := ask(m.Handler(answers), "1.1.1.1:1", "/")
			require.Equal(t, r.Granted, a.Code == 200)
			require.Equal(t, want, a.Header().Get("X-RateLimit-Reset"), "%+v", r)
		}
	}
}

// TestDecideRequest: it is what the Handler decides, and Decision.Header what it sets.
func TestDecideRequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.middleware(ratelimiter.Rate{Permits: 2, Interval: time.Minute}, WithKeys(ByHeader("X-User")), WithWeight(func(r *http.Request) int64 {
			return r.ContentLength
		}))
		r := httptest.NewRequest("POST", "/", strings.NewReader("ab"))
		require.Equal(t, http.Header{"Ratelimit": {fmt.Sprintf("%q;r=0", w.key)}, "Ratelimit-Policy": {fmt.Sprintf("%q;q=2;w=60", w.key)}}, m.DecideRequest(r).Header())
		a := m.DecideRequest(r)
		require.Equal(t, OutcomeRejected, a.Outcome)
		h := ask(m.Handler(answers), "1.1.1.1:1", "/") // of no known length
		require.Equal(t, 200, h.Code)
		require.Equal(t, "60", a.Header().Get("Retry-After"))
		require.Equal(t, fmt.Sprintf("%q;r=0;t=60", w.key), a.Header().Get("RateLimit"))
		require.Empty(t, Decision{}.Header())
	})
}

// TestRuleErrors: what cannot be is told before anything is sent, with the rule's place.
func TestRuleErrors(t *testing.T) {
	client := clienttest.New(t, redis.NewClient(&redis.Options{}))
	defer client.Close()
	rate := ratelimiter.Rate{Permits: 1, Interval: time.Second}
	ok, fake := Rule{Name: "a", Rate: rate}, (&fakeLimiter{}).of
	for want, c := range map[string]struct {
		client *ratelimiter.Client
		rules  []Rule
	}{
		"0 rules, where":            {client, nil},
		"65 rules, where":           {client, make([]Rule, 65)},
		"rules[1]: another rule is": {client, []Rule{ok, ok}},
		`rules[1]: another rule is named "a", too, without`: {client, []Rule{ok, {Name: "{a}", Rate: rate}}},
		"rules[1]: a key of Keys is nil":                    {client, []Rule{ok, {Name: "b", Rate: rate, Keys: []KeyFunc{nil}}}},
		"rules[1]: rate.permits: 0 is":                      {client, []Rule{ok, {Name: "b"}}},
		"rules[0]: rate.interval: 0s is":                    {client, []Rule{{Name: "b", LimiterFor: fake, Rate: ratelimiter.Rate{Permits: 1}}, ok}},
		"rules[1]: a middleware's name":                     {client, []Rule{ok, {Name: "{}", LimiterFor: fake}}},
		"rules[1]: the client is nil":                       {nil, []Rule{{Name: "b", LimiterFor: fake}, ok}},
	} {
		_, err := NewRules(c.client, c.rules)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, want)
		require.ErrorContains(t, err, want)
	}
}

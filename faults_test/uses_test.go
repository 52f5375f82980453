// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
)

// A use is how one process uses its limiters while something breaks. The uses of a fault are chosen by [planned].
type use struct {
	call    callKind
	callers int
	idle    int           // connections of the pool to each server, before the fault
	time    time.Duration // of each call
	policy  string
	client  string
}

func (u use) String() string {
	return fmt.Sprintf("%s of %d in %v, %s, %d idle connections of a %s", u.call.name, u.callers, u.time, u.policy, u.idle, u.client)
}

// The values of a use, beside the kinds of call.
var (
	idles        = []int{1, 4, 12, 20, 60, 100}
	callerCounts = []int{1, 8}
	times        = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}
	policyNames  = []string{"FailClosed", "FailOpen", "LocalQuota"}
	clients      = []string{"Client", "Ring", "Cluster", "failover client"}
)

// quota is what a process may grant under LocalQuota.
var quota = rate(50, 500*time.Millisecond)

func policyOf(name string) ratelimiter.OutagePolicy {
	switch name {
	case "FailOpen":
		return ratelimiter.FailOpen()
	case "LocalQuota":
		return ratelimiter.LocalQuota(quota, 1)
	}
	return ratelimiter.FailClosed()
}

// A callKind is a kind of call.
type callKind struct {
	name  string
	waits bool // it may wait for the end of an outage
	looks bool // it takes nothing, so that no policy grants it
	crowd bool // it has 40 callers where others have 8
	make  func(u *using) func(ctx context.Context) error
}

var errRejected = errors.New("rejected, at a rate that is never used up")

func granted(ok bool, err error) error {
	if err == nil && !ok {
		return errRejected
	}
	return err
}

// of makes a kind's make of a call of the limiter.
func of(f func(ctx context.Context, u *using, l *ratelimiter.RateLimiter) error) func(u *using) func(context.Context) error {
	return func(u *using) func(context.Context) error {
		l := u.c.RateLimiter(slot + "uses").WithRate(rate(ample, time.Hour))
		return func(ctx context.Context) error { return f(ctx, u, l) }
	}
}

// ofLimit is of for a limiter of package limit.
func ofLimit(f func(ctx context.Context, u *using, l *limit.Shared) error) func(u *using) func(context.Context) error {
	return func(u *using) func(context.Context) error {
		a := limit.GCRA{Rate: rate(ample, time.Second), Burst: ample}
		l := redistest.Must(limit.NewShared(u.rdb, strings.Trim(slot, "{}"), a, limit.WithOutagePolicy(policyOf(u.policy)), limit.WithHook(u.hook())))(u.f)
		return func(ctx context.Context) error { return f(ctx, u, l) }
	}
}

// ofInbound is of for a middleware with so many rules.
func ofInbound(rules int) func(u *using) func(context.Context) error {
	return func(u *using) func(context.Context) error {
		var list []inbound.Rule
		for i := range rules {
			list = append(list, inbound.Rule{Name: fmt.Sprint(slot, "inbound", i), Rate: rate(ample, time.Hour)})
		}
		u.time = max(u.time, 250*time.Millisecond) // it does not take less
		m := redistest.Must(inbound.NewRules(u.c, list, inbound.WithDecisionTime(u.time), inbound.WithOutagePolicy(policyOf(u.policy))))(u.f)
		return func(ctx context.Context) error {
			d := m.DecideRequest(httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			if d.Degraded || d.Outcome == inbound.OutcomeFailedOpen {
				ctx.Value(byPolicy{}).(*atomic.Bool).Store(true)
			}
			if d.Passes() {
				return nil
			}
			return granted(false, d.Err)
		}
	}
}

// platform is a platform whose every response is 200.
type platform struct{}

func (platform) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r, Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}, nil
}

func (u *using) rules() []httplimit.Rule {
	return []httplimit.Rule{{
		Match:  httplimit.Match{Patterns: []string{"api.example.com/"}},
		Limits: []httplimit.Limit{{Name: strings.Trim(slot, "{}"), Rate: rate(ample, time.Hour)}},
	}}
}

// slot is a hash tag of a cluster's first master.
const slot = "{06S}"

var kinds = []callKind{
	{name: "Allow", make: of(func(ctx context.Context, _ *using, l *ratelimiter.RateLimiter) error {
		r, err := l.Allow(ctx, 1)
		return granted(r.Granted, err)
	})},
	{name: "TryAcquire", waits: true, crowd: true, make: of(func(ctx context.Context, u *using, l *ratelimiter.RateLimiter) error {
		ok, err := l.TryAcquire(context.WithoutCancel(ctx), 1, u.time)
		if err == nil && !ok {
			return context.DeadlineExceeded
		}
		return err
	})},
	{name: "Acquire", waits: true, crowd: true, make: of(func(ctx context.Context, _ *using, l *ratelimiter.RateLimiter) error { return l.Acquire(ctx, 1) })},
	{name: "AcquireAll", waits: true, make: of(func(ctx context.Context, u *using, l *ratelimiter.RateLimiter) error {
		other := u.c.RateLimiter(slot + "other").WithRate(rate(ample, time.Hour))
		return u.c.AcquireAll(ctx, ratelimiter.Demand{Limiter: l, Permits: 1}, ratelimiter.Demand{Limiter: other, Permits: 1})
	})},
	{name: "Peek", looks: true, make: of(func(ctx context.Context, _ *using, l *ratelimiter.RateLimiter) error {
		r, err := l.Peek(ctx, 1)
		return granted(r.Granted, err)
	})},
	{name: "AllowAtMost", make: of(func(ctx context.Context, _ *using, l *ratelimiter.RateLimiter) error {
		n, _, err := l.AllowAtMost(ctx, 1)
		return granted(n == 1, err)
	})},
	{name: "AvailablePermits", looks: true, make: of(func(ctx context.Context, _ *using, l *ratelimiter.RateLimiter) error {
		return errOf(l.AvailablePermits(ctx))
	})},
	{name: "Rate", looks: true, make: of(func(ctx context.Context, _ *using, l *ratelimiter.RateLimiter) error { return errOf(l.Rate(ctx)) })},
	{name: "limit's Allow", make: ofLimit(func(ctx context.Context, _ *using, l *limit.Shared) error {
		r, err := l.Allow(ctx, 1)
		return granted(r.Granted, err)
	})},
	{name: "limit.Wait", waits: true, make: ofLimit(func(ctx context.Context, _ *using, l *limit.Shared) error { return limit.Wait(ctx, l, 1) })},
	{name: "limit's Reserve", make: ofLimit(func(ctx context.Context, u *using, l *limit.Shared) error {
		r, err := l.Reserve(ctx, 1, u.time)
		return granted(r.Granted, err)
	})},
	{name: "inbound", make: ofInbound(1)},
	{name: "inbound with two rules", make: ofInbound(2)},
	{name: "Transport", waits: true, make: func(u *using) func(context.Context) error {
		t := redistest.Must(httplimit.New(u.c, httplimit.WithRules(u.rules()...), httplimit.WithBase(platform{})))(u.f)
		return func(ctx context.Context) error {
			resp, err := t.RoundTrip(httptest.NewRequest("GET", "https://api.example.com/", nil).WithContext(ctx))
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
	}},
	{name: "gateway", waits: true, make: func(u *using) func(context.Context) error {
		g := redistest.Must(gateway.New(u.c, u.rules(), gateway.WithBase(platform{}), gateway.WithMaxWait(u.time)))(u.f)
		return func(ctx context.Context) error {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest("GET", "/api.example.com/", nil).WithContext(context.WithoutCancel(ctx)))
			if w.Code != 200 {
				return fmt.Errorf("status %d: %s", w.Code, w.Body)
			}
			return nil
		}
	}},
}

// byPolicy is the key of the *atomic.Bool in a call's context that is set if a policy decided.
type byPolicy struct{}

// A using is a use with its own redis client, whose calls are recorded.
type using struct {
	use
	f    *fault
	rdb  redis.UniversalClient
	c    *ratelimiter.Client
	call func(ctx context.Context) error

	mu     sync.Mutex
	calls  []made
	events []ratelimiter.Event

	running sync.WaitGroup
	stop    atomic.Bool
}

// A made is a call that was made.
type made struct {
	by         int // which caller
	begin, end time.Time
	degraded   bool
	err        error
}

func (m made) took() time.Duration { return m.end.Sub(m.begin) }
func (m made) served() bool        { return m.err == nil && !m.degraded }

// newUsing makes a first call, which opens a connection, and then the idle connections.
func newUsing(f *fault, u use, rdb redis.UniversalClient) *using {
	f.Helper()
	x := &using{use: u, f: f, rdb: rdb}
	f.Cleanup(func() { _ = rdb.Close() })
	x.c = clienttest.New(f, rdb, ratelimiter.WithOutagePolicy(policyOf(u.policy)), ratelimiter.WithHook(x.hook()))
	f.Cleanup(func() { x.end(); _ = x.c.Close() })
	x.call = u.call.make(x)
	return x
}

// warm makes a call of the use, which has to be served, and fills the pool.
func (x *using) warm() {
	x.f.Helper()
	x.f.soon(fmt.Sprint("the first call of ", x.use), func() bool { return x.one(0).served() }) // which has to connect, in little time
	fill(x.f, x.rdb, x.idle)
	x.mu.Lock()
	x.calls = nil
	x.mu.Unlock()
}

func (x *using) hook() ratelimiter.Hook {
	return ratelimiter.Hook{
		Request: func(ctx context.Context, r ratelimiter.RequestInfo) {
			if by, _ := ctx.Value(byPolicy{}).(*atomic.Bool); by != nil && r.Degraded {
				by.Store(true)
			}
		},
		Event: func(e ratelimiter.Event) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.events = append(x.events, e)
		},
	}
}

// one makes a call.
func (x *using) one(by int) made {
	var decided atomic.Bool
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), byPolicy{}, &decided), x.time)
	defer cancel()
	m := made{by: by, begin: time.Now()}
	m.err = x.call(ctx)
	m.end, m.degraded = time.Now(), decided.Load()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls = append(x.calls, m)
	return m
}

// start has the callers make calls, until end.
func (x *using) start() {
	pause := 20 * time.Millisecond
	if x.n() > 8 {
		pause = 100 * time.Millisecond
	}
	for i := range x.n() {
		x.running.Go(func() {
			for !x.stop.Load() {
				x.one(i)
				time.Sleep(pause)
			}
		})
	}
}

// end ends the callers after the call that each is in.
func (x *using) end() {
	x.stop.Store(true)
	x.running.Wait()
}

// since returns the calls that began after t.
func (x *using) since(t time.Time) (list []made) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.calls {
		if m.begin.After(t) {
			list = append(list, m)
		}
	}
	return list
}

// firstAfter returns how long after t a caller was first served by Redis.
func (x *using) firstAfter(t time.Time) (first time.Duration, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.calls {
		if d := m.end.Sub(t); d > 0 && m.served() && (!ok || d < first) {
			first, ok = d, true
		}
	}
	return first, ok
}

// outages returns the outages that began and that ended.
func (x *using) outages() (began, ended []ratelimiter.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.events {
		switch e.Kind {
		case ratelimiter.OutageBegan:
			began = append(began, e)
		case ratelimiter.OutageEnded:
			ended = append(ended, e)
		}
	}
	return began, ended
}

// fill leaves at least n idle connections to each server.
func fill(f *fault, rdb redis.UniversalClient, n int) {
	f.Helper()
	ctx := context.Background()
	one := func(ctx context.Context, c *redis.Client) error {
		var conns []*redis.Conn
		for range n {
			conn := c.Conn()
			if err := conn.Ping(ctx).Err(); err != nil {
				return err
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			if err := conn.Close(); err != nil {
				return err
			}
		}
		return nil
	}
	switch c := rdb.(type) {
	case *redis.Client:
		require.NoError(f, one(ctx, c))
	case *redis.ClusterClient:
		require.NoError(f, c.ForEachMaster(ctx, one))
	case *redis.Ring:
		require.NoError(f, c.ForEachShard(ctx, one))
	}
}

// planned returns the uses of each fault: one of each kind of call. What else a use has is chosen so that all pairs of values
// come together that can, also those of a value and a fault, in as many rows as there are. allowed reports whether a fault can
// have a use.
func planned(faults []string, allowed func(fault string, u use) bool) map[string][]use {
	type pair [4]int
	seen, plan := map[pair]bool{}, map[string][]use{}
	for i, fault := range faults {
		for j, k := range kinds {
			var best use
			var values [7]int
			most := -1
			all := len(idles) * len(callerCounts) * len(times) * len(policyNames) * len(clients)
			for n := range all {
				rest := (n*37 + (i*len(kinds)+j)*53) % all // so that those that are as good are not alike
				take := func(of int) (i int) { i, rest = rest%of, rest/of; return i }
				v := [7]int{i, j, take(len(idles)), take(len(callerCounts)), take(len(times)), take(len(policyNames)), take(len(clients))}
				u := use{call: k, idle: idles[v[2]], callers: callerCounts[v[3]], time: times[v[4]], policy: policyNames[v[5]], client: clients[v[6]]}
				if !allowed(fault, u) {
					continue
				}
				fresh := 0
				for a := range v {
					for b := range a {
						if !seen[pair{a, v[a], b, v[b]}] {
							fresh++
						}
					}
				}
				if fresh > most {
					most, best, values = fresh, u, v
				}
			}
			for a := range values {
				for b := range a {
					seen[pair{a, values[a], b, values[b]}] = true
				}
			}
			plan[fault] = append(plan[fault], best)
		}
	}
	return plan
}

// TestFaultsMeetEveryPair checks that every kind of call has met every number of idle connections and of callers, every time,
// policy and client, and so has every fault what it can have.
func TestFaultsMeetEveryPair(t *testing.T) {
	var met = map[string]bool{}
	for _, b := range breaks {
		for _, u := range uses[b.id] {
			for _, v := range []any{u.idle, u.callers, u.time, u.policy, u.client} {
				met[fmt.Sprint(u.call.name, v)] = true
				met[fmt.Sprint(b.id, v)] = true
			}
		}
	}
	for _, n := range idles {
		for _, k := range kinds {
			require.True(t, met[fmt.Sprint(k.name, n)], "%s, %d idle connections", k.name, n)
		}
	}
	for _, k := range kinds {
		for _, n := range callerCounts {
			require.True(t, met[fmt.Sprint(k.name, n)], "%s, %d callers", k.name, n)
		}
		for _, d := range times {
			require.True(t, met[fmt.Sprint(k.name, d)], "%s, %v", k.name, d)
		}
		for _, v := range append(policyNames, clients...) {
			require.True(t, met[k.name+v], "%s, %s", k.name, v)
		}
	}
	for _, b := range breaks {
		for _, n := range callerCounts {
			require.True(t, met[fmt.Sprint(b.id, n)], "%s, %d callers", b.id, n)
		}
		for _, d := range times {
			require.True(t, met[fmt.Sprint(b.id, d)], "%s, %v", b.id, d)
		}
		for _, v := range policyNames {
			require.True(t, met[b.id+v], "%s, %s", b.id, v)
		}
	}
}

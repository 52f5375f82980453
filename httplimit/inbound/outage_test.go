// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A gate keeps everything from Redis, on the connections of the pool and on others.
type gate struct {
	redistest.Passing
	down atomic.Bool
	slow atomic.Int64
	sent atomic.Int64
	err  error
}

// before puts the gate between rdb and Redis.
func (g *gate) before(rdb *redis.Client) {
	rdb.AddHook(g)
	o := rdb.Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if g.down.Load() {
			return nil, g.err
		}
		c, err := dial(ctx, network, addr)
		return slowConn{c, &g.slow}, err
	}
}

// A slowConn is a connection whose replies take longer.
type slowConn struct {
	net.Conn
	slow *atomic.Int64
}

func (c slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		time.Sleep(time.Duration(c.slow.Load()))
	}
	return n, err
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.sent.Add(1)
		time.Sleep(time.Duration(g.slow.Load()))
		if g.down.Load() {
			cmd.SetErr(g.err)
			return g.err
		}
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(g.slow.Load()))
		return next(ctx, cmds)
	}
}

func TestMiddlewareWithoutRedis(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	run := func(name string, f func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler)) {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			g := &gate{err: dial}
			g.before(w.rdb)
			var failures []error
			f(t, w, g, &failures, func(opts ...Option) http.Handler {
				return w.middleware(rate, append(opts, WithFailures(func(_ *http.Request, err error) {
					if !errors.Is(err, ErrNoPattern) {
						failures = append(failures, err)
					}
				}))...).Handler(answers)
			})
		})
	}
	run("closed", func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler) {
		h := with()
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code)
		g.down.Store(true)
		for i := range 10 {
			begin := time.Now()
			a := ask(h, "1.1.1.1:1", "/")
			require.Equal(t, http.StatusServiceUnavailable, a.Code)
			require.Equal(t, "1", a.Header().Get("Retry-After"))
			require.Empty(t, a.Header().Get("RateLimit"))
			require.Contains(t, a.Body.String(), "temporary-reduced-capacity")
			require.NotContains(t, a.Body.String(), "rejected", "the client is not told why")
			if i > 0 {
				require.Zero(t, time.Since(begin), "told at once")
			}
			require.ErrorIs(t, (*failures)[i], ratelimiter.ErrUnavailable)
		}
		g.down.Store(false)
		time.Sleep(1250 * time.Millisecond)
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code)
	})
	run("open", func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler) {
		h := with(WithOutagePolicy(ratelimiter.FailOpen()), WithKeys(ByHeader("X-Key")))
		g.down.Store(true)
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code)
		sent := g.sent.Load()
		for i := range 1000 { // each of them a limiter that nobody has seen before
			begin := time.Now()
			a := ask(h, "1.1.1.1:1", "/", "X-Key", fmt.Sprint(i))
			require.Equal(t, 200, a.Code)
			require.Empty(t, a.Header().Get("RateLimit"), "nothing is known")
			require.Zero(t, time.Since(begin))
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, g.sent.Load()-sent, int64(10), "one probe a second")
		require.Empty(t, *failures, "the policy has decided")
		g.down.Store(false)
		time.Sleep(1250 * time.Millisecond)
		ask(h, "1.1.1.1:1", "/") // may be the probe's vehicle
		time.Sleep(time.Millisecond)
		for i := range 5 {
			require.Equal(t, i == 4, ask(h, "1.1.1.1:1", "/", "X-Key", "new").Code == 429)
		}
	})
	run("local", func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler) {
		h := with(WithOutagePolicy(ratelimiter.LocalQuota(rate, 2)))
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code)
		g.down.Store(true)
		a := ask(h, "1.1.1.1:1", "/")
		require.Equal(t, 429, a.Code, "not yet")
		require.Equal(t, "1", a.Header().Get("Retry-After"))
		time.Sleep(time.Second)
		for i := range 3 {
			a = ask(h, "1.1.1.1:1", "/")
			require.Equal(t, i == 2, a.Code == 429)
			require.Equal(t, fmt.Sprintf("%q;q=4;w=1", w.key), a.Header().Get("RateLimit-Policy"))
		}
		time.Sleep(1250 * time.Millisecond)
		require.Empty(t, *failures)
	})
	run("the client left", func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler) {
		h := with(WithOutagePolicy(ratelimiter.FailOpen()))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		require.Equal(t, 503, a.Code)
		require.Empty(t, *failures)
	})
}

// TestMiddlewareFollowsThePolicyOfTheClient: a Middleware without a policy of its own decides by that of the Client,
// also about requests that Redis could not decide for another reason than an outage.
func TestMiddlewareFollowsThePolicyOfTheClient(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
	undecided := map[string]func(t *testing.T, w *world, g *gate) []Option{
		"an error of Redis": func(t *testing.T, w *world, _ *gate) []Option {
			require.NoError(t, w.rdb.Set(context.Background(), w.key, "no hash", 0).Err())
			return nil
		},
		"a reply that takes too long": func(t *testing.T, _ *world, g *gate) []Option {
			g.slow.Store(int64(time.Minute))
			return []Option{WithDecisionTime(300 * time.Millisecond)}
		},
		"a key that panics": func(*testing.T, *world, *gate) []Option {
			return []Option{WithKeys(func(*http.Request) (string, bool) { panic("no key") })}
		},
	}
	policies := map[string]struct {
		client, own *ratelimiter.OutagePolicy
		status      int
	}{
		"open":                 {client: ptr(ratelimiter.FailOpen()), status: 200},
		"open, but not here":   {client: ptr(ratelimiter.FailOpen()), own: ptr(ratelimiter.FailClosed()), status: 503},
		"closed, but not here": {client: ptr(ratelimiter.FailClosed()), own: ptr(ratelimiter.FailOpen()), status: 200},
		"local quota":          {client: ptr(ratelimiter.LocalQuota(rate, 2)), status: 503},
		"none":                 {status: 503},
	}
	for cause, begin := range undecided {
		for name, p := range policies {
			inWorldOf(t, cause+"/"+name, func(t *testing.T, w *world) {
				g := &gate{}
				g.before(w.rdb)
				var copts []ratelimiter.Option
				if p.client != nil {
					copts = append(copts, ratelimiter.WithOutagePolicy(*p.client))
				}
				client := clienttest.New(t, w.rdb, copts...)
				defer client.Close()
				var failures []error
				opts := append(begin(t, w, g), WithFailures(func(_ *http.Request, err error) { failures = append(failures, err) }))
				if p.own != nil {
					opts = append(opts, WithOutagePolicy(*p.own))
				}
				m := redistest.Must(New(client, w.key, rate, opts...))(t)
				asked := time.Now()
				require.Equal(t, p.status, ask(m.Handler(answers), "1.1.1.1:1", "/").Code)
				require.Len(t, failures, 1)
				if g.slow.Load() > 0 {
					require.Equal(t, 300*time.Millisecond, time.Since(asked))
					require.ErrorIs(t, failures[0], context.DeadlineExceeded)
					require.Regexp(t, `acquire of ".+": no reply within 300ms `, failures[0].Error())
				}
				g.slow.Store(0)
				time.Sleep(2 * time.Minute) // until the reply that takes too long is there
			})
		}
	}
}

// TestSeveralRulesWithoutAReply checks that a request for several limiters says what one for a single limiter says if Redis does not
// reply within the decision time, and takes no longer.
func TestSeveralRulesWithoutAReply(t *testing.T) {
	for rules := 1; rules <= 3; rules++ {
		inWorldOf(t, fmt.Sprint(rules), func(t *testing.T, w *world) {
			g := &gate{}
			g.before(w.rdb)
			client := clienttest.New(t, w.rdb)
			defer client.Close()
			var list []Rule
			for i := range rules {
				list = append(list, Rule{Name: fmt.Sprint(w.key, i), Rate: ratelimiter.Rate{Permits: 4, Interval: time.Second}})
			}
			m := redistest.Must(NewRules(client, list, WithDecisionTime(300*time.Millisecond)))(t)
			g.slow.Store(int64(time.Minute))
			asked := time.Now()
			d := m.Decide(t.Context(), 1, "a")
			require.Equal(t, 300*time.Millisecond, time.Since(asked))
			require.Equal(t, OutcomeFailedClosed, d.Outcome)
			require.ErrorIs(t, d.Err, ratelimiter.ErrUnavailable)
			require.ErrorIs(t, d.Err, context.DeadlineExceeded)
			require.Regexp(t, `of ".+0:a": no reply within 300ms `, d.Err.Error())
			g.slow.Store(0)
			time.Sleep(2 * time.Minute)
		})
	}
}

// TestSlowRedis checks what a server's requests get while each reply of Redis takes two seconds, and the decision time is one:
// when the outage is known only probes are delayed, the policy decides, the process does not fill up with goroutines, there is one
// outage, and it ends when Redis is fast again.
func TestSlowRedis(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 4, Interval: 500 * time.Millisecond}
	for _, p := range []ratelimiter.OutagePolicy{ratelimiter.FailClosed(), ratelimiter.FailOpen(), ratelimiter.LocalQuota(rate, 2)} {
		inWorldOf(t, p.String(), func(t *testing.T, w *world) {
			g := &gate{}
			g.before(w.rdb)
			var mu sync.Mutex
			var told []ratelimiter.EventKind
			client := clienttest.New(t, w.rdb, ratelimiter.WithOutagePolicy(p), ratelimiter.WithHook(ratelimiter.Hook{Event: func(e ratelimiter.Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, e.Kind)
			}}))
			defer client.Close()
			h := redistest.Must(New(client, w.key, rate, WithKeys(ByHeader("X-Key"))))(t).Handler(answers)
			request := func(i int) int { return ask(h, "1.1.1.1:1", "/", "X-Key", fmt.Sprint(i%40)).Code }
			for i := range 40 {
				require.Equal(t, http.StatusOK, request(i))
			}
			before := 0 // goroutines when the outage was known
			g.slow.Store(int64(2 * time.Second))
			codes, late, delayed := map[int]int{}, 0, 0
			var all sync.WaitGroup
			for i := range 1200 {
				mu.Lock()
				known := len(told) > 0
				mu.Unlock()
				if known && before == 0 {
					before = runtime.NumGoroutine()
				}
				all.Go(func() {
					sent := time.Now()
					code := request(i)
					mu.Lock()
					defer mu.Unlock()
					if !known {
						return
					}
					codes[code]++
					if late++; time.Since(sent) >= time.Second {
						delayed++
					}
				})
				time.Sleep(5 * time.Millisecond)
			}
			require.Less(t, runtime.NumGoroutine(), before+300, "none of the requests in the outage, but a few for the connections of earlier ones")
			all.Wait()
			require.Greater(t, late, 450) // the connection of the witness here closes only after its two seconds
			require.LessOrEqual(t, delayed, 6, "one probe a second")
			switch p {
			case ratelimiter.FailClosed():
				require.Equal(t, map[int]int{503: late}, codes)
			case ratelimiter.FailOpen():
				require.Equal(t, map[int]int{200: late}, codes)
			default:
				require.Equal(t, late, codes[200]+codes[429])
				require.Greater(t, codes[200], late/4, "two permits in half a second for each of 40 clients")
			}
			g.slow.Store(0)
			time.Sleep(10 * time.Second)
			require.Equal(t, http.StatusOK, ask(h, "1.1.1.1:1", "/", "X-Key", "another").Code, "calls of the others may have arrived only now, by the clock of a real server")
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, []ratelimiter.EventKind{ratelimiter.OutageBegan, ratelimiter.OutageEnded}, told)
		})
	}
}

func ptr[T any](v T) *T { return &v }

// TestLimiterThatFailsOpen: a rule with a limiter of its own that lets requests pass, because Redis is unavailable, says that the
// outage policy has decided, and not that nothing is left. Beside a rule that counts, the numbers are those of that rule.
func TestLimiterThatFailsOpen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := &gate{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
		g.before(w.rdb)
		rate := ratelimiter.Rate{Permits: 4, Interval: time.Minute}
		shared := redistest.Must(limit.NewShared(w.rdb, w.key, limit.TokenBucket{Rate: rate, Burst: 4}, limit.WithOutagePolicy(ratelimiter.FailOpen())))(t)
		local := redistest.Must(limit.NewLocal(limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 100, Interval: time.Hour}}))(t)
		rule := func(name string, l limit.Limiter) Rule {
			return Rule{Name: name, Rate: ratelimiter.Rate{Permits: 4, Interval: time.Minute}, LimiterFor: func(string) limit.Limiter { return l }}
		}
		var last Decision
		handler := func(rules ...Rule) http.Handler {
			m, err := NewRules(nil, rules, WithXRateLimit(), WithDecisions(func(_ *http.Request, d Decision) { last = d }))
			require.NoError(t, err)
			return m.Handler(answers)
		}
		one, two := handler(rule("shared", shared.For("a"))), handler(rule("shared", shared.For("a")), rule("local", local))
		require.Equal(t, `"shared";r=3`, ask(one, "1.1.1.1:1", "/").Header().Get("RateLimit"))
		require.False(t, last.Degraded)
		g.down.Store(true)
		for range 2 {
			a := ask(one, "1.1.1.1:1", "/")
			require.Equal(t, 200, a.Code)
			require.True(t, last.Degraded)
			for _, field := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining"} {
				require.Empty(t, a.Header().Get(field), "nothing is known")
			}
		}
		a := ask(two, "1.1.1.1:1", "/")
		require.Equal(t, []string{`"local";r=99`}, a.Header().Values("RateLimit"))
		require.Equal(t, "99", a.Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, "local", last.Policy)
		require.True(t, last.Degraded)
		g.down.Store(false)
		time.Sleep(1250 * time.Millisecond)
		ask(one, "1.1.1.1:1", "/")
		time.Sleep(time.Millisecond)
		ask(one, "1.1.1.1:1", "/")
		require.False(t, last.Degraded)
	})
}

// A stuckLimiter replies only when the context ends, with the context's error alone.
type stuckLimiter struct{ limit.Limiter }

func (stuckLimiter) Allow(ctx context.Context, _ int64) (ratelimiter.Result, error) {
	<-ctx.Done()
	return ratelimiter.Result{}, ctx.Err()
}

// TestErrorsOfALateReply checks that the error of a decision without a reply says which limiter it is about and what ended
// the wait, also where the limiter returns no more than the context's error.
func TestErrorsOfALateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Must(NewRules(nil, []Rule{{Name: "robot", LimiterFor: func(string) limit.Limiter { return stuckLimiter{} }}},
			WithDecisionTime(300*time.Millisecond)))(t)
		d := m.Decide(t.Context(), 1, "a")
		require.ErrorIs(t, d.Err, context.DeadlineExceeded)
		require.EqualError(t, d.Err, `inbound: limiter "robot:a" did not reply within 300ms, see WithDecisionTime: context deadline exceeded`)

		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d = m.Decide(short, 1, "a")
		require.EqualError(t, d.Err, `inbound: the request's context ended before limiter "robot:a" replied: context deadline exceeded`)

		left, leave := context.WithCancel(t.Context())
		leave()
		d = m.Decide(left, 1, "a")
		require.ErrorIs(t, d.Err, context.Canceled)
		require.EqualError(t, d.Err, `inbound: the request's context ended before limiter "robot:a" replied: context canceled`)
	})
}

// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A gate is a hook that keeps everything from Redis.
type gate struct {
	redistest.Passing
	down atomic.Bool
	slow atomic.Int64
	sent atomic.Int64
	err  error
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

func TestMiddlewareWithoutRedis(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	run := func(name string, f func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler)) {
		inWorldOf(t, name, func(t *testing.T, w *world) {
			g := &gate{err: dial}
			w.rdb.AddHook(g)
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
	run("open, and Redis says no", func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler) {
		open, closed := with(WithOutagePolicy(ratelimiter.FailOpen())), with()
		require.NoError(t, w.rdb.Set(context.Background(), w.key, "no hash", 0).Err())
		require.Equal(t, 200, ask(open, "1.1.1.1:1", "/").Code)
		require.Len(t, *failures, 1)
		require.ErrorContains(t, (*failures)[0], "WRONGTYPE")
		require.Equal(t, 503, ask(closed, "1.1.1.1:1", "/").Code)
	})
	run("slow", func(t *testing.T, w *world, g *gate, failures *[]error, with func(...Option) http.Handler) {
		open, closed := with(WithOutagePolicy(ratelimiter.FailOpen()), WithDecisionTime(300*time.Millisecond)), with()
		ask(open, "1.1.1.1:1", "/")
		g.slow.Store(int64(time.Minute))
		begin := time.Now()
		require.Equal(t, 200, ask(open, "1.1.1.1:1", "/").Code)
		require.Equal(t, 300*time.Millisecond, time.Since(begin))
		require.Equal(t, 503, ask(closed, "1.1.1.1:1", "/").Code)
		require.Equal(t, 1300*time.Millisecond, time.Since(begin))
		require.ErrorIs(t, (*failures)[1], context.DeadlineExceeded)
		g.slow.Store(0)
		time.Sleep(2 * time.Minute)
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
				w.rdb.AddHook(g)
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
				require.Equal(t, p.status, ask(m.Handler(answers), "1.1.1.1:1", "/").Code)
				require.Len(t, failures, 1)
				g.slow.Store(0)
				time.Sleep(2 * time.Minute) // until the reply that takes too long is there
			})
		}
	}
}

func ptr[T any](v T) *T { return &v }

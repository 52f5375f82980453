// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A server is a Middleware of one limit for each X-Key, as a process has it.
type server struct {
	http.Handler
	m    *Middleware
	told []error
}

func (w *world) server(permits int64, opts ...Option) *server {
	s := &server{}
	opts = append(opts, WithKeys(ByHeader("X-Key")), WithFailures(func(_ *http.Request, err error) { s.told = append(s.told, err) }))
	m, err := New(w.client, w.key, ratelimiter.Rate{Permits: permits, Interval: time.Minute}, opts...)
	require.NoError(w.t, err)
	s.m, s.Handler = m, m.Handler(answers)
	return s
}

// granted returns how many of so many requests of a key are granted.
func (s *server) granted(key string, requests int) (n int) {
	for range requests {
		if ask(s, "1.1.1.1:1", "/", "X-Key", key).Code == 200 {
			n++
		}
		time.Sleep(time.Millisecond) // what is done after a request has an end
	}
	return n
}

// TestRedeployedRateCounts: 100 a minute become 2, while servers of the old rate go on, and one of them begins anew.
func TestRedeployedRateCounts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.server(100)
		require.NoError(t, old.m.Start(t.Context()))
		require.Equal(t, 3, old.granted("a", 3))
		require.Equal(t, 1, old.granted("b", 1))

		renewed := w.server(2)
		require.NoError(t, renewed.m.Start(t.Context()))
		require.Equal(t, 2, renewed.granted("new", 5))
		require.Equal(t, 1, renewed.granted("a", 5), "the first is decided by the old rate; what was taken counts")
		require.Equal(t, 1, renewed.granted("b", 5))
		require.Len(t, renewed.told, 1)
		require.ErrorIs(t, renewed.told[0], ErrRateDiffers)
		require.ErrorContains(t, renewed.told[0], "100/1m")
		require.Empty(t, old.told)

		// The old one goes by it as soon as it meets such a limiter, and does not set its own back.
		require.Zero(t, old.granted("a", 3))
		require.Equal(t, 2, old.granted("newest", 5))
		require.Len(t, old.told, 1)
		require.ErrorIs(t, old.told[0], ErrRateDiffers)
		require.ErrorContains(t, old.told[0], "2/1m")
		require.Zero(t, renewed.granted("newest", 2))
		time.Sleep(time.Minute)
		require.Equal(t, 2, renewed.granted("a", 5))

		// One that is not told by a limiter learns of it in ten seconds.
		require.Equal(t, 1, old.granted("looks", 1))
		again := w.server(3)
		require.NoError(t, again.m.Start(t.Context()))
		require.Equal(t, 2, old.granted("only the old one's", 5))
		time.Sleep(lookEvery)
		require.Equal(t, 1, old.granted("only the old one's", 3), "of three, two of which were taken")
	})
}

// TestAnotherIsFaster: between the look at a limiter without a rate and the setting of one, another program sets its own.
func TestAnotherIsFaster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, raced := w.client.RateLimiter(w.key), false
		w.rdb.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); !raced && len(args) > 4 && args[2] == 1 { // TrySetRate is the only script with one key and arguments
				raced = true
				require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 5, Interval: time.Minute}))
			}
			return next(ctx, cmd)
		}))
		s := w.server(10)
		require.NoError(t, s.m.Start(t.Context()))
		require.True(t, raced)
		require.EqualValues(t, 10, redistest.Must(l.Rate(t.Context()))(t).Permits)
		require.Equal(t, 1, s.granted("a", 1))
		require.Len(t, s.told, 1)
		require.ErrorContains(t, s.told[0], "it was OVERALL 5/1m0s and is set now")
	})
}

// TestFirstRequestsSetTheRate: without Start, and without keys, and when Redis has lost everything.
func TestFirstRequestsSetTheRate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		rate := func(permits int64) ratelimiter.Rate { return ratelimiter.Rate{Permits: permits, Interval: time.Minute} }
		old, renewed := w.middleware(rate(100)), w.middleware(rate(2))
		l := w.client.RateLimiter(w.key)
		is := func() int64 {
			time.Sleep(time.Millisecond)
			r := redistest.Must(l.Rate(t.Context()))(t)
			return r.Permits
		}
		require.Equal(t, 200, ask(old.Handler(answers), "1.1.1.1:1", "/").Code)
		require.Equal(t, int64(100), is())
		require.Equal(t, 200, ask(renewed.Handler(answers), "1.1.1.1:1", "/").Code)
		require.Equal(t, int64(2), is())
		require.Equal(t, 429, ask(renewed.Handler(answers), "1.1.1.1:1", "/").Code)
		require.Equal(t, 429, ask(old.Handler(answers), "1.1.1.1:1", "/").Code)
		require.Equal(t, int64(2), is(), "the old one does not set its own back")

		require.NoError(t, w.rdb.FlushDB(t.Context()).Err())
		time.Sleep(time.Second) // a rejection is known
		require.Equal(t, 200, ask(old.Handler(answers), "1.1.1.1:1", "/").Code)
		require.Equal(t, int64(2), is(), "nor after a flush")

		// An operator's counts, too.
		require.NoError(t, l.SetRate(t.Context(), rate(7), ratelimiter.KeepState()))
		require.Equal(t, 200, ask(renewed.Handler(answers), "1.1.1.1:1", "/").Code)
		require.Equal(t, int64(7), is())
	})
}

// TestStoredRatesStay: the rates are another's to set, and startup may fail loudly.
func TestStoredRatesStay(t *testing.T) {
	for name, opt := range map[string]Option{"stored": WithStoredRates(), "dry run": WithDryRun()} {
		inWorld(t, func(t *testing.T, w *world) {
			first := w.server(5, opt)
			require.NoError(t, first.m.Start(t.Context()), name)
			s := w.server(2, opt)
			require.ErrorIs(t, s.m.Start(t.Context()), ErrRateDiffers, name)
			first.granted("a", 1)
			s.granted("a", 1)
			r := redistest.Must(w.client.RateLimiter(w.key).Rate(t.Context()))(t)
			require.Equal(t, int64(5), r.Permits, name)
			require.Len(t, s.told, 1, name)
			require.ErrorIs(t, s.told[0], ErrRateDiffers, name)
		})
	}
}

// TestRateThatDiffers: with WithStoredRates a limiter that has another rate keeps it, and the function of WithFailures is told: once for
// each rate that is met, whatever the number of keys and requests.
func TestRateThatDiffers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []error
		old := ratelimiter.Rate{Permits: 5, Interval: time.Second, KeepAlive: 10 * time.Minute}
		m := w.middleware(ratelimiter.Rate{Permits: 50, Interval: time.Second, KeepAlive: old.KeepAlive}, WithKeys(ByHeader("X-Key")),
			WithStoredRates(), WithFailures(func(_ *http.Request, err error) { told = append(told, err) }))
		h := m.Handler(answers)
		ask(h, "1.1.1.1:1", "/", "X-Key", "new")
		require.Empty(t, told)
		set := func(key string, r ratelimiter.Rate) {
			name := m.limiters(&http.Request{Header: http.Header{"X-Key": {key}}})[0].name
			require.NoError(t, w.client.RateLimiter(name).SetRate(t.Context(), r))
		}
		for i := range 100 {
			set(fmt.Sprint(i), old)
			for range 6 { // the last one is rejected
				ask(h, "1.1.1.1:1", "/", "X-Key", fmt.Sprint(i))
			}
		}
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], ErrRateDiffers)
		for _, want := range []string{w.key, old.String(), m.rules[0].Rate.String(), "SetRate"} {
			require.ErrorContains(t, told[0], want)
		}
		// Each number counts, and memory is bounded.
		for i, change := range []func(*ratelimiter.Rate){
			func(r *ratelimiter.Rate) { r.Permits = 49 }, func(r *ratelimiter.Rate) { r.Interval *= 2 },
			func(r *ratelimiter.Rate) { r.MinGap = time.Millisecond }, func(r *ratelimiter.Rate) { r.KeepAlive *= 2 },
		} {
			r := m.rules[0].Rate
			change(&r)
			set("changed", r)
			ask(h, "1.1.1.1:1", "/", "X-Key", "changed")
			require.Len(t, told, 2+i, "%v", r)
		}
		for i := range int64(1000) {
			r := m.rules[0].Rate
			r.Permits = 1000 + i
			set("changed", r)
			ask(h, "1.1.1.1:1", "/", "X-Key", "changed")
		}
		require.LessOrEqual(t, len(m.told), maxTold)
		require.LessOrEqual(t, len(told), maxTold)

		// A KeepAlive that nobody chose differs from none, and a request that the lower rate can never grant tells too.
		told, m = nil, w.middleware(ratelimiter.Rate{Permits: 50, Interval: time.Second},
			WithStoredRates(), WithFailures(func(_ *http.Request, err error) { told = append(told, err) }),
			WithWeight(func(r *http.Request) int64 { return max(1, r.ContentLength) }))
		l := w.client.RateLimiter(w.key)
		require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 50, Interval: time.Second}))
		h = m.Handler(answers)
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code)
		require.Empty(t, told)
		require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 5, Interval: time.Second}))
		for range 2 {
			a := httptest.NewRecorder()
			h.ServeHTTP(a, httptest.NewRequest("POST", "/", strings.NewReader("123456")))
			require.Equal(t, 429, a.Code)
		}
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], ErrRateDiffers)
	})
}

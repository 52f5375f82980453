// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/stretchr/testify/require"
)

// TestWeightsThatNoLimiterGrants: such a request is rejected whatever the outage policy and told no Retry-After,
// since it is not Redis that cannot decide it. A weight of 0 passes.
func TestWeightsThatNoLimiterGrants(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var failures []error
		var why Rejection
		weight := func(r *http.Request) int64 { return r.ContentLength }
		for _, p := range []ratelimiter.OutagePolicy{ratelimiter.FailClosed(), ratelimiter.FailOpen()} {
			h := w.middleware(ratelimiter.Rate{Permits: 100, Interval: time.Second}, WithWeight(weight), WithOutagePolicy(p),
				WithFailures(func(_ *http.Request, err error) { failures = append(failures, err) }),
				WithRejection(func(w http.ResponseWriter, _ *http.Request, r Rejection) { why = r; w.WriteHeader(r.Status) })).Handler(answers)
			for length, want := range map[int64]error{
				-1: ratelimiter.ErrInvalidArgument, 101: ratelimiter.ErrPermitsExceedRate,
				1<<32 - 1: ratelimiter.ErrPermitsExceedRate, 1 << 32: ratelimiter.ErrPermitsExceedRate, 1 << 62: ratelimiter.ErrPermitsExceedRate,
			} {
				r := httptest.NewRequest("POST", "/", strings.NewReader(""))
				r.ContentLength = length
				a := httptest.NewRecorder()
				h.ServeHTTP(a, r)
				require.Equal(t, 429, a.Code, "%v, %d bytes", p, length)
				require.Empty(t, a.Header().Get("Retry-After"))
				require.ErrorIs(t, why.Err, want)
				require.ErrorContains(t, why.Err, fmt.Sprint(length))
			}
			require.Equal(t, 200, ask(h, "1.1.1.1:1", "/").Code, "0")
		}
		require.Empty(t, failures)
	})
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

// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestDecide checks that Decide and a Handler share limiters and decide alike.
func TestDecide(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []Decision
		m := w.middleware(ratelimiter.Rate{Permits: 3, Interval: time.Minute}, WithKeys(ByHeader("X-User")),
			WithDecisions(func(r *http.Request, d Decision) { told = append(told, d) }))
		key := HashFor(httptest.NewRequest("GET", "/", nil), "ann")
		a := m.Decide(t.Context(), 2, key)
		require.True(t, a.Passes())
		require.Equal(t, OutcomeGranted, a.Outcome)
		require.EqualValues(t, 1, a.Result.Available)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", "ann")
		rec := httptest.NewRecorder()
		m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(rec, r)
		require.Equal(t, 200, rec.Code)
		a = m.Decide(t.Context(), 1, key)
		require.False(t, a.Passes())
		require.Equal(t, OutcomeRejected, a.Outcome)
		require.Equal(t, time.Minute, a.RetryAfter)
		require.Len(t, told, 3)
		require.Equal(t, told[1].Limiter, a.Limiter, "the same limiter")
		require.True(t, m.Decide(t.Context(), 1, "bob").Passes(), "another limiter")

		require.Equal(t, OutcomeUnlimited, m.Decide(t.Context(), 0).Outcome)
		heavy := m.Decide(t.Context(), 4)
		require.Equal(t, OutcomeRejected, heavy.Outcome)
		require.ErrorIs(t, heavy.Err, ratelimiter.ErrPermitsExceedRate)
		require.Zero(t, heavy.RetryAfter)
		require.ErrorIs(t, m.Decide(t.Context(), -1).Err, ratelimiter.ErrInvalidArgument)
		ended, end := context.WithCancel(t.Context())
		end()
		require.Equal(t, OutcomeFailedClosed, m.Decide(ended, 1).Outcome)
		var none context.Context
		d := m.Decide(none, 1)
		require.Equal(t, OutcomeFailedClosed, d.Outcome)
		require.ErrorIs(t, d.Err, ratelimiter.ErrInvalidArgument)
		require.Panics(t, func() { m.Handler(nil) }, "before a request takes permits")
	})
}

// TestDryRun checks that nothing is rejected, and that what would have been is told and counted.
func TestDryRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []Decision
		m := w.middleware(ratelimiter.Rate{Permits: 1, Interval: time.Minute}, WithDryRun(),
			WithDecisions(func(_ *http.Request, d Decision) { told = append(told, d) }))
		for range 2 {
			rec := httptest.NewRecorder()
			m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })).ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
			require.Equal(t, 204, rec.Code)
			require.Empty(t, rec.Header().Get("Retry-After"))
			require.NotEmpty(t, rec.Header().Get("RateLimit"))
		}
		require.True(t, m.Decide(t.Context(), 1).Passes())
		require.Len(t, told, 3)
		for i, want := range []Outcome{OutcomeGranted, OutcomeRejected, OutcomeRejected} {
			require.Equal(t, want, told[i].Outcome)
			require.True(t, told[i].DryRun)
		}
	})
}

// TestNoPattern checks that a ByPattern which finds no pattern is told of once, and one that has a mux, or stands inside of
// it, never.
func TestNoPattern(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			serve func(m func(*http.ServeMux) *Middleware) http.Handler
			told  int
		}{
			"around a router": {func(m func(*http.ServeMux) *Middleware) http.Handler {
				return m(nil).Handler(http.NotFoundHandler())
			}, 1},
			"with the mux": {func(m func(*http.ServeMux) *Middleware) http.Handler {
				mux := http.NewServeMux()
				return m(mux).Handler(mux)
			}, 0},
			"inside": {func(m func(*http.ServeMux) *Middleware) http.Handler {
				mux := http.NewServeMux()
				mux.Handle("/", m(nil).Handler(http.NotFoundHandler()))
				return mux
			}, 0},
		} {
			told := 0
			h := c.serve(func(mux *http.ServeMux) *Middleware {
				return w.middleware(ratelimiter.Rate{Permits: 9, Interval: time.Minute}, WithKeys(ByPattern(mux)), WithFailures(func(_ *http.Request, err error) {
					require.ErrorIs(t, err, ErrNoPattern)
					told++
				}))
			})
			for range 3 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
			}
			require.Equal(t, c.told, told, name)
		}
	})
}

// Each request is told of once, whatever becomes of it.
func TestDecisions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []Decision
		var failures []error
		weights := map[string]int64{"/free": 0, "/odd": -1, "/": 1, "/never": 2, "/huge": 1 << 62}
		var why Decision
		options := []Option{
			WithRejection(func(w http.ResponseWriter, _ *http.Request, d Decision) { why = d; w.WriteHeader(d.Status()) }),
			WithWeight(func(r *http.Request) int64 {
				if r.URL.Path == "/panic" {
					panic("no weight")
				}
				return weights[r.URL.Path]
			}),
			WithDecisions(func(_ *http.Request, d Decision) { told = append(told, d) }),
			WithFailures(func(_ *http.Request, err error) { failures = append(failures, err) }),
		}
		rate := ratelimiter.Rate{Permits: 1, Interval: time.Minute}
		closed := w.middleware(rate, options...).Handler(answers)
		open := w.middleware(rate, append(options, WithOutagePolicy(ratelimiter.FailOpen()))...).Handler(answers)
		for _, c := range []struct {
			h       http.Handler
			path    string
			status  int
			outcome Outcome
			err     string
		}{
			{closed, "/free", 200, OutcomeUnlimited, ""},
			{closed, "/", 200, OutcomeGranted, ""},
			{closed, "/", 429, OutcomeRejected, ""},
			{closed, "/panic", 503, OutcomeFailedClosed, "no weight"},
			{open, "/panic", 200, OutcomeFailedOpen, "no weight"},
			// It is not Redis that cannot decide these.
			{closed, "/odd", 429, OutcomeRejected, "invalid argument"},
			{open, "/odd", 429, OutcomeRejected, "invalid argument"},
			{closed, "/never", 429, OutcomeRejected, "permits exceed rate"},
			{open, "/never", 429, OutcomeRejected, "permits exceed rate"},
			{open, "/huge", 429, OutcomeRejected, "permits exceed rate"},
		} {
			told, failures = nil, nil
			a := ask(c.h, "1.1.1.1:1", c.path)
			require.Equal(t, c.status, a.Code)
			require.Len(t, told, 1, c.path)
			require.Equal(t, c.outcome, told[0].Outcome)
			require.Equal(t, w.key, told[0].Policy)
			require.Equal(t, c.outcome != OutcomeUnlimited, told[0].Limiter != "")
			require.Equal(t, c.status != 200, !told[0].Passes())
			require.Equal(t, map[bool]int{true: c.status}[c.status != 200], told[0].Status())
			for name, values := range told[0].Header() {
				require.Equal(t, values, a.Header()[name])
			}
			if c.status != 200 {
				require.Equal(t, told[0], why, "the functions of both options get the same")
			}
			if c.err == "" {
				require.NoError(t, told[0].Err)
				continue
			}
			require.ErrorContains(t, told[0].Err, c.err)
			if c.status == 429 {
				require.Empty(t, a.Header().Get("Retry-After"))
				require.ErrorContains(t, told[0].Err, fmt.Sprint(weights[c.path]))
				require.Equal(t, told[0].Err, why.Err)
				require.Empty(t, failures)
			}
		}

		// One that panics is a failure and changes no answer.
		failures = nil
		h := w.middleware(rate, WithDecisions(func(*http.Request, Decision) { panic("mine") }),
			WithFailures(func(_ *http.Request, err error) { failures = append(failures, err) })).Handler(answers)
		require.Equal(t, 429, ask(h, "1.1.1.1:1", "/").Code)
		require.Len(t, failures, 1)
		require.ErrorContains(t, failures[0], "mine")
	})
}

// TestPolicyIsThatOfTheFields checks that a Decision names the policy as the header fields do, without the braces that are for a
// Redis Cluster.
func TestPolicyIsThatOfTheFields(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told, why Decision
		m := redistest.Must(New(w.client, "{"+w.key+"}:x", ratelimiter.PerMinute(1), WithDecisions(func(_ *http.Request, d Decision) { told = d }),
			WithRejection(func(w http.ResponseWriter, _ *http.Request, d Decision) { why = d; w.WriteHeader(d.Status()) })))(t)
		require.Equal(t, w.key+":x", m.Decide(t.Context(), 0).Policy)
		require.Equal(t, w.key+":x", m.Decide(t.Context(), 1).Policy)
		a := ask(m.Handler(answers), "1.1.1.1:1", "/")
		require.Equal(t, 429, a.Code)
		require.Equal(t, fmt.Sprintf("%q;r=0;t=60", told.Policy), a.Header().Get("RateLimit"))
		require.Equal(t, w.key+":x", why.Policy)
		require.Equal(t, "{"+w.key+"}:x", why.Limiter)
	})
}

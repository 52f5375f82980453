// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/stretchr/testify/require"
)

// TestPanickingFunctions: a request whose key or weight cannot be told is undecided, and nobody's panic gets
// through the Middleware but http.ErrAbortHandler, which asks for that.
func TestPanickingFunctions(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
	bad := map[string]Option{
		"KeyFunc":                    WithKeys(func(*http.Request) (string, bool) { panic("mischief") }),
		"the function of WithWeight": WithWeight(func(*http.Request) int64 { panic("mischief") }),
	}
	for name, opt := range bad {
		for _, open := range []bool{false, true} {
			for _, hookPanics := range []bool{false, true} {
				inWorld(t, func(t *testing.T, w *world) {
					var failures []error
					opts := []Option{opt, WithFailures(func(_ *http.Request, err error) {
						failures = append(failures, err)
						if hookPanics {
							panic("again")
						}
					})}
					if open {
						opts = append(opts, WithOutagePolicy(ratelimiter.FailOpen()))
					}
					a := ask(w.middleware(rate, opts...).Handler(answers), "1.1.1.1:1", "/")
					if open {
						require.Equal(t, 200, a.Code)
					} else {
						require.Equal(t, 503, a.Code)
						require.NotContains(t, a.Body.String(), "mischief")
					}
					var p *PanicError
					require.NotEmpty(t, failures)
					require.ErrorAs(t, failures[0], &p)
					require.Equal(t, name, p.Func)
					require.Len(t, failures, map[bool]int{false: 1, true: 2}[hookPanics], "the hook is told of its own panic once")
				})
			}
		}
	}
}

// TestAbortIsNotContained: a function that panics with http.ErrAbortHandler wants the connection to be dropped. A
// WithRejection is a handler, and its panics are the server's.
func TestAbortIsNotContained(t *testing.T) {
	rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
	inWorld(t, func(t *testing.T, w *world) {
		for _, opt := range []Option{
			WithKeys(func(*http.Request) (string, bool) { panic(http.ErrAbortHandler) }),
			WithWeight(func(*http.Request) int64 { panic(http.ErrAbortHandler) }),
		} {
			h := w.middleware(rate, opt).Handler(answers)
			require.PanicsWithValue(t, http.ErrAbortHandler, func() { ask(h, "1.1.1.1:1", "/") })
		}
		mine := errors.New("mine")
		h := w.middleware(rate, WithWeight(func(*http.Request) int64 { return 5 }),
			WithRejection(func(http.ResponseWriter, *http.Request, Decision) { panic(mine) })).Handler(answers)
		require.PanicsWithValue(t, mine, func() { ask(h, "1.1.1.1:1", "/") })
	})
}

// TestZeroMiddleware: a Middleware that New did not return rejects every request, and says why.
func TestZeroMiddleware(t *testing.T) {
	for _, zero := range []*Middleware{{}, nil} {
		require.ErrorIs(t, zero.Start(t.Context()), ratelimiter.ErrInvalidArgument)
		a := zero.Decide(t.Context(), 1)
		require.False(t, a.Passes())
		require.ErrorIs(t, a.Err, ratelimiter.ErrInvalidArgument)
		w := httptest.NewRecorder()
		zero.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
	}
}

// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/stretchr/testify/require"
)

// Each request is told of once, whatever becomes of it.
func TestDecisions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []Decision
		var failures []error
		weights := map[string]int64{"/free": 0, "/odd": -1, "/": 1, "/never": 11}
		options := []Option{
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
			err     bool
		}{
			{closed, "/free", 200, OutcomeUnlimited, false},
			{closed, "/", 200, OutcomeGranted, false},
			{closed, "/", 429, OutcomeRejected, false},
			{closed, "/odd", 429, OutcomeRejected, true},
			{closed, "/never", 429, OutcomeRejected, true},
			{closed, "/panic", 503, OutcomeClosed, true},
			{open, "/panic", 200, OutcomeOpen, true},
		} {
			told = nil
			require.Equal(t, c.status, ask(c.h, "1.1.1.1:1", c.path).Code)
			require.Len(t, told, 1, c.path)
			require.Equal(t, c.outcome, told[0].Outcome)
			require.Equal(t, w.key, told[0].Policy)
			require.Equal(t, c.err, told[0].Err != nil)
			require.Equal(t, c.outcome != OutcomeUnlimited, told[0].Limiter != "")
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

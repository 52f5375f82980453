// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestContextWithMaxWait checks that the smaller of the context's bound and the Transport's holds, and that the
// context's ends nothing but the wait.
func TestContextWithMaxWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Minute) // longer than the bound
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, r.Context().Err()
		}), WithMaxWait(5*time.Second), WithRules(Rule{Limits: []Limit{{Name: w.key, Rate: ratelimiter.Rate{Permits: 1, Interval: time.Hour}}}}))
		send := func(ctx context.Context) error {
			req := redistest.Must(http.NewRequestWithContext(ctx, "GET", "http://api.example.com/", nil))(t)
			_, err := tr.RoundTrip(req)
			return err
		}
		require.NoError(t, send(ContextWithMaxWait(t.Context(), 3*time.Second)))
		for bound, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, 0: 0, -1: 0, time.Minute: 5 * time.Second} {
			start := time.Now()
			err := send(ContextWithMaxWait(t.Context(), bound))
			require.ErrorIs(t, err, ErrRejected)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.InDelta(t, want, time.Since(start), float64(15*time.Millisecond), bound)
		}
	})
}

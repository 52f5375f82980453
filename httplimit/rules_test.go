// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestSetRules checks that new rules are obeyed by what begins after them, that a request which waits ends by the old ones,
// that bans stay, that a new rate is told of, and that wrong rules change nothing.
func TestSetRules(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sent := 0
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			if sent++; r.URL.Path == "/slow" {
				return respond(200, "text/plain", "slow down"), nil
			}
			return ok(r)
		}), rules(w.limit("a", 1, time.Minute)), WithDetectors(says("slow down", time.Hour, "")))
		get(t, tr, "http://x/")
		var wg sync.WaitGroup
		wg.Go(func() { get(t, tr, "http://x/") })
		time.Sleep(time.Second)

		wrong := Rule{Limits: []Limit{{Name: "{"}}}
		require.ErrorIs(t, tr.SetRules(wrong), ErrInvalidRule)
		rule := Rule{Name: "new", Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("b", 5, time.Minute)}}
		require.NoError(t, tr.SetRules(rule))
		get(t, tr, "http://x/")
		require.Less(t, w.elapsed(), 2*time.Second)
		require.EqualValues(t, 4, w.available("b"))
		wg.Wait()
		require.GreaterOrEqual(t, w.elapsed(), time.Minute, "it waited for a")

		get(t, tr, "http://x/slow")
		w.taken()
		rule.Limits = []Limit{w.limit("b", 7, time.Minute)}
		closed := ratelimiter.FailClosed()
		rule.Limits[0].OutagePolicy = &closed
		require.NoError(t, tr.SetRules(rule))
		tr.cfg.maxWait = 0
		_, err := tr.RoundTrip(request(t, "GET", "http://x/", nil))
		require.ErrorContains(t, err, string(ReasonCoolDown), "the ban lasts")
		require.Contains(t, w.kinds(), EventRateDiffers)
		require.NoError(t, tr.SetRules())
		get(t, tr, "http://x/")
		require.Equal(t, 5, sent)
	})
}

// TestDryRule checks that a rule which is a dry run holds up nothing, counts, tells, and does not cool down, beside one that
// is none.
func TestDryRule(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tr := w.transport(always("slow down"), WithRules(
			Rule{Name: "real", Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("real", 100, time.Hour)}},
			Rule{Name: "dry", DryRun: true, Match: Match{Hosts: []string{"x"}}, Limits: []Limit{w.limit("dry", 2, time.Hour)}}))
		for range 3 {
			get(t, tr, "http://x/")
		}
		require.Less(t, w.elapsed(), time.Second)
		require.EqualValues(t, 97, w.available("real"))
		require.Zero(t, w.available("dry"))
		var rejected []Event
		for _, e := range w.taken() {
			if e.Kind == EventRejected {
				rejected = append(rejected, e)
			}
		}
		require.Len(t, rejected, 1)
		require.True(t, rejected[0].DryRun)
		require.Equal(t, w.key+"dry", rejected[0].Limiter)
		require.InDelta(t, time.Hour, rejected[0].Wait, float64(time.Second))
		require.ErrorIs(t, rejected[0].Err, ErrRejected)
		redistest.Must(w.client.RateLimiter(w.key + "dry").Delete(t.Context()))(t)
		get(t, tr, "http://x/")
		require.EqualValues(t, 1, w.available("dry"), "its rate is set again")
		tr.cfg.detectors = []Detector{says("slow down", time.Minute, "")}
		get(t, tr, "http://x/")
		require.Zero(t, w.until("dry"))
		require.NotZero(t, w.until("real"))
	})
}

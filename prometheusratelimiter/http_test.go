// SPDX-License-Identifier: Apache-2.0

package prometheusratelimiter

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestDecisions(t *testing.T) {
	w := newWorld(t, nil)
	decisions := redistest.Must(Decisions(w.reg))(t)
	m := redistest.Must(inbound.New(w.client, "api", ratelimiter.Rate{Permits: 2, Interval: time.Minute}, inbound.WithDecisions(decisions)))(t)
	h := m.Handler(http.NotFoundHandler())
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	w.has(`httplimit_server_requests_total{degraded="false",outcome="granted",rule="api"} 2`,
		`httplimit_server_requests_total{degraded="false",outcome="rejected",rule="api"} 1`)
	_, err := Decisions(w.reg)
	require.Error(t, err, "registered twice")
}

// TestOutageOfAMiddleware checks that the state of an outage tells of a Redis that stands still under a middleware with two rules
// and its defaults, and of its end.
func TestOutageOfAMiddleware(t *testing.T) {
	var d redistest.Door
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		reg := prometheus.NewPedanticRegistry()
		client := redistest.Must(ratelimiter.New(rdb, ratelimiter.WithHook(redistest.Must(NewHook(reg))(t))))(t)
		defer client.Close()
		rate, name := ratelimiter.Rate{Permits: 1000, Interval: time.Minute}, redistest.Key(t)
		m := redistest.Must(inbound.NewRules(client, []inbound.Rule{{Name: name, Rate: rate}, {Name: name + "-b", Rate: rate}}))(t)
		state := func(want int) {
			t.Helper()
			text := fmt.Sprintf("# HELP ratelimiter_outage_state Redis servers, or parts of one, that are known to be unavailable.\n# TYPE ratelimiter_outage_state gauge\nratelimiter_outage_state %d\n", want)
			require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(text), "ratelimiter_outage_state"))
		}
		require.True(t, m.Decide(t.Context(), 1).Passes())
		d.Freeze()
		for range 15 {
			go m.Decide(t.Context(), 1)
			state(0)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // 1.6 s
		state(1)
		require.False(t, m.Decide(t.Context(), 1).Passes())
		d.Open()
		time.Sleep(1300 * time.Millisecond)
		state(0)
	}, d.Option)
}

func TestEvents(t *testing.T) {
	w := newWorld(t, nil)
	events := redistest.Must(Events(w.reg))(t)
	events(httplimit.Event{Kind: httplimit.EventGranted})
	events(httplimit.Event{Kind: httplimit.EventThrottled, Reason: "90018", Banned: true})
	events(httplimit.Event{Kind: httplimit.EventUnread})
	events(httplimit.Event{Kind: httplimit.EventUnsettled})
	w.has(`httplimit_client_throttled_total{banned="true",reason="90018",scope=""} 1`, `httplimit_client_unread_total 1`, `httplimit_client_unsettled_total 1`)
	_, err := Events(w.reg)
	require.Error(t, err, "registered twice")
}

// firstPart makes all limiters of a kind one policy.
func firstPart(limiter string) string {
	name, _, _ := strings.Cut(limiter, ":")
	return name
}

func BenchmarkHook(b *testing.B) {
	clienttest.BenchmarkHook(b, redistest.Must(NewHook(prometheus.NewRegistry(), WithPolicies(firstPart)))(b))
}

func TestHookAllocates(t *testing.T) {
	clienttest.RequireNoAllocations(t, redistest.Must(NewHook(prometheus.NewRegistry(), WithPolicies(firstPart)))(t))
}

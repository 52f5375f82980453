// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
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
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
)

func TestDecisions(t *testing.T) {
	w := newWorld(t)
	decisions := redistest.Must(Decisions(w.options...))(t)
	m := redistest.Must(inbound.New(w.client, "api", ratelimiter.Rate{Permits: 2, Interval: time.Minute}, inbound.WithDecisions(decisions)))(t)
	h := m.Handler(http.NotFoundHandler())
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	require.Equal(t, map[string]float64{
		"degraded=false outcome=granted rule=api":  2,
		"degraded=false outcome=rejected rule=api": 1,
	}, w.points("httplimit.server.requests"))
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	events := redistest.Must(Events(w.options...))(t)
	events(httplimit.Event{Kind: httplimit.EventGranted})
	for range 2 {
		events(httplimit.Event{Kind: httplimit.EventThrottled, Reason: "90018", Banned: true, Request: httptest.NewRequest("GET", "/", nil)})
	}
	require.Equal(t, map[string]float64{"banned=true reason=90018 scope=": 2}, w.points("httplimit.client.throttled"))
	events(httplimit.Event{Kind: httplimit.EventUnread})
	events(httplimit.Event{Kind: httplimit.EventUnsettled})
	for _, name := range []string{"httplimit.client.unread", "httplimit.client.unsettled"} {
		require.Equal(t, map[string]float64{"": 1}, w.points(name))
	}
}

// firstPart makes all limiters of a kind one policy.
func firstPart(limiter string) string {
	name, _, _ := strings.Cut(limiter, ":")
	return name
}

func BenchmarkHook(b *testing.B) {
	clienttest.BenchmarkHook(b, redistest.Must(NewHook(WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))), WithPolicies(firstPart)))(b))
}

func TestHookAllocates(t *testing.T) {
	clienttest.RequireNoAllocations(t, redistest.Must(NewHook(newWorld(t, WithPolicies(firstPart)).options...))(t))
}

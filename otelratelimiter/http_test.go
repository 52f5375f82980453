// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/stretchr/testify/require"
)

func TestDecisions(t *testing.T) {
	w := newWorld(t)
	decisions, err := Decisions(w.options...)
	require.NoError(t, err)
	m, err := inbound.New(w.client, "api", ratelimiter.Rate{Permits: 2, Interval: time.Minute}, inbound.WithDecisions(decisions))
	require.NoError(t, err)
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
	events, err := Events(w.options...)
	require.NoError(t, err)
	events(httplimit.Event{Kind: httplimit.EventAdmitted})
	for range 2 {
		events(httplimit.Event{Kind: httplimit.EventThrottled, Reason: "90018", Banned: true, Request: httptest.NewRequest("GET", "/", nil)})
	}
	require.Equal(t, map[string]float64{"banned=true reason=90018 scope=": 2}, w.points("httplimit.client.throttled"))
}

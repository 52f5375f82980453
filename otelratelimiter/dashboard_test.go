// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// inPrometheus returns the name of an instrument in Prometheus, as OTLP and the exporter of a Collector make it: with its
// unit, unless that is a note in braces, and _total for a counter.
func inPrometheus(m metricdata.Metrics) string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		if d.IsMonotonic {
			name += "_total"
		}
	case metricdata.Sum[float64]:
		if d.IsMonotonic {
			name += "_total"
		}
	}
	return name
}

// TestDashboard holds the dashboard to that of prometheusratelimiter, from which it differs in the names of some metrics, and
// those to the instruments. RATELIMITER_DASHBOARD=write writes it.
func TestDashboard(t *testing.T) {
	raw := redistest.Must(os.ReadFile("../prometheusratelimiter/dashboard.json"))(t)
	want := strings.NewReplacer("ratelimiter_call_batch_requests_", "ratelimiter_call_batch_", "ratelimiter_refunded_permits_total",
		"ratelimiter_refunded_total", "ratelimiter_healed_permits_total", "ratelimiter_healed_total",
		`"title": "Rate limiters"`, `"title": "Rate limiters (OpenTelemetry)"`, `"uid": "goredisson-ratelimiter"`, `"uid": "goredisson-ratelimiter-otel"`).Replace(string(raw))
	if os.Getenv("RATELIMITER_DASHBOARD") == "write" {
		require.NoError(t, os.WriteFile("dashboard.json", []byte(want), 0o644))
	}
	got := redistest.Must(os.ReadFile("dashboard.json"))(t)
	require.Equal(t, want, string(got), "RATELIMITER_DASHBOARD=write writes it anew")
	require.NotEqual(t, string(raw), string(got))
	var d struct{ Title, UID string }
	require.NoError(t, json.Unmarshal(got, &d))
	require.Contains(t, d.Title, "OpenTelemetry")
	require.Contains(t, d.UID, "otel")

	w := newWorld(t)
	hook := redistest.Must(NewHook(w.options...))(t)
	hook.Request(t.Context(), ratelimiter.RequestInfo{ClockSkew: time.Second})
	hook.Waiting("a", 1)
	hook.Call(ratelimiter.CallInfo{Refunded: 1, Healed: ratelimiter.Healed{Lost: 1}})
	for _, kind := range []ratelimiter.EventKind{ratelimiter.OutageBegan, ratelimiter.OutageEnded, ratelimiter.Panicked} {
		hook.Event(ratelimiter.Event{Kind: kind})
	}
	w.limiter("a", 5, time.Minute)
	r := redistest.Must(Watch(w.client, []string{"a"}, w.options...))(t)
	defer func() { require.NoError(t, r.Unregister()) }()
	var all metricdata.ResourceMetrics
	require.NoError(t, w.reader.Collect(context.Background(), &all))
	there := map[string]bool{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			there[inPrometheus(m)] = true
		}
	}
	for _, n := range regexp.MustCompile(`ratelimiter_[a-z_]+`).FindAllString(string(got), -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			n = strings.TrimSuffix(n, suffix)
		}
		require.True(t, there[n], "the dashboard asks for %s; there are %v", n, there)
	}
}

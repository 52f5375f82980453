// SPDX-License-Identifier: Apache-2.0

// Package otlp_test sends the metrics and spans of module otelratelimiter by OTLP to a real OpenTelemetry Collector. It
// is a module of its own, outside go.work, so that nothing else depends on the collector and the exporters.
package otlp_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/otelratelimiter"
)

// A collector is an OpenTelemetry Collector in this process that receives OTLP over HTTP and keeps what comes out of
// its pipelines.
type collector struct {
	addr    string
	metrics consumertest.MetricsSink
	traces  consumertest.TracesSink
}

type (
	keptMetrics struct {
		component.StartFunc
		component.ShutdownFunc
		*consumertest.MetricsSink
	}
	keptTraces struct {
		component.StartFunc
		component.ShutdownFunc
		*consumertest.TracesSink
	}
)

func startCollector(t *testing.T) *collector {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &collector{addr: l.Addr().String()}
	require.NoError(t, l.Close())
	none := func() component.Config { return &struct{}{} }
	keep := exporter.NewFactory(component.MustNewType("keep"), none,
		exporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) {
			return keptMetrics{MetricsSink: &c.metrics}, nil
		}, component.StabilityLevelStable),
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			return keptTraces{TracesSink: &c.traces}, nil
		}, component.StabilityLevelStable))
	config := fmt.Sprintf(`yaml:{receivers: {otlp: {protocols: {http: {endpoint: "%s"}}}}, exporters: {keep: {}},
		service: {pipelines: {metrics: {receivers: [otlp], exporters: [keep]}, traces: {receivers: [otlp], exporters: [keep]}}}}`, c.addr)
	col, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.NewDefaultBuildInfo(),
		Factories: func() (otelcol.Factories, error) {
			otlp := otlpreceiver.NewFactory()
			return otelcol.Factories{
				Receivers: map[component.Type]receiver.Factory{otlp.Type(): otlp},
				Exporters: map[component.Type]exporter.Factory{keep.Type(): keep},
				Telemetry: telemetry.NewFactory(none),
			}, nil
		},
		DisableGracefulShutdown: true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{config}, ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- col.Run(context.Background()) }()
	for col.GetState() != otelcol.StateRunning {
		select {
		case err := <-ended:
			t.Fatalf("the collector ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	t.Cleanup(func() {
		col.Shutdown()
		require.NoError(t, <-ended)
	})
	return c
}

// points returns the points of a metric in what came last, as "attributes" to a number: the sum of a counter, the
// value of a gauge, the count of a histogram. kind describes the metric.
func (c *collector) points(t *testing.T, name string) (kind string, points map[string]float64) {
	t.Helper()
	all := c.metrics.AllMetrics()
	require.NotEmpty(t, all)
	points = map[string]float64{}
	number := func(list pmetric.NumberDataPointSlice) {
		for _, p := range list.All() {
			if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
				points[text(p.Attributes())] = float64(p.IntValue())
			} else {
				points[text(p.Attributes())] = p.DoubleValue()
			}
		}
	}
	for _, r := range all[len(all)-1].ResourceMetrics().All() {
		for _, s := range r.ScopeMetrics().All() {
			require.Equal(t, otelratelimiter.Scope, s.Scope().Name())
			for _, m := range s.Metrics().All() {
				if m.Name() != name {
					continue
				}
				kind = m.Type().String() + " " + m.Unit()
				switch m.Type() {
				case pmetric.MetricTypeSum:
					if m.Sum().IsMonotonic() {
						kind = "monotonic " + kind
					}
					number(m.Sum().DataPoints())
				case pmetric.MetricTypeGauge:
					number(m.Gauge().DataPoints())
				case pmetric.MetricTypeHistogram:
					for _, p := range m.Histogram().DataPoints().All() {
						points[text(p.Attributes())] = float64(p.Count())
					}
				}
			}
		}
	}
	return kind, points
}

func text(m pcommon.Map) string {
	var parts []string
	for _, k := range []string{"policy", "operation", "outcome", "degraded", "script", "cause", "error.type"} {
		if v, ok := m.Get(k); ok {
			parts = append(parts, k+"="+v.AsString())
		}
	}
	return strings.Join(parts, " ")
}

func (c *collector) spans(name string) (list []ptrace.Span) {
	for _, all := range c.traces.AllTraces() {
		for _, r := range all.ResourceSpans().All() {
			for _, s := range r.ScopeSpans().All() {
				for _, span := range s.Spans().All() {
					if span.Name() == name {
						list = append(list, span)
					}
				}
			}
		}
	}
	return list
}

// TestCollector checks that a collector gets every instrument with its kind, unit and attributes, and the spans of
// requests that waited with their links.
func TestCollector(t *testing.T) {
	c, ctx := startCollector(t), t.Context()
	metrics, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpoint(c.addr), otlpmetrichttp.WithInsecure())
	require.NoError(t, err)
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(metrics, metric.WithInterval(time.Hour))))
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(c.addr), otlptracehttp.WithInsecure())
	require.NoError(t, err)
	tracers := trace.NewTracerProvider(trace.WithBatcher(spans))
	options := []otelratelimiter.Option{otelratelimiter.WithMeterProvider(meters), otelratelimiter.WithTracerProvider(tracers),
		otelratelimiter.WithPolicies(func(limiter string) string { return limiter[:3] })}
	hook, err := otelratelimiter.NewHook(options...)
	require.NoError(t, err)
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	client := clienttest.New(t, rdb, ratelimiter.WithHook(hook))
	defer client.Close()
	watching, err := otelratelimiter.Watch(client, []string{"api:203.0.113.7"}, options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, watching.Unregister()) }()

	l := client.RateLimiter("api:203.0.113.7")
	require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 2, Interval: 2 * time.Second}))
	for _, permits := range []int64{2, 1} { // those of one call come back at one instant, for both callers below
		_, err := l.Allow(ctx, permits)
		require.NoError(t, err)
	}
	callers := tracers.Tracer("callers")
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			ctx, span := callers.Start(ctx, fmt.Sprint("caller ", i))
			defer span.End()
			require.NoError(t, l.Acquire(ctx, 1))
		})
	}
	wg.Wait()
	require.NoError(t, server.Set("{api:203.0.113.7}:value", "5"))
	require.NoError(t, l.Admin().Heal(ctx))
	server.SetError("LOADING Redis is loading the dataset in memory")
	_, err = l.Allow(ctx, 1)
	require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
	server.SetError("")
	_, err = l.TryAcquire(ctx, 1, time.Minute)
	require.NoError(t, err)
	require.NoError(t, meters.ForceFlush(ctx))
	require.NoError(t, tracers.ForceFlush(ctx))

	for name, want := range map[string]struct {
		kind   string
		points map[string]float64
	}{
		"ratelimiter.requests": {"monotonic Sum {request}", map[string]float64{
			"policy=api operation=allow outcome=granted degraded=false": 1, "policy=api operation=allow outcome=rejected degraded=false": 1,
			"policy=api operation=acquire outcome=granted degraded=false": 3, "policy=api operation=allow outcome=error degraded=false": 1}},
		"ratelimiter.permits":         {"monotonic Sum {permit}", map[string]float64{"policy=api outcome=granted": 5, "policy=api outcome=rejected": 1, "policy=api outcome=error": 1}},
		"ratelimiter.wait.duration":   {"Histogram s", map[string]float64{"policy=api outcome=granted": 4, "policy=api outcome=rejected": 1, "policy=api outcome=error": 1}},
		"ratelimiter.waiting":         {"Sum {request}", map[string]float64{"policy=api": 0}},
		"ratelimiter.call.duration":   {"Histogram s", nil},
		"ratelimiter.call.batch":      {"Histogram {request}", nil},
		"ratelimiter.healed":          {"monotonic Sum {permit}", map[string]float64{"policy=api cause=surplus": 5}},
		"ratelimiter.outage.state":    {"Sum {outage}", map[string]float64{"": 0}},
		"ratelimiter.outage.duration": {"Histogram s", map[string]float64{"": 1}},
		"ratelimiter.limit":           {"Gauge {permit}", map[string]float64{"policy=api": 2}},
	} {
		kind, points := c.points(t, name)
		require.Equal(t, want.kind, kind, name)
		if want.points != nil {
			require.Equal(t, want.points, points, name)
		}
		require.NotEmpty(t, points, name)
	}
	waits := c.spans("ratelimiter.acquire")
	require.GreaterOrEqual(t, len(waits), 2)
	links := 0
	for _, s := range waits {
		links += s.Links().Len()
		require.NotContains(t, fmt.Sprint(s.Attributes().AsRaw()), "203.0.113.7")
	}
	require.Equal(t, 1, links, "of two callers that shared a call, one led it")
}

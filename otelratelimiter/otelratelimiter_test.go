package otelratelimiter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A world is a limiter on miniredis whose Client has a Hook of the SDK.
type world struct {
	t       *testing.T
	server  *miniredis.Miniredis
	client  *ratelimiter.Client
	reader  *metric.ManualReader
	meters  *metric.MeterProvider
	spans   *tracetest.SpanRecorder
	options []Option
}

func newWorld(t *testing.T, opts ...Option) *world {
	w := &world{t: t, server: miniredis.RunT(t), reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	w.meters = metric.NewMeterProvider(metric.WithReader(w.reader))
	w.options = append([]Option{WithMeterProvider(w.meters),
		WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans)))}, opts...)
	hook, err := NewHook(w.options...)
	require.NoError(t, err)
	rdb := redis.NewClient(&redis.Options{Addr: w.server.Addr()})
	w.client = ratelimiter.New(rdb, ratelimiter.WithHook(hook))
	t.Cleanup(func() {
		require.NoError(t, w.client.Close())
		require.NoError(t, rdb.Close())
		require.NoError(t, w.meters.Shutdown(context.Background()))
	})
	return w
}

func (w *world) limiter(name string, permits int64, interval time.Duration) *ratelimiter.RateLimiter {
	w.t.Helper()
	l := w.client.RateLimiter(name)
	require.NoError(w.t, l.SetRate(w.t.Context(), ratelimiter.Rate{Permits: permits, Interval: interval}))
	return l
}

// points returns the data points of a metric, as "attributes" to a number: the sum of a counter, the value of a
// gauge, the count of a histogram.
func (w *world) points(name string) map[string]float64 {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(w.t, w.reader.Collect(context.Background(), &all))
	got := map[string]float64{}
	for _, s := range all.ScopeMetrics {
		require.Equal(w.t, Scope, s.Scope.Name)
		for _, m := range s.Metrics {
			if m.Name != name {
				continue
			}
			require.NotEmpty(w.t, m.Unit)
			require.NotEmpty(w.t, m.Description)
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				add(got, d.DataPoints)
			case metricdata.Gauge[int64]:
				add(got, d.DataPoints)
			case metricdata.Gauge[float64]:
				add(got, d.DataPoints)
			case metricdata.Histogram[int64]:
				count(got, d.DataPoints)
			case metricdata.Histogram[float64]:
				count(got, d.DataPoints)
			default:
				w.t.Fatalf("%s is a %T", name, d)
			}
		}
	}
	return got
}

func add[N int64 | float64](got map[string]float64, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		got[text(p.Attributes)] = float64(p.Value)
	}
}

func count[N int64 | float64](got map[string]float64, points []metricdata.HistogramDataPoint[N]) {
	for _, p := range points {
		got[text(p.Attributes)] = float64(p.Count)
	}
}

func text(s attribute.Set) string {
	var b []string
	for _, kv := range s.ToSlice() {
		b = append(b, fmt.Sprintf("%s=%s", kv.Key, kv.Value.Emit()))
	}
	return strings.Join(b, " ")
}

func TestRequests(t *testing.T) {
	w := newWorld(t, WithPolicies(func(limiter string) string { return limiter[:3] }))
	ctx := t.Context()
	l := w.limiter("api:203.0.113.7", 2, time.Minute)
	for range 3 {
		_, err := l.Try(ctx, 1)
		require.NoError(t, err)
	}
	_, err := l.Peek(ctx, 1)
	require.NoError(t, err)
	ok, err := l.TryAcquire(ctx, 2, 20*time.Millisecond)
	require.NoError(t, err)
	require.False(t, ok)
	_, err = l.Try(ctx, 0)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, l.Acquire(done, 1))

	require.Equal(t, map[string]float64{
		"degraded=false operation=try outcome=granted policy=api":      2,
		"degraded=false operation=try outcome=refused policy=api":      1,
		"degraded=false operation=peek outcome=refused policy=api":     1,
		"degraded=false operation=acquire outcome=timeout policy=api":  1,
		"degraded=false operation=acquire outcome=canceled policy=api": 1,
		"degraded=false operation=try outcome=error policy=api":        1,
	}, w.points("ratelimiter.requests"))
	require.Equal(t, map[string]float64{
		"outcome=granted policy=api": 2, "outcome=refused policy=api": 2, "outcome=timeout policy=api": 2,
		"outcome=canceled policy=api": 1, "outcome=error policy=api": 0,
	}, w.points("ratelimiter.permits"))
	require.Equal(t, map[string]float64{
		"outcome=granted policy=api": 2, "outcome=refused policy=api": 2, "outcome=timeout policy=api": 1,
		"outcome=canceled policy=api": 1, "outcome=error policy=api": 1,
	}, w.points("ratelimiter.wait.duration"))
	require.Equal(t, map[string]float64{"policy=api": 0}, w.points("ratelimiter.waiting"))

	calls := w.points("ratelimiter.call.duration")
	require.EqualValues(t, 1, calls["script=set_rate"])
	require.GreaterOrEqual(t, calls["script=acquire"], 5.0)
	require.Equal(t, calls, w.points("ratelimiter.call.batch"))

	spans := w.spans.Ended()
	require.Len(t, spans, 1, "only the one that waited")
	require.Equal(t, "ratelimiter.acquire", spans[0].Name())
	require.GreaterOrEqual(t, spans[0].EndTime().Sub(spans[0].StartTime()), 20*time.Millisecond)
	require.Contains(t, spans[0].Attributes(), attribute.String("outcome", "timeout"))
	require.Equal(t, codes.Unset, spans[0].Status().Code)
}

// No name of a limiter is in a metric unless WithPolicies puts it there.
func TestWithoutPolicies(t *testing.T) {
	w := newWorld(t)
	_, err := w.limiter("secret", 1, time.Minute).Try(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"degraded=false operation=try outcome=granted policy=_OTHER": 1}, w.points("ratelimiter.requests"))
}

func TestOutage(t *testing.T) {
	w := newWorld(t)
	l := w.limiter("a", 1, time.Minute)
	w.server.SetError("LOADING Redis is loading the dataset in memory")
	_, err := l.Try(t.Context(), 1)
	require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
	require.Equal(t, map[string]float64{"": 1}, w.points("ratelimiter.outage.state"))
	require.NotZero(t, w.points("ratelimiter.call.duration")["error.type=LOADING script=acquire"], w.points("ratelimiter.call.duration"))
	w.server.SetError("")
	require.NoError(t, l.Acquire(t.Context(), 1))
	require.Equal(t, map[string]float64{"": 0}, w.points("ratelimiter.outage.state"))
	require.Equal(t, map[string]float64{"": 1}, w.points("ratelimiter.outage.duration"))
	require.Empty(t, w.points("ratelimiter.panics"))
}

func TestWatch(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	a, b := w.limiter("a", 5, time.Minute), w.limiter("b", 7, time.Minute)
	_, err := a.Try(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, b.CoolDown(ctx, time.Now().Add(time.Hour)))
	watching, err := Watch(w.client, []string{"a", "b"}, w.options...)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"policy=a": 5, "policy=b": 7}, w.points("ratelimiter.limit"))
	require.Equal(t, map[string]float64{"policy=a": 3, "policy=b": 0}, w.points("ratelimiter.available"))
	cool := w.points("ratelimiter.cooldown.remaining")
	require.Zero(t, cool["policy=a"])
	require.InDelta(t, time.Hour.Seconds(), cool["policy=b"], 600)
	require.NoError(t, watching.Unregister())
	require.Empty(t, w.points("ratelimiter.limit"))

	_, err = Watch(w.client, make([]string, 65), w.options...)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
}

// A limiter that is absent fails the collection's callback and hides nothing of the others.
func TestWatchOfAnAbsentLimiter(t *testing.T) {
	w := newWorld(t)
	w.limiter("a", 5, time.Minute)
	_, err := Watch(w.client, []string{"absent", "a"}, w.options...)
	require.NoError(t, err)
	var all metricdata.ResourceMetrics
	require.ErrorIs(t, w.reader.Collect(t.Context(), &all), ratelimiter.ErrNotInitialized)
}

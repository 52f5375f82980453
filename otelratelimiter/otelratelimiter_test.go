// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A world is a limiter on miniredis whose Client has a Hook of the SDK.
type world struct {
	t       *testing.T
	server  *miniredis.Miniredis
	rdb     *redis.Client
	client  *ratelimiter.Client
	reader  *metric.ManualReader
	meters  *metric.MeterProvider
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
	options []Option
}

func newWorld(t *testing.T, opts ...Option) *world {
	redistest.NoServer(t)
	w := &world{t: t, server: miniredis.RunT(t), reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	w.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans))
	w.meters = metric.NewMeterProvider(metric.WithReader(w.reader))
	w.options = append([]Option{WithMeterProvider(w.meters),
		WithTracerProvider(w.tracers)}, opts...)
	hook := redistest.Must(NewHook(w.options...))(t)
	rdb := redis.NewClient(&redis.Options{Addr: w.server.Addr()})
	w.rdb, w.client = rdb, clienttest.New(t, rdb, ratelimiter.WithHook(hook))
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
		b = append(b, fmt.Sprintf("%s=%s", kv.Key, kv.Value.String()))
	}
	return strings.Join(b, " ")
}

func TestRequests(t *testing.T) {
	w := newWorld(t, WithPolicies(firstPart))
	clienttest.EveryOutcome(t, w.limiter("api:203.0.113.7", 2, time.Minute))
	require.Equal(t, map[string]float64{
		"degraded=false operation=allow outcome=granted policy=api":    2,
		"degraded=false operation=allow outcome=rejected policy=api":   1,
		"degraded=false operation=peek outcome=granted policy=api":     1,
		"degraded=false operation=peek outcome=rejected policy=api":    1,
		"degraded=false operation=acquire outcome=timeout policy=api":  1,
		"degraded=false operation=acquire outcome=canceled policy=api": 1,
		"degraded=false operation=allow outcome=error policy=api":      1,
	}, w.points("ratelimiter.requests"))
	require.Equal(t, map[string]float64{
		"outcome=granted policy=api": 2, "outcome=rejected policy=api": 1, "outcome=timeout policy=api": 2,
		"outcome=canceled policy=api": 1, "outcome=error policy=api": 0,
	}, w.points("ratelimiter.permits"))
	require.Equal(t, map[string]float64{
		"outcome=granted policy=api": 2, "outcome=rejected policy=api": 1, "outcome=timeout policy=api": 1,
		"outcome=canceled policy=api": 1, "outcome=error policy=api": 1,
	}, w.points("ratelimiter.wait.duration"))
	require.Equal(t, map[string]float64{"policy=api": 0}, w.points("ratelimiter.waiting"))

	calls := w.points("ratelimiter.call.duration")
	require.EqualValues(t, 1, calls["script=set_rate"])
	require.GreaterOrEqual(t, calls["script=acquire"]+calls["script=acquire_rest"], 5.0)
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
	redistest.Must(w.limiter("secret", 1, time.Minute).Allow(t.Context(), 1))(t)
	require.Equal(t, map[string]float64{"degraded=false operation=allow outcome=granted policy=_OTHER": 1}, w.points("ratelimiter.requests"))
}

// What a call heals is counted by what was wrong, and nothing is while a limiter is healthy.
func TestHealed(t *testing.T) {
	w := newWorld(t, WithPolicies(firstPart))
	l := w.limiter("api:203.0.113.7", 5, time.Minute)
	for range 6 {
		redistest.Must(l.Allow(t.Context(), 1))(t)
	}
	require.NoError(t, l.Admin().Heal(t.Context()))
	require.Empty(t, w.points("ratelimiter.healed"))
	for value, try := range map[string]int64{"-3": 0, "x": 1} { // three are lost, and then all
		require.NoError(t, w.server.Set("{api:203.0.113.7}:value", value))
		if try == 0 {
			require.NoError(t, l.Admin().Heal(t.Context()))
			continue
		}
		redistest.Must(l.Allow(t.Context(), try))(t)
	}
	require.Equal(t, map[string]float64{"cause=lost policy=api": 3, "cause=value policy=api": 5}, w.points("ratelimiter.healed"))
}

// A request that waited is linked to the traced caller whose request led their shared call, and to nobody else.
func TestSpanIsLinkedToTheSharedCall(t *testing.T) {
	w := newWorld(t)
	l := w.limiter("a", 3, 2*time.Second)
	redistest.Must(l.Allow(t.Context(), 3))(t)
	calls := &callSpans{ids: map[trace.SpanID]bool{}}
	w.rdb.AddHook(calls)
	callers := w.tracers.Tracer("callers")
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			ctx, span := callers.Start(context.Background(), fmt.Sprint("caller ", i))
			defer span.End()
			require.NoError(t, l.Acquire(ctx, 1))
		})
	}
	wg.Wait()
	byCaller, waits := map[trace.SpanID]bool{}, []sdktrace.ReadOnlySpan{}
	for _, s := range w.spans.Ended() {
		if s.Name() == "ratelimiter.acquire" {
			waits = append(waits, s)
		} else {
			byCaller[s.SpanContext().SpanID()] = true
		}
	}
	require.Len(t, waits, 3)
	links := 0
	for _, s := range waits {
		require.True(t, byCaller[s.Parent().SpanID()])
		require.LessOrEqual(t, len(s.Links()), 1)
		for _, link := range s.Links() {
			links++
			require.True(t, byCaller[link.SpanContext.SpanID()])
			require.True(t, calls.ids[link.SpanContext.SpanID()], "the redis client traces the call under it")
			require.NotEqual(t, s.Parent().SpanID(), link.SpanContext.SpanID(), "its own caller is its parent already")
			require.Empty(t, link.Attributes)
		}
	}
	require.Equal(t, 2, links, "the third led the call")
}

// callSpans is a hook of the redis client that keeps the spans under which it would trace calls.
type callSpans struct {
	redistest.Passing
	mu  sync.Mutex
	ids map[trace.SpanID]bool
}

func (c *callSpans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.mu.Lock()
		c.ids[trace.SpanContextFromContext(ctx).SpanID()] = true
		c.mu.Unlock()
		return next(ctx, cmd)
	}
}

// Which caller led a call is only of use if that caller is recorded.
func TestLeader(t *testing.T) {
	tracer := sdktrace.NewTracerProvider().Tracer("")
	none := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("")
	ctx := t.Context()
	a, _ := tracer.Start(ctx, "a")
	b, _ := tracer.Start(ctx, "b")
	unsampled, _ := none.Start(ctx, "c")
	for name, c := range map[string]struct {
		request, call context.Context
		linked        bool
	}{
		"another caller": {a, b, true}, "a caller that is not traced": {ctx, b, true}, "itself": {a, a, false},
		"no call": {a, nil, false}, "nobody traces": {ctx, ctx, false}, "not sampled": {a, unsampled, false},
	} {
		led, ok := leader(c.request, c.call)
		require.Equal(t, c.linked, ok, name)
		if ok {
			require.Equal(t, trace.SpanContextFromContext(b), led)
		}
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { leader(ctx, ctx) }))
}

func TestOutage(t *testing.T) {
	w := newWorld(t)
	l := w.limiter("a", 1, time.Minute)
	w.server.SetError("LOADING Redis is loading the dataset in memory")
	_, err := l.Allow(t.Context(), 1)
	require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
	soon := func(name string) { // those who wait for Redis are let go a moment before the event
		t.Helper()
		require.Eventually(t, func() bool { return maps.Equal(map[string]float64{"": 1}, w.points(name)) }, 10*time.Second, time.Millisecond, name)
	}
	soon("ratelimiter.outage.state")
	calls := w.points("ratelimiter.call.duration")
	require.NotZero(t, calls["error.type=LOADING script=acquire"]+calls["error.type=LOADING script=acquire_rest"], calls) // a call that looks further, now and then
	w.server.SetError("")
	require.NoError(t, l.Acquire(t.Context(), 1))
	soon("ratelimiter.outage.duration")
	require.Equal(t, map[string]float64{"": 0}, w.points("ratelimiter.outage.state"))
	require.Empty(t, w.points("ratelimiter.panics"))
}

func TestWatch(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	a, b := w.limiter("a", 5, time.Minute), w.limiter("b", 7, time.Minute)
	redistest.Must(a.Allow(ctx, 2))(t)
	require.NoError(t, b.CoolDown(ctx, time.Now().Add(time.Hour)))
	watching := redistest.Must(Watch(w.client, []string{"a", "b"}, w.options...))(t)
	require.Equal(t, map[string]float64{"policy=a": 5, "policy=b": 7}, w.points("ratelimiter.limit"))
	require.Equal(t, map[string]float64{"policy=a": 3, "policy=b": 0}, w.points("ratelimiter.available"))
	cool := w.points("ratelimiter.cooldown.remaining")
	require.Zero(t, cool["policy=a"])
	require.InDelta(t, time.Hour.Seconds(), cool["policy=b"], 600)
	require.NoError(t, watching.Unregister())
	require.Empty(t, w.points("ratelimiter.limit"))

	_, err := Watch(w.client, make([]string, 65), w.options...)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
}

// A limiter that is absent fails the collection's callback and hides nothing of the others.
func TestWatchOfAnAbsentLimiter(t *testing.T) {
	w := newWorld(t)
	w.limiter("a", 5, time.Minute)
	redistest.Must(Watch(w.client, []string{"absent", "a"}, w.options...))(t)
	var all metricdata.ResourceMetrics
	require.ErrorIs(t, w.reader.Collect(t.Context(), &all), ratelimiter.ErrNotInitialized)
}

// TestClientInfo has the id of each Client and the process as which it is known, of the first ones that share the Hook.
func TestClientInfo(t *testing.T) {
	w := newWorld(t)
	id := w.client.ID()
	require.Equal(t, map[string]float64{"client_id=" + id + " process=" + id[:4]: 1}, w.points("ratelimiter.client.info"))
	hook := redistest.Must(NewHook(w.options...))(t)
	for i := range 100 {
		hook.Started(ratelimiter.ClientInfo{ID: fmt.Sprint(i)})
	}
	require.Len(t, w.points("ratelimiter.client.info"), 1+16)
}

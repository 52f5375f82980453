// SPDX-License-Identifier: Apache-2.0

// Package otelratelimiter provides OpenTelemetry metrics and traces of rate limiters.
//
//	hook, err := otelratelimiter.NewHook(otelratelimiter.WithPolicies(func(limiter string) string {
//		name, _, _ := strings.Cut(limiter, ":")
//		return name
//	}))
//	if err != nil {
//		return err
//	}
//	client, err := ratelimiter.New(rdb, ratelimiter.WithHook(hook))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// [NewHook] is for limiters, [Events] for an httplimit.Transport, and [Decisions] for an inbound.Middleware. [Watch]
// reports the state of single limiters. The instruments are listed in docs/metrics.md of the module github.com/goredisson/ratelimiter. Their shape follows
// the aspnetcore.rate_limiting metrics of OpenTelemetry's semantic conventions. Names of limiters may contain users,
// addresses or tokens, so no metric has them. Instead, the attribute policy has the value that the function of
// [WithPolicies] returns for a name. It has at most 64 values.
package otelratelimiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/metricname"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/goredisson/ratelimiter/otelratelimiter"

// An Option configures the functions of this package.
type Option func(*config)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	policy  func(string) string
}

// WithMeterProvider sets the provider of the meters. The default is the global MeterProvider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets the provider of the tracers. The default is the global TracerProvider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithPolicies sets the function that returns the value of the attribute policy for a limiter's name. Values should
// be few, such as the name of a rule or a kind of limiters: the first 64 are kept, and the others become _OTHER. The
// function must be safe for concurrent use. The default is _OTHER for all limiters.
func WithPolicies(f func(limiter string) string) Option { return func(c *config) { c.policy = f } }

func configure(opts []Option) config {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, o := range opts {
		if o == nil {
			continue
		}
		o(&c)
	}
	return c
}

// NewHook returns a Hook for [ratelimiter.WithHook], which several Clients may share. The error is that of the
// MeterProvider.
//
// A request that waited has a span, ratelimiter.acquire, from its beginning to its end; other requests have none.
// Several requests may share the script call that decides them. If the request of another, traced caller led that
// call, the span has a link to that caller's span, under which the redis client traces the call.
func NewHook(opts ...Option) (ratelimiter.Hook, error) {
	c := configure(opts)
	in, err := newInstruments(c.meters.Meter(Scope))
	if err != nil {
		return ratelimiter.Hook{}, err
	}
	h := &hook{instruments: in, tracer: c.tracers.Tracer(Scope), policies: metricname.Policies(c.policy),
		ended: metricname.Cached(requestKey.bind), called: metricname.Cached(callKey.bind), policy: metricname.Cached(bindPolicy)}
	return ratelimiter.Hook{Started: h.started, Request: h.request, Waiting: h.waiting, Call: h.call, Event: h.event}, nil
}

type hook struct {
	instruments
	tracer   trace.Tracer
	policies func(limiter string) string
	ended    func(requestKey) requestSets
	called   func(callKey) callSets
	policy   func(string) sets
	made     atomic.Int32 // Clients
}

func (h *hook) started(c ratelimiter.ClientInfo) {
	if h.made.Add(1) <= metricname.MaxClients {
		h.clients.Record(context.Background(), 1, metric.WithAttributes(attribute.String("client_id", c.ID), attribute.String("process", c.Process)))
	}
}

// A sets is a set of attributes in the form that the instruments' methods take. Making one takes longer than
// counting, so each is made once.
type sets struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func setsOf(attributes ...attribute.KeyValue) sets {
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return sets{[]metric.AddOption{set}, []metric.RecordOption{set}}
}

func bindPolicy(policy string) sets { return setsOf(attribute.String("policy", policy)) }

// A requestKey is the key of a requestSets: all that its attributes depend on.
type requestKey struct {
	policy    string
	operation ratelimiter.Operation
	outcome   ratelimiter.RequestOutcome
	degraded  bool
}

// A requestSets has the set of ratelimiter.requests and that of its other instruments.
type requestSets struct{ all, outcome sets }

func (k requestKey) bind() requestSets {
	policy, outcome := attribute.String("policy", k.policy), attribute.String("outcome", string(k.outcome))
	return requestSets{setsOf(policy, outcome, attribute.String("operation", string(k.operation)), attribute.Bool("degraded", k.degraded)),
		setsOf(policy, outcome)}
}

// A callKey is the key of a callSets: all that its attributes depend on. The errorType is "" for none.
type callKey struct{ script, errorType string }

// A callSets has the set of ratelimiter.call.duration and that of ratelimiter.call.batch.
type callSets struct{ duration, batch sets }

func (k callKey) bind() callSets {
	script := attribute.String("script", k.script)
	attributes := []attribute.KeyValue{script}
	if k.errorType != "" {
		attributes = append(attributes, attribute.String("error.type", k.errorType))
	}
	return callSets{setsOf(attributes...), setsOf(script)}
}

// waited is the shortest duration of a request that counts as one that waited; less is taken for one round trip.
const waited = time.Millisecond

func (h *hook) request(ctx context.Context, r ratelimiter.RequestInfo) {
	policy := h.policies(r.Limiter)
	s := h.ended(requestKey{policy, r.Operation, r.Outcome, r.Degraded})
	h.requests.Add(ctx, 1, s.all.add...)
	if r.Operation != ratelimiter.OperationPeek { // which takes no permits, and never waits
		h.permits.Add(ctx, r.Permits, s.outcome.add...)
		h.wait.Record(ctx, r.Duration.Seconds(), s.outcome.record...)
	}
	if r.ClockSkew > 0 {
		h.skew.Record(ctx, r.ClockSkew.Seconds(), h.policy(policy).record...)
	}
	if r.Operation != ratelimiter.OperationAllow && r.Operation != ratelimiter.OperationPeek && r.Duration >= waited {
		h.span(ctx, attribute.String("policy", policy), r)
	}
}

func (h *hook) span(ctx context.Context, policy attribute.KeyValue, r ratelimiter.RequestInfo) {
	options := []trace.SpanStartOption{trace.WithTimestamp(r.Begin), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(policy,
			attribute.String("operation", string(r.Operation)),
			attribute.String("outcome", string(r.Outcome)),
			attribute.Int64("permits", r.Permits),
			attribute.Bool("degraded", r.Degraded))}
	if led, ok := leader(ctx, r.CallContext); ok {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: led}))
	}
	_, span := h.tracer.Start(ctx, "ratelimiter.acquire", options...)
	if r.Outcome == ratelimiter.RequestError {
		span.SetStatus(codes.Error, metricname.OfError(r.Err)) // its text may hold the name of the limiter
	}
	span.End(trace.WithTimestamp(r.Begin.Add(r.Duration)))
}

// leader returns the span under which the call that decided a request was made, if it is recorded and is not the
// request's own.
func leader(request, call context.Context) (trace.SpanContext, bool) {
	if call == nil {
		return trace.SpanContext{}, false
	}
	led, own := trace.SpanContextFromContext(call), trace.SpanContextFromContext(request)
	return led, led.IsValid() && led.IsSampled() && (led.TraceID() != own.TraceID() || led.SpanID() != own.SpanID())
}

func (h *hook) waiting(limiter string, delta int) {
	h.waits.Add(context.Background(), int64(delta), h.policy(h.policies(limiter)).add...)
}

func (h *hook) call(c ratelimiter.CallInfo) {
	ctx, key := context.Background(), callKey{script: c.Script}
	if c.Err != nil {
		key.errorType = metricname.OfError(c.Err)
	}
	s := h.called(key)
	h.callDuration.Record(ctx, c.Duration.Seconds(), s.duration.record...)
	h.batch.Record(ctx, c.Requests, s.batch.record...)
	if c.Refunded > 0 {
		h.refunded.Add(ctx, c.Refunded, h.policy(h.policies(c.Limiter)).add...)
	}
	metricname.EachHealed(c.Healed, func(cause string, permits int64) {
		policy := attribute.String("policy", h.policies(c.Limiter))
		h.healed.Add(ctx, permits, setsOf(policy, attribute.String("cause", cause)).add...)
	})
}

func (h *hook) event(e ratelimiter.Event) {
	ctx := context.Background()
	switch e.Kind {
	case ratelimiter.OutageBegan:
		h.outages.Add(ctx, 1)
	case ratelimiter.OutageEnded:
		h.outages.Add(ctx, -1)
		h.outageDuration.Record(ctx, e.Duration.Seconds())
	case ratelimiter.Panicked:
		h.panics.Add(ctx, 1)
	}
}

// Watch adds gauges for the named limiters of a Client: what they allow, how many permits they have left, and for how
// long they cool down. Each collection asks Redis three times for each name, so name few limiters: at most 64. Their
// names are the values of the attribute policy, unless [WithPolicies] is set. To stop, call Unregister of the
// Registration. Watch returns ratelimiter.ErrInvalidArgument for more names, or the error of the MeterProvider.
func Watch(client *ratelimiter.Client, names []string, opts ...Option) (metric.Registration, error) {
	c := configure(opts)
	if len(names) > metricname.MaxPolicies {
		return nil, fmt.Errorf("%w: %d limiters are more than the %d that can be watched", ratelimiter.ErrInvalidArgument, len(names), metricname.MaxPolicies)
	}
	if c.policy == nil {
		c.policy = func(limiter string) string { return limiter }
	}
	policies, m := metricname.Policies(c.policy), c.meters.Meter(Scope)
	limit, err1 := m.Int64ObservableGauge("ratelimiter.limit", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits that a limiter allows in an interval."))
	available, err2 := m.Int64ObservableGauge("ratelimiter.available", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits that a limiter has left."))
	coolDown, err3 := m.Float64ObservableGauge("ratelimiter.cooldown.remaining", metric.WithUnit("s"),
		metric.WithDescription("How long a limiter still cools down; 0 if it does not."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		var faults []error
		for _, name := range names {
			l := client.RateLimiter(name)
			policy := metric.WithAttributeSet(attribute.NewSet(attribute.String("policy", policies(name))))
			rate, err := l.Rate(ctx)
			if err == nil {
				var left int64
				if left, err = l.AvailablePermits(ctx); err == nil {
					o.ObserveInt64(limit, rate.Permits, policy)
					o.ObserveInt64(available, left, policy)
				}
			}
			var until time.Time
			if err == nil {
				until, err = l.Admin().CoolDownUntil(ctx)
			}
			if err != nil {
				faults = append(faults, err)
				continue
			}
			o.ObserveFloat64(coolDown, max(0, time.Until(until).Seconds()), policy)
		}
		return errors.Join(faults...)
	}, limit, available, coolDown)
}

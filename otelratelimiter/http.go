// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
	"context"
	"errors"
	"net/http"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/metricname"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Events returns a function for [httplimit.WithEvents]. It counts throttled responses in httplimit.client.throttled,
// by reason; platforms make up the reasons, and those after the first 64 become _OTHER. It counts responses that a
// detector could not read in httplimit.client.unread, and estimates that could not be settled in
// httplimit.client.unsettled. The error is that of the MeterProvider.
func Events(opts ...Option) (func(httplimit.Event), error) {
	c := configure(opts)
	meter := c.meters.Meter(Scope)
	throttled, err := meter.Int64Counter("httplimit.client.throttled", metric.WithUnit("{response}"),
		metric.WithDescription("Answers by which a platform throttled a request of ours."))
	unread, unreadErr := meter.Int64Counter("httplimit.client.unread", metric.WithUnit("{response}"),
		metric.WithDescription("Answers whose body a detector needed and could not read."))
	unsettled, unsettledErr := meter.Int64Counter("httplimit.client.unsettled", metric.WithUnit("{request}"),
		metric.WithDescription("Estimates of what a request uses that could not be settled."))
	if err := errors.Join(err, unreadErr, unsettledErr); err != nil {
		return nil, err
	}
	reasons := metricname.Policies(func(reason string) string { return reason })
	return func(e httplimit.Event) {
		ctx := context.Background()
		if e.Request != nil {
			ctx = e.Request.Context()
		}
		switch e.Kind {
		case httplimit.EventThrottled:
			throttled.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(attribute.String("scope", string(e.Scope)),
				attribute.String("reason", reasons(string(e.Reason))), attribute.Bool("banned", e.Banned))))
		case httplimit.EventUnread:
			unread.Add(ctx, 1)
		case httplimit.EventUnsettled:
			unsettled.Add(ctx, 1)
		}
	}, nil
}

// Decisions returns a function for [inbound.WithDecisions]. It counts the requests of a server in
// httplimit.server.requests. The error is that of the MeterProvider.
func Decisions(opts ...Option) (func(*http.Request, inbound.Decision), error) {
	c := configure(opts)
	requests, err := c.meters.Meter(Scope).Int64Counter("httplimit.server.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests to a server, by what its limit decided."))
	if err != nil {
		return nil, err
	}
	rules := metricname.Policies(func(name string) string { return name })
	type key struct {
		rule      string
		outcome   inbound.Outcome
		degraded  bool
		errorType string
	}
	of := metricname.Cached(func(k key) sets {
		attributes := []attribute.KeyValue{attribute.String("rule", k.rule), attribute.String("outcome", string(k.outcome)),
			attribute.Bool("degraded", k.degraded)}
		if k.errorType != "" {
			attributes = append(attributes, attribute.String("error.type", k.errorType))
		}
		return setsOf(attributes...)
	})
	return func(r *http.Request, d inbound.Decision) {
		k := key{rule: rules(d.Policy), outcome: d.Outcome, degraded: d.Degraded}
		if d.Err != nil && !errors.Is(d.Err, context.Canceled) {
			k.errorType = metricname.OfError(d.Err)
		}
		requests.Add(r.Context(), 1, of(k).add...)
	}, nil
}

// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
	"errors"

	"github.com/goredisson/ratelimiter/metricname"
	"go.opentelemetry.io/otel/metric"
)

type instruments struct {
	requests, permits, refunded, healed, panics metric.Int64Counter
	wait, callDuration, outageDuration          metric.Float64Histogram
	batch                                       metric.Int64Histogram
	waits, outages                              metric.Int64UpDownCounter
	skew                                        metric.Float64Gauge
	clients                                     metric.Int64Gauge
}

func newInstruments(m metric.Meter) (in instruments, err error) {
	wait, call, batch, outage := metricname.Bounds()
	var errs [13]error
	in.requests, errs[0] = m.Int64Counter("ratelimiter.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests for permits, those that only peek included, by how they ended."))
	in.permits, errs[1] = m.Int64Counter("ratelimiter.permits", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits that were asked for, other than by a peek, by how the request ended."))
	in.wait, errs[2] = m.Float64Histogram("ratelimiter.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("How long requests other than a peek took, their waits and round trips included."),
		metric.WithExplicitBucketBoundaries(wait...))
	in.waits, errs[3] = m.Int64UpDownCounter("ratelimiter.waiting", metric.WithUnit("{request}"),
		metric.WithDescription("Requests under way that may wait."))
	in.callDuration, errs[4] = m.Float64Histogram("ratelimiter.call.duration", metric.WithUnit("s"),
		metric.WithDescription("How long script calls took, as this process sees them."),
		metric.WithExplicitBucketBoundaries(call...))
	in.batch, errs[5] = m.Int64Histogram("ratelimiter.call.batch", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that shared a script call."),
		metric.WithExplicitBucketBoundaries(batch...))
	in.refunded, errs[6] = m.Int64Counter("ratelimiter.refunded", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits given back whose callers had left."))
	in.outages, errs[7] = m.Int64UpDownCounter("ratelimiter.outage.state", metric.WithUnit("{outage}"),
		metric.WithDescription("Redis servers, or parts of one, that are known to be unavailable."))
	in.outageDuration, errs[8] = m.Float64Histogram("ratelimiter.outage.duration", metric.WithUnit("s"),
		metric.WithDescription("How long outages of Redis lasted."),
		metric.WithExplicitBucketBoundaries(outage...))
	in.skew, errs[9] = m.Float64Gauge("ratelimiter.clock.skew", metric.WithUnit("s"),
		metric.WithDescription("How far the newest grant found lay ahead of the limiter's clock: a peer's clock is fast."))
	in.panics, errs[10] = m.Int64Counter("ratelimiter.panics", metric.WithUnit("{panic}"),
		metric.WithDescription("Panics of foreign code that were contained."))
	in.healed, errs[11] = m.Int64Counter("ratelimiter.healed", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits of limiters that were found broken in Redis and were healed, by what was wrong."))
	in.clients, errs[12] = m.Int64Gauge("ratelimiter.client.info", metric.WithUnit("{client}"),
		metric.WithDescription("Always 1: the id of each Client of this process, and the process by which rrl and the page know it."))
	return in, errors.Join(errs[:]...)
}

// SPDX-License-Identifier: Apache-2.0

// Package prometheusratelimiter provides Prometheus metrics of rate limiters.
//
//	hook, err := prometheusratelimiter.NewHook(prometheus.DefaultRegisterer, prometheusratelimiter.WithPolicies(func(limiter string) string {
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
// reports the state of single limiters. The metrics are listed in docs/metrics.md of the module github.com/goredisson/ratelimiter. Names of limiters may
// contain users, addresses or tokens, so no metric of NewHook has them. Instead, the label policy has the value that
// a function of yours returns for a name. It has at most 64 values.
package prometheusratelimiter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/metricname"
	"github.com/prometheus/client_golang/prometheus"
)

// An Option configures [NewHook].
type Option func(*config)

type config struct{ policy func(limiter string) string }

// WithPolicies sets the function that returns the value of the label policy for a limiter's name. Values should be few,
// such as the name of a rule or a kind of limiters: the first 64 are kept, and the others become _OTHER. The function
// must be safe for concurrent use. The default is _OTHER for all limiters.
func WithPolicies(f func(limiter string) string) Option { return func(c *config) { c.policy = f } }

// NewHook registers the metrics and returns a Hook for [ratelimiter.WithHook], which several Clients may share.
//
// NewHook returns the error of the Registerer, for instance if the metrics are registered already. Then this call has
// registered none of them.
func NewHook(reg prometheus.Registerer, opts ...Option) (ratelimiter.Hook, error) {
	var c config
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	wait, call, batch, outage := metricname.Bounds()
	h := &hook{
		policies: metricname.Policies(c.policy),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ratelimiter_requests_total",
			Help: "Requests for permits, those that only peek included, by how they ended."}, []string{"policy", "operation", "outcome", "degraded"}),
		permits: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ratelimiter_permits_total",
			Help: "Permits that were asked for, other than by a peek, by how the request ended."}, []string{"policy", "outcome"}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ratelimiter_wait_duration_seconds",
			Help:    "How long requests other than a peek took, their waits and round trips included.",
			Buckets: wait}, []string{"policy", "outcome"}),
		waits: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ratelimiter_waiting",
			Help: "Requests under way that may wait."}, []string{"policy"}),
		callDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ratelimiter_call_duration_seconds",
			Help:    "How long script calls took, as this process sees them.",
			Buckets: call}, []string{"script", "error_type"}),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ratelimiter_call_batch_requests",
			Help:    "Requests that shared a script call.",
			Buckets: batch}, []string{"script"}),
		refunded: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ratelimiter_refunded_permits_total",
			Help: "Permits given back whose callers had left."}, []string{"policy"}),
		healed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ratelimiter_healed_permits_total",
			Help: "Permits of limiters that were found broken in Redis and were healed, by what was wrong."}, []string{"policy", "cause"}),
		outages: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ratelimiter_outage_state",
			Help: "Redis servers, or parts of one, that are known to be unavailable."}),
		outageDuration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "ratelimiter_outage_duration_seconds",
			Help:    "How long outages of Redis lasted.",
			Buckets: outage}),
		skew: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ratelimiter_clock_skew_seconds",
			Help: "How far the newest grant found lay ahead of the limiter's clock: a peer's clock is fast."}, []string{"policy"}),
		clients: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ratelimiter_client_info",
			Help: "Always 1: the id of each Client of this process, and the process by which rrl and the page know it."}, []string{"client_id", "process"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "ratelimiter_panics_total",
			Help: "Panics of foreign code that were contained."}),
	}
	all := []prometheus.Collector{h.requests, h.permits, h.wait, h.waits, h.callDuration, h.batch, h.refunded, h.healed, h.outages,
		h.outageDuration, h.skew, h.clients, h.panics}
	for i, c := range all {
		if err := reg.Register(c); err != nil {
			for _, c := range all[:i] {
				reg.Unregister(c)
			}
			return ratelimiter.Hook{}, err
		}
	}
	h.ended, h.called, h.waited = metricname.Cached(h.bindRequest), metricname.Cached(h.bindCall), metricname.Cached(h.bindWaiting)
	return ratelimiter.Hook{Started: h.started, Request: h.request, Waiting: h.waiting, Call: h.call, Event: h.event}, nil
}

type hook struct {
	policies                            func(limiter string) string
	requests, permits, refunded, healed *prometheus.CounterVec
	wait, callDuration, batch           *prometheus.HistogramVec
	waits, skew, clients                *prometheus.GaugeVec
	outages                             prometheus.Gauge
	outageDuration                      prometheus.Histogram
	panics                              prometheus.Counter
	made                                atomic.Int32 // Clients

	ended  func(requestKey) requestMetrics
	called func(callKey) callMetrics
	waited func(string) prometheus.Gauge
}

// A requestKey is the key of a requestMetrics: all that its labels depend on.
type requestKey struct {
	policy    string
	operation ratelimiter.Operation
	outcome   ratelimiter.RequestOutcome
	degraded  bool
}

// A requestMetrics has metrics with their labels. Finding them takes longer than counting, so each is found once.
type requestMetrics struct {
	requests, permits prometheus.Counter
	wait              prometheus.Observer
}

func (h *hook) bindRequest(k requestKey) requestMetrics {
	outcome := string(k.outcome)
	return requestMetrics{h.requests.WithLabelValues(k.policy, string(k.operation), outcome, strconv.FormatBool(k.degraded)),
		h.permits.WithLabelValues(k.policy, outcome), h.wait.WithLabelValues(k.policy, outcome)}
}

// A callKey is the key of the metrics of a call: all that its labels depend on. The errorType is "" for none.
type callKey struct{ script, errorType string }

type callMetrics struct{ duration, batch prometheus.Observer }

func (h *hook) bindCall(k callKey) callMetrics {
	return callMetrics{h.callDuration.WithLabelValues(k.script, k.errorType), h.batch.WithLabelValues(k.script)}
}

func (h *hook) bindWaiting(policy string) prometheus.Gauge { return h.waits.WithLabelValues(policy) }

func (h *hook) started(c ratelimiter.ClientInfo) {
	if h.made.Add(1) <= metricname.MaxClients {
		h.clients.WithLabelValues(c.ID, c.Process).Set(1)
	}
}

func (h *hook) request(_ context.Context, r ratelimiter.RequestInfo) {
	policy := h.policies(r.Limiter)
	m := h.ended(requestKey{policy, r.Operation, r.Outcome, r.Degraded})
	m.requests.Inc()
	if r.Operation != ratelimiter.OperationPeek { // which takes no permits, and never waits
		m.permits.Add(float64(max(0, r.Permits)))
		m.wait.Observe(r.Duration.Seconds())
	}
	if r.ClockSkew > 0 {
		h.skew.WithLabelValues(policy).Set(r.ClockSkew.Seconds())
	}
}

func (h *hook) waiting(limiter string, delta int) {
	h.waited(h.policies(limiter)).Add(float64(delta))
}

func (h *hook) call(c ratelimiter.CallInfo) {
	key := callKey{script: c.Script}
	if c.Err != nil {
		key.errorType = metricname.OfError(c.Err)
	}
	m := h.called(key)
	m.duration.Observe(c.Duration.Seconds())
	m.batch.Observe(float64(c.Requests))
	if c.Refunded > 0 {
		h.refunded.WithLabelValues(h.policies(c.Limiter)).Add(float64(c.Refunded))
	}
	metricname.EachHealed(c.Healed, func(cause string, permits int64) {
		h.healed.WithLabelValues(h.policies(c.Limiter), cause).Add(float64(permits))
	})
}

func (h *hook) event(e ratelimiter.Event) {
	switch e.Kind {
	case ratelimiter.OutageBegan:
		h.outages.Inc()
	case ratelimiter.OutageEnded:
		h.outages.Dec()
		h.outageDuration.Observe(e.Duration.Seconds())
	case ratelimiter.Panicked:
		h.panics.Inc()
	}
}

// Watch returns a Collector of the named limiters of a Client: what they allow, how many permits they have left, and
// for how long they cool down. Their names are the values of the label policy. Each scrape asks Redis three times for
// each name, within one second in all, so name few limiters: at most 64. If a limiter cannot be read, the scrape does
// not contain it, and counts it in ratelimiter_watch_errors. Watch returns ratelimiter.ErrInvalidArgument for more
// than 64 names.
func Watch(client *ratelimiter.Client, names []string) (prometheus.Collector, error) {
	if len(names) > metricname.MaxPolicies {
		return nil, fmt.Errorf("%w: %d limiters are more than the %d that can be watched", ratelimiter.ErrInvalidArgument, len(names), metricname.MaxPolicies)
	}
	policy := []string{"policy"}
	return &watch{client, names,
		prometheus.NewDesc("ratelimiter_limit", "Permits that a limiter allows in an interval.", policy, nil),
		prometheus.NewDesc("ratelimiter_available", "Permits that a limiter has left.", policy, nil),
		prometheus.NewDesc("ratelimiter_cooldown_remaining_seconds", "How long a limiter still cools down; 0 if it does not.", policy, nil),
		prometheus.NewDesc("ratelimiter_watch_errors", "Watched limiters that could not be read in this scrape.", nil, nil),
	}, nil
}

type watch struct {
	client                             *ratelimiter.Client
	names                              []string
	limit, available, coolDown, errors *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (w *watch) Describe(to chan<- *prometheus.Desc) {
	to <- w.limit
	to <- w.available
	to <- w.coolDown
	to <- w.errors
}

// Collect implements prometheus.Collector.
func (w *watch) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	failed := 0
	for _, name := range w.names {
		l := w.client.RateLimiter(name)
		rate, err1 := l.Rate(ctx)
		left, err2 := l.AvailablePermits(ctx)
		until, err3 := l.Admin().CoolDownUntil(ctx)
		if errors.Join(err1, err2, err3) != nil {
			failed++
			continue
		}
		gauge := func(d *prometheus.Desc, v float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
		}
		gauge(w.limit, float64(rate.Permits))
		gauge(w.available, float64(left))
		gauge(w.coolDown, max(0, time.Until(until).Seconds()))
	}
	to <- prometheus.MustNewConstMetric(w.errors, prometheus.GaugeValue, float64(failed))
}

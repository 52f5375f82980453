// SPDX-License-Identifier: Apache-2.0

package prometheusratelimiter

import (
	"net/http"
	"strconv"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/metricname"
	"github.com/prometheus/client_golang/prometheus"
)

// Events registers a metric and returns a function for [httplimit.WithEvents]. It counts the answers by which
// platforms throttle in httplimit_client_throttled_total. Of the reasons, which platforms make up, the first 64 are
// kept. The error is that of the Registerer.
func Events(reg prometheus.Registerer) (func(httplimit.Event), error) {
	throttled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "httplimit_client_throttled_total",
		Help: "Answers by which a platform throttled a request of ours."}, []string{"scope", "reason", "banned"})
	if err := reg.Register(throttled); err != nil {
		return nil, err
	}
	reasons := metricname.NewPolicies(func(reason string) string { return reason })
	return func(e httplimit.Event) {
		if e.Kind == httplimit.EventThrottled {
			throttled.WithLabelValues(string(e.Scope), reasons.Of(string(e.Reason)), strconv.FormatBool(e.Banned)).Inc()
		}
	}, nil
}

// Decisions registers a metric and returns a function for [inbound.WithDecisions]. It counts the requests of a server
// in httplimit_server_requests_total. The error is that of the Registerer.
func Decisions(reg prometheus.Registerer) (func(*http.Request, inbound.Decision), error) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "httplimit_server_requests_total",
		Help: "Requests to a server, by what its limit decided."}, []string{"rule", "outcome", "degraded"})
	if err := reg.Register(requests); err != nil {
		return nil, err
	}
	rules := metricname.NewPolicies(func(name string) string { return name })
	return func(_ *http.Request, d inbound.Decision) {
		requests.WithLabelValues(rules.Of(d.Policy), string(d.Outcome), strconv.FormatBool(d.Degraded)).Inc()
	}, nil
}

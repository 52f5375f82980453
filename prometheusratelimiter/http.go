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

// Events registers metrics and returns a function for [httplimit.WithEvents]. It counts throttled responses in
// httplimit_client_throttled_total, by reason; platforms make up the reasons, and those after the first 64 become
// _OTHER. It counts responses that a detector could not read in httplimit_client_unread_total, and estimates that
// could not be settled in httplimit_client_unsettled_total. The error is that of the Registerer.
func Events(reg prometheus.Registerer) (func(httplimit.Event), error) {
	throttled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "httplimit_client_throttled_total",
		Help: "Answers by which a platform throttled a request of ours."}, []string{"scope", "reason", "banned"})
	unread := prometheus.NewCounter(prometheus.CounterOpts{Name: "httplimit_client_unread_total",
		Help: "Answers whose body a detector needed and could not read."})
	unsettled := prometheus.NewCounter(prometheus.CounterOpts{Name: "httplimit_client_unsettled_total",
		Help: "Estimates of what a request uses that could not be settled."})
	for _, c := range []prometheus.Collector{throttled, unread, unsettled} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	reasons := metricname.Policies(func(reason string) string { return reason })
	return func(e httplimit.Event) {
		switch e.Kind {
		case httplimit.EventThrottled:
			throttled.WithLabelValues(string(e.Scope), reasons(string(e.Reason)), strconv.FormatBool(e.Banned)).Inc()
		case httplimit.EventUnread:
			unread.Inc()
		case httplimit.EventUnsettled:
			unsettled.Inc()
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
	rules := metricname.Policies(func(name string) string { return name })
	return func(_ *http.Request, d inbound.Decision) {
		requests.WithLabelValues(rules(d.Policy), string(d.Outcome), strconv.FormatBool(d.Degraded)).Inc()
	}, nil
}

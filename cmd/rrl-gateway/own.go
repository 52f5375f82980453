// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/prometheusratelimiter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// pingTimeout bounds how long /readyz waits for Redis.
const pingTimeout = time.Second

// handler returns the gateway with its own paths before it. Those for probes need neither a token nor a certificate.
func (s *server) handler() http.Handler {
	metrics := promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := !r.URL.IsAbs() && r.Method != http.MethodConnect
		switch {
		case own && r.URL.Path == "/healthz":
			_, _ = io.WriteString(w, "ok\n") // fails only when the client has gone
		case own && r.URL.Path == "/readyz":
			s.ready(w, r)
		case s.mtls && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0):
			http.Error(w, "a client certificate is required", http.StatusUnauthorized)
		case own && r.URL.Path == "/metrics" && s.admitted(r):
			metrics.ServeHTTP(w, r)
		default:
			s.g.ServeHTTP(w, r)
		}
	})
}

// admitted reports whether the client may read the metrics. Prometheus sends the token as Authorization.
func (s *server) admitted(r *http.Request) bool {
	if a := r.Header["Authorization"]; len(a) > 0 {
		r.Header["Proxy-Authorization"] = a
	}
	return s.g.Authorized(r)
}

func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pingTimeout)
	defer cancel()
	if err := s.client.Ping(ctx); err != nil { // that of go-redis would wait for a frozen Redis as long as its timeouts say
		http.Error(w, "Redis does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // fails only when the client has gone
}

// newEvents returns the function of httplimit.WithEvents: it counts all events, and logs those that are not about single
// requests.
func newEvents(reg prometheus.Registerer, logger *slog.Logger) (func(httplimit.Event), error) {
	throttled, err := prometheusratelimiter.Events(reg)
	if err != nil {
		return nil, err
	}
	kinds := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rrl_gateway_events_total",
		Help: "What happened to requests for which there is a rule, by the event's kind.",
	}, []string{"kind"})
	if err := reg.Register(kinds); err != nil {
		return nil, err
	}
	return func(e httplimit.Event) {
		throttled(e)
		kind := strings.ReplaceAll(string(e.Kind), " ", "_")
		kinds.WithLabelValues(kind).Inc()
		switch e.Kind {
		case httplimit.EventGranted, httplimit.EventRejected, httplimit.EventRetry:
			return
		}
		attrs := []any{"limiter", e.Limiter, "rules", e.Rules, "host", e.Host, "reason", e.Reason}
		if !e.Until.IsZero() {
			attrs = append(attrs, "until", e.Until)
		}
		if e.Err != nil {
			attrs = append(attrs, "err", httplimit.Redact(e.Err).Error())
		}
		logger.Warn(string(e.Kind), attrs...)
	}, nil
}

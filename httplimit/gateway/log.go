// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
)

// A recorder keeps the status of a response for the log.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader keeps the last status, which follows those of 1xx.
func (rec *recorder) WriteHeader(status int) {
	rec.status = status
	rec.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// record logs a request when its response has ended.
func (g *Gateway) record(r *http.Request, to *route, rec *recorder, start time.Time) {
	attrs := []any{slog.String("method", r.Method), slog.Int("status", rec.status), slog.Duration("took", time.Since(start).Round(time.Millisecond))}
	if to != nil && to.url != nil {
		u := *to.url
		u.RawQuery, u.ForceQuery = "", false
		attrs = append(attrs, slog.String("url", httplimit.RedactURL(&u)))
	} else if to != nil {
		attrs = append(attrs, slog.String("host", to.origin.authority()))
	}
	if own, _, _ := strings.Cut(rec.Header().Get("Proxy-Status"), ";"); own == ProxyName {
		attrs = append(attrs, slog.Bool("rejected", true))
	}
	g.cfg.log.Info("request", attrs...)
}

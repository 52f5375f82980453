// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"log"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
)

// ErrorLog returns a logger for net/http that writes a record for each line. What stands behind the first quote is left
// out: net/http quotes there what a platform sent, such as the start of a body that follows another one.
func ErrorLog(to *slog.Logger) *log.Logger { return log.New(errorLog{to}, "", 0) }

type errorLog struct{ to *slog.Logger }

// Write is that of io.Writer.
func (e errorLog) Write(p []byte) (int, error) {
	line, _, _ := strings.Cut(string(p), "\n")
	line, _, _ = strings.Cut(line, `"`)
	e.to.Warn("net/http", slog.String("what", strings.TrimSuffix(line, " starting with ")))
	return len(p), nil
}

// A recorder is the ResponseWriter of one request. It keeps the status for the log. It also makes sure that no
// response of a platform looks like the Gateway's own, in its header, in one of 1xx before it, or in its trailer.
type recorder struct {
	http.ResponseWriter
	status  int
	problem *problem    // that the response says, if it is the Gateway's own
	body    *clientBody // of which the rest is to be read; nil if there is none
	http2   bool
	http10  bool // the client speaks HTTP/1.0, and would take a response of 1xx for the last (RFC 9110 section 15.2)
}

// WriteHeader keeps the last status, which follows those of 1xx.
func (rec *recorder) WriteHeader(status int) {
	if rec.http10 && status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	rec.status = status
	rec.strip()
	rec.ResponseWriter.WriteHeader(status)
}

// strip removes the Gateway's name from what a platform sent. Once the header is written, only the trailer is left to
// send.
func (rec *recorder) strip() {
	if rec.problem == nil {
		stripProxyStatus(rec.Header())
	}
}

// Write is that of io.Writer. Over HTTP/2 it fails if the client does not take it within stallTimeout, as that of a boundConn does: what the
// client has no room for is not written to the connection.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.bound(stallTimeout)
	defer rec.bound(0)
	return rec.ResponseWriter.Write(p)
}

// FlushError flushes what was written, within the same time.
func (rec *recorder) FlushError() error {
	rec.bound(stallTimeout)
	defer rec.bound(0)
	return http.NewResponseController(rec.ResponseWriter).Flush()
}

// bound bounds the writes from now on; 0 is no bound.
func (rec *recorder) bound(within time.Duration) {
	if !rec.http2 {
		return
	}
	var t time.Time
	if within > 0 {
		t = time.Now().Add(within)
	}
	_ = http.NewResponseController(rec.ResponseWriter).SetWriteDeadline(t) // of net/http's, which can
}

// Unwrap lets an http.ResponseController reach the ResponseWriter.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// record logs a request when its response has ended. Without a route nothing of its target is logged.
func (g *Gateway) record(r *http.Request, to *route, rec *recorder, start time.Time) {
	attrs := []any{slog.String("method", r.Method), slog.Int("status", rec.status), slog.Int64("took_ms", time.Since(start).Round(time.Millisecond).Milliseconds())}
	if to != nil && to.url != nil {
		u := *to.url
		u.RawQuery, u.ForceQuery = "", false
		attrs = append(attrs, slog.String("url", httplimit.RedactURL(&u)))
	} else if to != nil {
		attrs = append(attrs, slog.String("host", to.origin.authority()))
	}
	if no := rec.problem; no != nil {
		if attrs = append(attrs, slog.String("error", no.code)); !no.sent { // who reads "rejected" may send it again
			attrs = append(attrs, slog.Bool("rejected", true))
		}
		if no.reason != nil {
			attrs = append(attrs, slog.String("reason", no.reason.Error()))
		}
	}
	g.cfg.log.Info("request", attrs...)
}

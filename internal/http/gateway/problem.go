// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// ProxyName is the Gateway's name in the field Proxy-Status (RFC 9209). If the Proxy-Status of a response begins with
// it and has an error, the response is the Gateway's own; any other response is the platform's. Only with the errors
// connection_terminated and http_request_error may the platform have received the request, or its start.
const ProxyName = "rrl-gateway"

// A problem is a response of the Gateway's own, in the form of RFC 9457 unless it is that of the Transport.
type problem struct {
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail,omitempty"`
	Limiter string `json:"limiter,omitempty"`

	code   string        // the error type of RFC 9209
	sent   bool          // the platform may have received the request, or a part of it
	reason error         // for the log; nil if the title says it
	after  time.Duration // until Retry-After; 0 for none
	header [2]string     // one field more
	form   *rejected
}

// statusClosed is the status in the log of a request whose client has gone, as of nginx.
const statusClosed = 499

// A rejected is the error of a request that the Transport responded to: in the form of the rule's platform, or in one with the
// fields by which SDKs recognize an error. There are SDKs that take another body for a success, and one that sends the request
// again and again.
type rejected struct {
	reason *httplimit.Error
	status int
	header http.Header
	body   []byte
}

func (r *rejected) Error() string { return r.reason.Error() }
func (r *rejected) Unwrap() error { return r.reason }

func (no *problem) write(rec *recorder) {
	rec.problem = no
	h := rec.Header()
	h.Set("Content-Type", "application/problem+json")
	if no.after > 0 {
		h.Set("Retry-After", strconv.FormatInt(rates.WholeSeconds(no.after), 10))
	}
	if no.form != nil {
		maps.Copy(h, no.form.header)
	}
	if no.Status == http.StatusServiceUnavailable { // unlike a request that has waited here, one that comes again may be served
		h.Del("X-Should-Retry")
		h.Del("Stripe-Should-Retry")
	}
	h.Set("Proxy-Status", ProxyName+"; error="+no.code)
	h.Set("Cache-Control", "no-store")
	if no.header[0] != "" {
		h.Set(no.header[0], no.header[1])
	}
	var body []byte
	if no.form != nil {
		body = no.form.body
	} else if b, err := json.Marshal(no); err == nil { // as it always is
		body = append(b, '\n')
	}
	h.Set("Content-Length", strconv.Itoa(len(body))) // it ends before the client's body is read
	rec.WriteHeader(no.Status)
	_, _ = rec.Write(body) // it fails only when the client has gone
}

func denied(status int, title, detail string) *problem {
	return &problem{Title: title, Status: status, Detail: detail, code: "http_request_denied"}
}

func unauthorized(proxied bool) *problem {
	no := denied(http.StatusUnauthorized, "The gateway's token is missing or wrong",
		"Send it as "+TokenHeader+", or as Proxy-Authorization: Bearer TOKEN.")
	no.header = [2]string{"WWW-Authenticate", `Bearer realm="` + ProxyName + `"`}
	if proxied {
		no.Status, no.header = http.StatusProxyAuthRequired, [2]string{"Proxy-Authenticate", `Basic realm="` + ProxyName + `"`}
	}
	return no
}

// forbidden does not repeat the host: if the client left it out, a token of the path stands in its place.
func forbidden() *problem {
	return denied(http.StatusForbidden, "The host is not allowed",
		"The request names a host that is neither one of the rules nor one of --allow. A path is /HOST/PATH, such as /api.example.com/v1/messages.")
}

func misdirected(tunnel origin) *problem {
	return denied(http.StatusMisdirectedRequest, "The request is for another host than its tunnel",
		"The tunnel is to "+strconv.Quote(tunnel.authority())+".")
}

func noHost() *problem {
	return denied(http.StatusNotFound, "The path names no host", "A path is /HOST/PATH, such as /api.example.com/v1/messages.")
}

// noTunnel returns the problem of a CONNECT for which there is no tunnel.
func noTunnel(title string) *problem {
	return denied(http.StatusNotImplemented, title, "CONNECT needs --ca-dir, and HTTP/1.1 to the gateway itself.")
}

func stopping() *problem {
	return &problem{Title: "The gateway is stopping", Status: http.StatusServiceUnavailable,
		code: "proxy_internal_response", after: time.Second, header: [2]string{"Connection", "close"}}
}

// reject writes the response to a request that the Transport did not send, or that the platform did not respond to.
func reject(w http.ResponseWriter, r *http.Request, err error) {
	if p, ok := r.Context().Value(pendingKey{}).(*pending); ok {
		p.client.rejected(w.Header())
	}
	problemOf(r, err).write(w.(*recorder)) // the one that forward has
}

func problemOf(r *http.Request, err error) *problem {
	p, ok := r.Context().Value(pendingKey{}).(*pending)
	if ok && p.Load() == stopped {
		return stopping()
	}
	var gone errForbidden
	if errors.As(err, &gone) {
		return forbidden()
	}
	if errors.Is(err, errStalled) || ok && p.client.stalled() {
		return &problem{Title: "The request's body stopped coming", Status: http.StatusRequestTimeout, code: "http_request_error", sent: true}
	}
	var e *httplimit.Error
	switch cause := context.Cause(r.Context()); {
	case !errors.As(err, &e):
		return unanswered(r, err)
	case errors.Is(cause, errClientBody): // it was read while the request waited
		return unreadable(cause, false)
	}
	no := &problem{Detail: string(e.Reason), Limiter: e.Limiter, code: "proxy_internal_response"}
	switch {
	case errors.As(err, &no.form):
		no.Status = no.form.status
	case e.Reason == httplimit.ReasonContext: // the client has gone
		no.Title, no.Status = "The client closed the request", statusClosed
	default:
		no.Title, no.Status, no.code, no.reason = "A rule cannot be applied", http.StatusInternalServerError, "proxy_internal_error", e
	}
	return no
}

// unreadable returns the problem of a client's body.
func unreadable(err error, sent bool) *problem {
	return &problem{Title: "The request's body cannot be read", Status: http.StatusBadRequest, Detail: httplimit.Redact(err).Error(), code: "http_request_error", sent: sent}
}

// unanswered returns the problem of a request that got its permits, and then no response because of err.
func unanswered(r *http.Request, err error) *problem {
	reason := httplimit.Redact(err) // its text names addresses at most: an http.Transport leaves the URL to its Client
	p, _ := r.Context().Value(pendingKey{}).(*pending)
	var dial *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case r.Context().Err() != nil:
		return &problem{Title: "The client closed the request", Status: statusClosed, code: "connection_terminated", sent: true}
	case errors.Is(err, errClientBody):
		return unreadable(err, true)
	case p != nil && p.reached.Load():
	case errors.As(err, &cert):
		return &problem{Title: "The platform's certificate is not valid", Status: http.StatusBadGateway, Detail: reason.Error(), code: "tls_certificate_error", reason: reason}
	case errors.As(err, &dial) && dial.Op == "dial":
		return &problem{Title: "The platform cannot be reached", Status: http.StatusBadGateway, Detail: reason.Error(), code: "destination_unavailable", reason: reason}
	}
	return &problem{Title: "The platform did not respond", Status: http.StatusBadGateway, Detail: reason.Error(), code: "connection_terminated", sent: true}
}

// stripProxyStatus removes from a platform's header or trailer any field that makes it look like a response of the
// Gateway's own.
func stripProxyStatus(h http.Header) {
	for field, lines := range h {
		if !strings.EqualFold(strings.TrimPrefix(field, http.TrailerPrefix), "Proxy-Status") {
			continue
		}
		var keep []string
		for _, item := range listItems(lines) {
			if name, _, _ := strings.Cut(item, ";"); strings.Trim(strings.TrimSpace(name), `"`) != ProxyName {
				keep = append(keep, strings.TrimSpace(item))
			}
		}
		if delete(h, field); len(keep) > 0 {
			h[field] = []string{strings.Join(keep, ", ")}
		}
	}
}

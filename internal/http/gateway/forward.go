// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
)

// idleConnections is how many idle connections to a host are kept: as many as the callers of a small fleet.
const idleConnections = 128

func defaultBase() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // bodies reach the client as the platform encoded them
	t.MaxIdleConnsPerHost = idleConnections
	t.MaxIdleConns = 8 * idleConnections
	t.Proxy = nil // the environment may well name this gateway
	return t
}

// connectionFields are those about one connection and the message on it that can be written with _. ReverseProxy or the Transport
// removes or sets them as they are.
var connectionFields = []string{"Content-Length", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding"}

func (g *Gateway) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     g.transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			to := pr.In.Context().Value(routeKey{}).(*route)
			u := *to.url
			u.RawQuery = pr.In.URL.RawQuery // ReverseProxy drops what it cannot parse
			pr.Out.URL, pr.Out.Host = &u, u.Host
			for name := range pr.Out.Header {
				// Servers that hand fields to programs as variables, such as CGI, take _ for -.
				switch field := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")); {
				case field == TokenHeader, field == "Proxy-Authorization", field == "Forwarded", strings.HasPrefix(field, "X-Forwarded-"),
					field != http.CanonicalHeaderKey(name) && slices.Contains(connectionFields, field):
					delete(pr.Out.Header, name)
				}
			}
			p := pr.In.Context().Value(pendingKey{}).(*pending)
			if p.body = keepBody(pr.Out); p.body != nil && pr.In.Header.Get("Expect") == "" && pr.In.ContentLength <= aheadMost {
				p.ahead = time.AfterFunc(aheadAfter, func() {
					if err := p.body.readAhead(func() bool { return p.Load() == waiting }); errors.Is(err, errClientBody) {
						p.cancel(err)
					}
				})
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if e, ok := httplimit.RejectionOf(resp); ok {
				body, err := io.ReadAll(resp.Body)
				return errors.Join(err, &rejected{e, resp.StatusCode, resp.Header, body})
			}
			if !final(resp.StatusCode) {
				return fmt.Errorf("malformed response: its status is %03d", resp.StatusCode)
			}
			stripProxyStatus(resp.Header) // also of 101, which is not written through the recorder
			p := resp.Request.Context().Value(pendingKey{}).(*pending)
			p.body.forget()
			if resp.StatusCode != http.StatusSwitchingProtocols {
				p.client.answered(resp.Header)
			}
			return nil
		},
		ErrorHandler: reject,
		ErrorLog:     ErrorLog(g.cfg.log),
	}
}

// final reports whether a response may end with the status. An http.Transport takes any three digits, and any number from HTTP/2, but
// WriteHeader panics at one that is none of HTTP, and after an interim one the response goes on.
func final(status int) bool {
	return status == http.StatusSwitchingProtocols || status >= http.StatusOK && status <= 999
}

// forward sends the request and copies the response.
func (g *Gateway) forward(rec *recorder, r *http.Request, to *route) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "h2c") {
		// The client offers an upgrade to the gateway and not to the platform. HTTP/1.1 goes on.
		r.Header.Del("Upgrade")
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	p := &pending{cancel: cancel}
	defer context.AfterFunc(g.stopping, func() {
		if p.CompareAndSwap(waiting, stopped) {
			cancel(errStopping)
		}
	})()
	ctx = context.WithValue(ctx, routeKey{}, to)
	ctx = context.WithValue(ctx, pendingKey{}, p)
	if wait, ok := preferredWait(r.Header); ok {
		ctx = httplimit.ContextWithMaxWait(ctx, wait)
	}
	out := r.WithContext(ctx)
	if hasBody(r) { // the server goes on using r and its Body
		body := newClientBody(rec, r)
		defer body.leave()
		out.Body, p.client = body, body
	}
	g.proxy.ServeHTTP(rec, out) // it panics if the response is cut
	rec.body = p.client
	if rec.strip(); p.ahead != nil {
		p.ahead.Stop()
	}
}

// A request whose body is no longer than aheadMost has it read ahead when it has waited for aheadAfter; most do not wait at all.
const (
	aheadAfter = 10 * time.Millisecond
	aheadMost  = 256 << 10
)

// A pending is a request without a response. It records whether the request still waits for its permits, because
// Shutdown ends only those.
type pending struct {
	atomic.Int32
	client  *clientBody // nil without one
	body    *keptBodies
	cancel  context.CancelCauseFunc
	ahead   *time.Timer // reads the body if the request waits; nil if that is of no use
	reached atomic.Bool // it had a connection to the platform
	allowed bool        // its host, by the rules by which it goes: see hosts.witness
}

const (
	waiting int32 = iota
	sent
	stopped
)

type pendingKey struct{}

// An errForbidden is the error of a request whose host is no longer in the rules, because a Reload came in between.
type errForbidden struct{ origin }

func (e errForbidden) Error() string { return "gateway: " + e.authority() + " is not allowed any more" }

// A sender is the base of the Transport. It marks the requests that have got their permits.
type sender struct{ base http.RoundTripper }

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	p := r.Context().Value(pendingKey{}).(*pending)
	var err error
	if !p.allowed {
		err = errForbidden{r.Context().Value(routeKey{}).(*route).origin}
	} else if !p.CompareAndSwap(waiting, sent) && p.Load() == stopped {
		err = errStopping
	}
	if err == nil {
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { p.reached.Store(true) }}
		return s.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	}
	if r.Body != nil {
		_ = r.Body.Close() // the request is rejected whatever Close returns
	}
	return nil, err
}

// CloseIdleConnections closes the idle connections of the base.
func (s sender) CloseIdleConnections() {
	if b, ok := s.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

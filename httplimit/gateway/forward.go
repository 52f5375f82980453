// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"

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

func (g *Gateway) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     g.transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			to := pr.In.Context().Value(routeKey{}).(*route)
			u := *to.url
			u.RawQuery = pr.In.URL.RawQuery // ReverseProxy drops what it cannot parse
			pr.Out.URL, pr.Out.Host = &u, u.Host
			pr.Out.Header.Del(TokenHeader)
			pr.Out.Header.Del("Proxy-Authorization")
		},
		ModifyResponse: func(resp *http.Response) error {
			stripProxyStatus(resp.Header)
			return nil
		},
		ErrorHandler: reject,
	}
}

// forward sends the request and copies the response.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, to *route) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "h2c") {
		// An offer to the gateway and not to the platform. HTTP/1.1 goes on.
		r.Header.Del("Upgrade")
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	p := &pending{}
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
	g.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// A pending is whether a request still waits for its permits. Only then does Shutdown end it.
type pending struct{ atomic.Int32 }

const (
	waiting int32 = iota
	sent
	stopped
)

type pendingKey struct{}

// A sender is the base of the Transport. It marks requests that have their permits.
type sender struct{ base http.RoundTripper }

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	p := r.Context().Value(pendingKey{}).(*pending)
	if !p.CompareAndSwap(waiting, sent) && p.Load() == stopped {
		if r.Body != nil {
			_ = r.Body.Close() // the request is rejected whatever Close returns
		}
		return nil, errStopping
	}
	return s.base.RoundTrip(r)
}

// CloseIdleConnections closes the idle connections of the base.
func (s sender) CloseIdleConnections() {
	if b, ok := s.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

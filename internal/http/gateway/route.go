// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
)

// TokenHeader is the header field with the token of [WithToken]. The Gateway removes it from the request.
const TokenHeader = "X-Gateway-Token"

// A route is where a request goes.
type route struct {
	origin origin
	url    *url.URL
}

type routeKey struct{}

// route returns where a request goes, which is an allowed origin, or a problem if it may not go anywhere.
func (g *Gateway) route(r *http.Request) (*route, *problem) {
	t := tunnelOf(r.Context())
	proxied := r.Method == http.MethodConnect || r.URL.IsAbs()
	if t == nil && !g.Authorized(r) { // a tunnel's client was authorized when it asked for the tunnel
		return nil, unauthorized(proxied)
	}
	if g.stopping.Err() != nil {
		return nil, stopping()
	}
	to, hosts := &route{}, g.hosts.Load()
	var err error
	switch u := *r.URL; {
	case r.Method == http.MethodConnect:
		to.origin, err = originOf("https", r.Host)
	case t != nil:
		if to.origin, err = originOf("https", r.Host); to.origin != t.origin {
			return nil, misdirected(t.origin)
		}
		to.url = &u
	case proxied: // the Host field says nothing (RFC 9112 section 3.2.2)
		to.origin, err = originOf(u.Scheme, u.Host)
		to.url = &u
	default:
		host, rest, pathErr := splitPath(r.URL)
		if pathErr != nil || host == "" {
			return nil, noHost()
		}
		to.origin, err = hosts.find(host)
		to.url = rest
	}
	if err != nil || !hosts.allowed(to.origin) {
		return nil, forbidden() // and what the client wrote there is shown to nobody: it may be a token
	}
	if to.url != nil {
		to.url.Scheme, to.url.Host, to.url.User = to.origin.scheme, to.origin.authority(), nil
	}
	return to, nil
}

// splitPath takes the host out of /{host}/{path…}, and leaves the rest as it was encoded.
func splitPath(u *url.URL) (host string, rest *url.URL, err error) {
	host, path, _ := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if host, err = url.PathUnescape(host); err != nil {
		return "", nil, err
	}
	rest = &url.URL{RawPath: "/" + path, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}
	rest.Path, err = url.PathUnescape(rest.RawPath)
	return host, rest, err
}

// Authorized reports whether a request has the token of [WithToken]. It returns true if no token is required.
func (g *Gateway) Authorized(r *http.Request) bool {
	if g.cfg.token == nil {
		return true
	}
	given := r.Header.Get(TokenHeader)
	if given == "" {
		as := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if scheme, token, _ := strings.Cut(as.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
			given = strings.TrimSpace(token)
		} else if _, password, ok := as.BasicAuth(); ok {
			given = password
		}
	}
	sum := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(sum[:], g.cfg.token[:]) == 1
}

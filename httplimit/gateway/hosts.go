// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/goredisson/ratelimiter/httplimit"
)

// An origin is a scheme, a host in lower case, which may be "*.example.com", and a port.
type origin struct{ scheme, host, port string }

// hosts are the origins to which requests may go.
type hosts map[origin]bool

func newHosts(rules []httplimit.Rule, allow []string) (hosts, error) {
	h := hosts{}
	for _, r := range rules {
		for _, host := range r.Match.Hosts {
			h.add(host)
		}
		for _, p := range r.Match.Patterns {
			if _, rest, ok := strings.Cut(p, " "); ok {
				p = strings.TrimLeft(rest, " \t")
			}
			host, _, _ := strings.Cut(p, "/")
			h.add(host)
		}
	}
	for _, a := range allow {
		if err := h.allow(a); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// add adds a host with the ports of both schemes.
func (h hosts) add(host string) {
	if host = strings.ToLower(host); host != "" {
		h[origin{"https", host, "443"}] = true
		h[origin{"http", host, "80"}] = true
	}
}

// allow adds an entry of WithAllow.
func (h hosts) allow(entry string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w: allow %q: %s; it looks like api.example.com, *.example.com, api.example.com:8443 or http://127.0.0.1:8080",
			ErrInvalidOption, entry, why)
	}
	scheme, rest, given := strings.Cut(entry, "://")
	if !given {
		scheme, rest = "https", entry
	}
	if scheme = strings.ToLower(scheme); scheme != "http" && scheme != "https" {
		return bad("the scheme is neither http nor https")
	}
	u, err := url.Parse("//" + rest)
	if err != nil || u.Hostname() == "" || u.Host != rest || strings.Contains(strings.TrimPrefix(u.Hostname(), "*."), "*") {
		return bad("it is not a host")
	}
	if !given && u.Port() == "" {
		h.add(u.Hostname())
		return nil
	}
	h[originOf(scheme, u.Host)] = true
	return nil
}

// allowed reports whether requests may go there.
func (h hosts) allowed(o origin) bool {
	for {
		if h[o] {
			return true
		}
		_, parent, ok := strings.Cut(strings.TrimPrefix(o.host, "*."), ".")
		if !ok || net.ParseIP(o.host) != nil {
			return false
		}
		o.host = "*." + parent
	}
}

// find returns the origin of an authority without a scheme: https if that is allowed, otherwise http.
func (h hosts) find(authority string) (origin, bool) {
	for _, scheme := range []string{"https", "http"} {
		if o := originOf(scheme, authority); h.allowed(o) {
			return o, true
		}
	}
	return origin{host: authority}, false
}

// originOf returns the origin of an authority, with the scheme's port if it has none.
func originOf(scheme, authority string) origin {
	u := url.URL{Host: strings.ToLower(authority)}
	o := origin{scheme, u.Hostname(), u.Port()}
	if o.port == "" {
		o.port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return o
}

// authority returns the host and the port, without a port that is the scheme's.
func (o origin) authority() string {
	if o == originOf(o.scheme, bracketed(o.host)) {
		return bracketed(o.host)
	}
	return net.JoinHostPort(o.host, o.port)
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

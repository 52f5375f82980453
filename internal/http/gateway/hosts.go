// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/http/authority"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
)

// An origin is a scheme, a host and a port. The host is in the normal form of package authority; in a list it may be
// "*.example.com".
type origin struct{ scheme, host, port string }

// hosts are the origins to which requests may go.
type hosts map[origin]bool

// newHosts returns the hosts that the rules name and those of WithAllow. The Transport reports mistakes in the rules.
func newHosts(rules []httplimit.Rule, allow []string) (hosts, error) {
	h := hosts{}
	for _, r := range rules {
		for _, host := range r.Match.Hosts {
			if host, err := authority.Named(host); err == nil {
				h.add(host)
			}
		}
		for _, p := range r.Match.Patterns {
			if host := muxpattern.Host(p); host != "" {
				h.add(host)
			}
		}
	}
	for _, a := range allow {
		if err := h.allow(a); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// witness returns the first of the Transport's rules, which applies to no request. It notes whether the rules that a
// request follows allow its host: after a Reload they may be newer than the hosts that admitted the request.
func (h hosts) witness() httplimit.Rule {
	return httplimit.Rule{Name: "allowed hosts", Detectors: []httplimit.Detector{httplimit.HTTPDetector()}, Match: httplimit.Match{Func: func(r *http.Request) bool {
		p, to := r.Context().Value(pendingKey{}).(*pending), r.Context().Value(routeKey{}).(*route)
		p.allowed = h.allowed(to.origin)
		return false
	}}}
}

// add adds a host with the ports of both schemes.
func (h hosts) add(host string) {
	h[origin{"https", host, "443"}] = true
	h[origin{"http", host, "80"}] = true
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
	u, err := url.Parse("//" + rest) // which decodes a zone
	if err != nil || strings.ContainsAny(rest, "/?#@") {
		return bad("it is not a host")
	}
	name, below := strings.CutPrefix(u.Host, "*.")
	o, err := originOf(scheme, name)
	if err == nil && below {
		o.host, err = authority.Named("*." + o.host)
	}
	if err != nil {
		return bad("it is not a host: " + err.Error())
	}
	if !given && u.Port() == "" {
		h.add(o.host)
	} else {
		h[o] = true
	}
	return nil
}

// allowed reports whether requests may go to o. An address must be an entry of its own.
func (h hosts) allowed(o origin) bool {
	if h[o] {
		return true
	}
	for rest := o.host; !authority.IsAddr(o.host); {
		_, parent, ok := strings.Cut(rest, ".")
		if !ok {
			return false
		}
		if rest = parent; h[origin{o.scheme, "*." + parent, o.port}] {
			return true
		}
	}
	return false
}

// find returns the origin of an authority without a scheme: with https if that is allowed, otherwise with http.
func (h hosts) find(s string) (o origin, err error) {
	for _, scheme := range []string{"https", "http"} {
		if o, err = originOf(scheme, s); err != nil || h.allowed(o) {
			break
		}
	}
	return o, err
}

// originOf returns the origin of the authority of a URL, with the scheme's port if it has none. The Gateway uses only
// the origin to check the hosts, to dial, and for the Host that it sends to the platform.
func originOf(scheme, s string) (origin, error) {
	a, err := authority.Parse(s)
	if err != nil {
		return origin{}, err
	}
	return origin{scheme, a.Host, cmp.Or(a.Port, defaultPorts[scheme])}, nil
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// authority returns the host and the port. It omits the scheme's default port.
func (o origin) authority() string {
	a := authority.Authority{Host: o.host, Port: o.port}
	if o.port == defaultPorts[o.scheme] {
		a.Port = ""
	}
	return a.String()
}

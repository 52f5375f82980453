// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/http/authority"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
)

// A probe is a request as the rules see it: its host, method and path are in one normal form,
// so that neither case, port, a doubled slash nor an escaped dot or slash leads around a rule.
type probe struct {
	sent          *http.Request // by the caller
	method, host  string
	path, rawPath string // of the URL
	parts         muxpattern.Path
	split         *probe        // as of a server that takes %2F for a slash; nil for a path without one
	copied        *http.Request // see request
	query         url.Values    // of the URL, parsed when first asked for
}

// hostOf returns the host of a request in the form in which rules match it: that of the Host field, if it is set.
func hostOf(req *http.Request) string {
	if req.Host != "" {
		return bareHost(req.Host)
	}
	return bareHost(req.URL.Host)
}

func newProbe(req *http.Request, host string) *probe {
	p := &probe{sent: req, method: req.Method, host: host, path: req.URL.Path, rawPath: req.URL.RawPath}
	if p.method == "" {
		p.method = http.MethodGet
	}
	path := requestPath(req.URL)
	p.setPath(escapedDots.Replace(path))
	if split := escapedSlashes.Replace(path); split != path {
		p.split = &probe{sent: req, method: p.method, host: host}
		p.split.setPath(escapedDots.Replace(split))
	}
	return p
}

// An escaped dot is a dot (RFC 3986 section 6.2.2.2), so it must not hide that a segment is . or .., which are removed. An
// escaped slash is none there, but is one to many servers.
var (
	escapedDots    = strings.NewReplacer("%2e", ".", "%2E", ".")
	escapedSlashes = strings.NewReplacer("%2f", "/", "%2F", "/")
)

// setPath sets the path of p to the normal form of an escaped one.
func (p *probe) setPath(path string) {
	escaped := muxpattern.CleanPath(path)
	if plain, err := url.PathUnescape(escaped); err == nil {
		p.path, p.rawPath = plain, escaped
	}
	p.parts.Set((&url.URL{Path: p.path, RawPath: p.rawPath}).EscapedPath())
}

// mayMatch reports whether the request may belong to a pattern with the hint.
func (p *probe) mayMatch(hint *muxpattern.Hint) bool {
	return hint.MayMatch(p.method, &p.parts) || p.split != nil && hint.MayMatch(p.method, &p.split.parts)
}

// request returns a copy of the request in the normal form. Its header and body are the request's own. The copy is made
// when it is first asked for, since most rules need none to reject a request.
func (p *probe) request() *http.Request {
	if p.copied == nil {
		u := *p.sent.URL
		u.Host, u.Path, u.RawPath, u.Opaque = p.host, p.path, p.rawPath, ""
		p.copied = p.sent.WithContext(p.sent.Context())
		p.copied.Method, p.copied.Host, p.copied.URL = p.method, p.host, &u
	}
	return p.copied
}

// requestPath returns the path as it is sent: that of Opaque where it is set.
func requestPath(u *url.URL) string {
	if u.Opaque == "" {
		return u.EscapedPath()
	}
	p, _, _ := strings.Cut(u.Opaque, "?")
	if rest, ok := strings.CutPrefix(p, "//"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
		return "/"
	}
	return p
}

// bareHost returns the host of an authority in its normal form. One that is no host, such as the path of a socket, which
// only the base understands, is in lower case.
func bareHost(host string) string {
	if a, err := authority.Parse(host); err == nil {
		return a.Host
	}
	return strings.ToLower((&url.URL{Host: host}).Hostname())
}

func (p *probe) queryValues() url.Values {
	if p.query == nil {
		p.query = p.sent.URL.Query()
	}
	return p.query
}

// A matcher is a compiled Match.
type matcher struct {
	match    Match
	patterns []muxpattern.Pattern
	hosts    []string // of the match, in their normal form
	header   []field  // with canonical names
	query    []field
}

// A field is a name and the value that it must have, "*" for any.
type field struct{ name, want string }

func compileMatch(m Match, p problems) *matcher {
	c := &matcher{match: m}
	for name, want := range m.Header {
		c.header = append(c.header, field{http.CanonicalHeaderKey(name), want})
	}
	for name, want := range m.Query {
		c.query = append(c.query, field{name, want})
	}
	for i, pattern := range m.Patterns {
		compiled, err := muxpattern.Compile(pattern)
		if err != "" {
			p.in(".patterns[%d]", i).add("", "%q: %s", pattern, err)
			continue
		}
		c.patterns = append(c.patterns, compiled)
	}
	for i, host := range m.Hosts {
		named, err := authority.Named(host)
		if err != nil {
			p.in(".hosts[%d]", i).add("", "%q is no host name, such as api.example.com or *.example.com, without a port: %v", host, err)
		}
		c.hosts = append(c.hosts, named)
	}
	for i, method := range m.Methods {
		if problem := muxpattern.Method(method); problem != "" {
			p.in(".methods[%d]", i).add("", "%s", problem)
		}
	}
	for name := range m.Header {
		if name == "" {
			p.add("header", "a field without a name")
		}
		if strings.EqualFold(name, "Host") {
			p.add("header", "the host is not in the header of a request that goes out: use hosts")
		}
	}
	for name := range m.Query {
		if name == "" {
			p.add("query", "a parameter without a name")
		}
	}
	return c
}

// matches returns the request with the path values of the pattern that matched, or nil when the request does not belong
// to the class.
func (m *matcher) matches(p *probe) *http.Request {
	if len(m.match.Methods) > 0 && !slices.Contains(m.match.Methods, p.method) {
		return nil
	}
	if len(m.hosts) > 0 && !oneOf(m.hosts, func(s string) bool { return authority.Covers(s, p.host) }) {
		return nil
	}
	// Before the patterns, which cost more.
	for _, f := range m.header {
		if !valueMatches(p.sent.Header[f.name], f.want) {
			return nil
		}
	}
	pattern := m.findPattern(p)
	if pattern == nil && p.split != nil {
		if pattern = m.findPattern(p.split); pattern != nil {
			p = p.split
		}
	}
	if pattern == nil && len(m.match.Patterns) > 0 {
		return nil
	}
	for _, f := range m.query {
		if !valueMatches(p.queryValues()[f.name], f.want) {
			return nil
		}
	}
	r := p.request()
	if pattern != nil {
		// A copy, so that the path values of one rule are not there for the next.
		r = r.WithContext(r.Context())
		pattern.SetPathValues(r)
	}
	if m.match.Func != nil && !m.match.Func(r) {
		return nil
	}
	return r
}

// findPattern returns the first pattern that the request belongs to, or nil.
func (m *matcher) findPattern(p *probe) *muxpattern.Pattern {
	for i := range m.patterns {
		if pattern := &m.patterns[i]; pattern.MayMatch(p.method, p.host, &p.parts) && pattern.Decide(p.request()) {
			return pattern
		}
	}
	return nil
}

func valueMatches(values []string, want string) bool {
	return oneOf(values, func(s string) bool { return want == "*" || s == want })
}

func oneOf(list []string, f func(string) bool) bool {
	for _, s := range list {
		if f(s) {
			return true
		}
	}
	return false
}

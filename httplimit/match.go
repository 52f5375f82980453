package httplimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/goredisson/ratelimiter/httplimit/internal/muxpattern"
)

// A probe is a request as the rules see it: a copy whose host, method and path are in one normal form,
// so that neither case, port nor a doubled slash leads around a rule. Its header and body are the
// request's own.
type probe struct {
	request *http.Request
	parts   []string   // of the request's EscapedPath
	room    [16]string // for them
	query   url.Values // of the URL, parsed when first asked for
}

// hostOf returns the host of a request in the form in which rules match it.
func hostOf(req *http.Request) string {
	if req.Host != "" {
		return bareHost(req.Host)
	}
	return bareHost(req.URL.Host)
}

func newProbe(req *http.Request, host string) *probe {
	u := *req.URL
	escaped := muxpattern.CleanPath(requestPath(&u))
	u.Opaque = ""
	if plain, err := url.PathUnescape(escaped); err == nil {
		u.Path, u.RawPath = plain, escaped
	}
	r := req.WithContext(req.Context())
	r.Host, u.Host = host, host
	r.URL = &u
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	p := &probe{request: r}
	p.parts = muxpattern.Parts(p.room[:0], u.EscapedPath())
	return p
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

// bareHost returns a host in lower case without its port and without the dot of a rooted name.
func bareHost(host string) string {
	host = (&url.URL{Host: host}).Hostname()
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func (p *probe) queryValues() url.Values {
	if p.query == nil {
		p.query = p.request.URL.Query()
	}
	return p.query
}

// A matcher is a compiled Match.
type matcher struct {
	match    Match
	patterns []muxpattern.Pattern
	hosts    []string // of the match, in lower case
	header   []field  // with canonical names
	query    []field
}

// A field is a name and the value that it must have, "*" for any.
type field struct{ name, want string }

func compileMatch(m Match, p problems) *matcher {
	c := &matcher{match: m}
	for _, host := range m.Hosts {
		c.hosts = append(c.hosts, strings.ToLower(host))
	}
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
		bare := strings.TrimPrefix(host, "*.")
		if bare == "" || strings.ContainsAny(bare, "*/ :{}") {
			p.in(".hosts[%d]", i).add("", "%q is no host name; it is such as api.example.com or *.example.com, without a port", host)
		}
	}
	for i, method := range m.Methods {
		if method == "" || method != strings.ToUpper(method) || strings.ContainsAny(method, " \t/") {
			p.in(".methods[%d]", i).add("", "%q is no method; it is such as POST", method)
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
	r := p.request
	if len(m.match.Methods) > 0 && !oneOf(m.match.Methods, func(s string) bool { return s == r.Method }) {
		return nil
	}
	if len(m.hosts) > 0 && !oneOf(m.hosts, func(s string) bool { return hostMatches(s, r.Host) }) {
		return nil
	}
	// Before the patterns, which cost more.
	for _, f := range m.header {
		if !valueMatches(r.Header[f.name], f.want) {
			return nil
		}
	}
	if len(m.match.Patterns) > 0 {
		if r = m.matchPatterns(p); r == nil {
			return nil
		}
	}
	for _, f := range m.query {
		if !valueMatches(p.queryValues()[f.name], f.want) {
			return nil
		}
	}
	if m.match.Func != nil && !m.match.Func(r) {
		return nil
	}
	return r
}

func (m *matcher) matchPatterns(p *probe) *http.Request {
	for i := range m.patterns {
		if pattern := &m.patterns[i]; pattern.MatchesParts(p.request, p.parts) {
			// A copy, so that the path values of one rule are not there for the next.
			r := p.request.WithContext(p.request.Context())
			pattern.SetPathValues(r)
			return r
		}
	}
	return nil
}

func hostMatches(want, host string) bool {
	if suffix, ok := strings.CutPrefix(want, "*"); ok {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return host == want
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

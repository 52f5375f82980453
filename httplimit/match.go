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
	query   url.Values // of the URL, parsed when first asked for
}

func newProbe(req *http.Request) *probe {
	u := *req.URL
	escaped := muxpattern.CleanPath(requestPath(&u))
	u.Opaque = ""
	if plain, err := url.PathUnescape(escaped); err == nil {
		u.Path, u.RawPath = plain, escaped
	}
	host := req.Host
	if host == "" {
		host = u.Host
	}
	r := req.WithContext(req.Context())
	r.Host = bareHost(host)
	u.Host = r.Host
	r.URL = &u
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	return &probe{request: r}
}

// requestPath is the path that goes out on the wire, which Opaque replaces.
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

// bareHost is a host in lower case without its port and without the dot of a rooted name.
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

// A matcher is a Match that was found to be in order.
type matcher struct {
	match    Match
	patterns []muxpattern.Pattern
}

func compileMatch(m Match, p problems) *matcher {
	c := &matcher{match: m}
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

// matches answers the request with the path values of the pattern that matched, or nil when the request
// does not belong to the class.
func (m *matcher) matches(p *probe) *http.Request {
	r := p.request
	if len(m.match.Methods) > 0 && !oneOf(m.match.Methods, func(s string) bool { return s == r.Method }) {
		return nil
	}
	if len(m.match.Hosts) > 0 && !oneOf(m.match.Hosts, func(s string) bool { return hostMatches(s, r.Host) }) {
		return nil
	}
	if len(m.match.Patterns) > 0 {
		if r = m.matchPatterns(r); r == nil {
			return nil
		}
	}
	for name, want := range m.match.Header {
		if !valueMatches(r.Header.Values(name), want) {
			return nil
		}
	}
	for name, want := range m.match.Query {
		if !valueMatches(p.queryValues()[name], want) {
			return nil
		}
	}
	if m.match.Func != nil && !m.match.Func(r) {
		return nil
	}
	return r
}

func (m *matcher) matchPatterns(r *http.Request) *http.Request {
	for _, p := range m.patterns {
		if p.Matches(r) {
			// A copy, so that the path values of one rule are not there for the next.
			r = r.WithContext(r.Context())
			p.SetPathValues(r)
			return r
		}
	}
	return nil
}

func hostMatches(want, host string) bool {
	want = strings.ToLower(want)
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

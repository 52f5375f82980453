package httplimit

import (
	"net/http"
	"net/url"
	"path"
	"strings"
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
	escaped := cleanPath(requestPath(&u))
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

// cleanPath is what http.ServeMux makes of a path before it matches it.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
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
	patterns []*http.ServeMux // one each: an http.ServeMux refuses patterns that overlap
}

// hit is the handler of every pattern: that it was chosen is all that it says.
type hit struct{}

func (hit) ServeHTTP(http.ResponseWriter, *http.Request) {}

func compileMatch(m Match, p problems) *matcher {
	c := &matcher{match: m}
	for i, pattern := range m.Patterns {
		mux, err := compilePattern(pattern)
		if err != "" {
			p.in(".patterns[%d]", i).add("", "%q: %s", pattern, err)
			continue
		}
		c.patterns = append(c.patterns, mux)
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

// compilePattern lets http.ServeMux parse a pattern. It panics at one that it cannot parse: its words
// become the problem.
func compilePattern(pattern string) (mux *http.ServeMux, problem string) {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	rest = strings.TrimLeft(rest, " \t")
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return nil, "it has no path; it is such as POST api.example.com/messages/"
	}
	host := rest[:slash]
	if strings.ContainsAny(host, ": \t") {
		return nil, "a host has no port here"
	}
	pattern = strings.TrimSpace(method + " " + strings.ToLower(host) + rest[slash:])
	defer func() {
		if r := recover(); r != nil {
			mux, problem = nil, "it is no pattern of http.ServeMux"
			if text, ok := r.(string); ok {
				problem = text
			} else if err, ok := r.(error); ok {
				problem = err.Error()
			}
		}
	}()
	mux = http.NewServeMux()
	mux.Handle(pattern, hit{})
	return mux, ""
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
	for _, mux := range m.patterns {
		// Not the pattern that Handler answers: it names one for redirects too.
		if h, _ := mux.Handler(r); h == (hit{}) {
			// A copy, so that the path values of one rule are not there for the next.
			r = r.WithContext(r.Context())
			mux.ServeHTTP(nil, r) // sets the path values; hit writes nothing
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

// SPDX-License-Identifier: Apache-2.0

// Package muxpattern matches requests with the patterns of [http.ServeMux], one at a time, so that patterns
// which overlap do not conflict.
package muxpattern

import (
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/goredisson/ratelimiter/internal/http/authority"
)

// A Pattern is one pattern.
type Pattern struct {
	mux   *http.ServeMux
	shape shape
}

// A shape is what is plain to see of a pattern. A request that does not fit it need not be shown to the mux, which
// takes a hundred times as long to say the same.
type shape struct {
	hint  Hint
	host  string   // "" for any
	parts []string // of the path, between slashes; any for a wildcard
	multi bool     // the last part stands for any number of parts
}

// A Hint is the part of a pattern that tells it from most requests: its method, and the last part of its path that is no
// wildcard. A list of hints is searched faster than the patterns themselves. The zero Hint rejects no request.
type Hint struct {
	method  string // "" for any
	literal string // "" for a pattern of wildcards
	at      int    // where the literal stands among the parts
}

const (
	any = "{}"  // no literal reads so
	end = "{$}" // nothing behind the last slash
)

// shapeOf returns the shape of a pattern that the mux has taken.
func shapeOf(pattern string) shape {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	host, path, _ := strings.Cut(strings.TrimLeft(rest, " \t"), "/")
	s := shape{hint: Hint{method: method}, host: host, parts: strings.Split(path, "/")}
	last := len(s.parts) - 1
	s.multi = s.parts[last] == "" || strings.HasSuffix(s.parts[last], "...}")
	for i, part := range s.parts {
		if part != end && strings.ContainsAny(part, "{}%") || i == last && s.multi || part == "" {
			s.parts[i] = any
		} else if part != end {
			s.hint.literal, s.hint.at = part, i
		}
	}
	return s
}

// MayMatch reports whether a request may belong to a pattern with the hint: when it returns false, [Pattern.MayMatch] does
// so too.
func (h *Hint) MayMatch(method string, path *Path) bool {
	switch {
	case method == http.MethodConnect || len(path.parts) == 0:
		return true
	case h.literal != "" && (h.at >= len(path.parts) || h.literal != path.parts[h.at] && !path.maybe(h.at)):
		return false
	}
	return h.method == "" || h.method == method || h.method == http.MethodGet && method == http.MethodHead
}

// mayFit reports whether a request may belong to the pattern, which only the mux knows for sure.
func (s *shape) mayFit(method, host string, path *Path) bool {
	if method == http.MethodConnect || len(path.parts) == 0 {
		return true
	}
	if !s.hint.MayMatch(method, path) || len(path.parts) < len(s.parts) || len(path.parts) > len(s.parts) && !s.multi {
		return false
	}
	for i, want := range s.parts {
		if part := path.parts[i]; want != part && want != any && !(want == end && part == "") && !path.maybe(i) {
			return false
		}
	}
	return s.host == "" || s.host == host || strings.IndexByte(host, ':') >= 0
}

// A Path is the path of a request, taken apart for patterns. Do not copy it.
type Path struct {
	parts   []string // between the slashes: one more than there are slashes behind the first
	escaped bool     // there is a % in one of them
	room    [16]string
}

// Set takes an escaped path apart. One that does not begin with a slash has no parts: only the mux knows what it matches.
func (p *Path) Set(path string) {
	p.parts, p.escaped = p.room[:0], strings.IndexByte(path, '%') >= 0
	if path == "" || path[0] != '/' {
		return
	}
	for rest, more := path[1:], true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		p.parts = append(p.parts, part)
	}
}

// maybe reports whether part i of the path may be any literal, since it is escaped; %2F is even the end.
func (p *Path) maybe(i int) bool {
	return p.escaped && strings.IndexByte(p.parts[i], '%') >= 0
}

// hit is the handler of every pattern. The mux chooses it for a request that matches.
type hit struct{}

func (hit) ServeHTTP(http.ResponseWriter, *http.Request) {}

// Method returns what is wrong with a method, or "". The methods of requests are tokens (RFC 9110 section 9.1) and compared
// as they are: a token that is not in upper case is hardly ever one, and would match nothing.
func Method(method string) (problem string) {
	if method == "" || method != strings.ToUpper(method) || strings.ContainsFunc(method, notOfToken) {
		return strconv.Quote(method) + " is no method; it is such as POST"
	}
	return ""
}

// notOfToken reports whether r cannot be part of a token (RFC 9110 section 5.6.2).
func notOfToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// Compile lets http.ServeMux parse a pattern. It panics at one that it cannot parse: its words
// become the problem. The mux takes methods that [Method] does not.
func Compile(pattern string) (p Pattern, problem string) {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	if method = strings.TrimSpace(method); method != "" {
		if problem := Method(method); problem != "" {
			return Pattern{}, problem
		}
	}
	rest = strings.TrimLeft(rest, " \t")
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return Pattern{}, "it has no path; it is such as POST api.example.com/messages/"
	}
	host := rest[:slash]
	if strings.ContainsAny(host, ": \t") {
		return Pattern{}, "a host has no port here"
	}
	if host != "" {
		var err error
		if host, err = authority.Name(host); err != nil {
			return Pattern{}, "its host: " + err.Error()
		}
	}
	pattern = strings.TrimSpace(method + " " + host + rest[slash:])
	defer func() {
		if r := recover(); r != nil {
			p, problem = Pattern{}, "it is no pattern of http.ServeMux"
			if text, ok := r.(string); ok {
				problem = text
			} else if err, ok := r.(error); ok {
				problem = err.Error()
			}
		}
	}()
	mux := http.NewServeMux()
	mux.Handle(pattern, hit{})
	return Pattern{mux, shapeOf(pattern)}, ""
}

// Matches reports whether r belongs to the pattern.
func (p *Pattern) Matches(r *http.Request) bool {
	var path Path
	path.Set(r.URL.EscapedPath())
	return p.MayMatch(r.Method, r.Host, &path) && p.Decide(r)
}

// MayMatch reports whether a request with the method, the host and the path of its URL may belong to the pattern: when it
// returns false, Decide does so too.
func (p *Pattern) MayMatch(method, host string, path *Path) bool {
	return p.shape.mayFit(method, host, path)
}

// Hint returns the pattern's hint.
func (p *Pattern) Hint() Hint { return p.shape.hint }

// Decide reports whether r belongs to the pattern, as Matches does, for a request that MayMatch has not rejected.
func (p *Pattern) Decide(r *http.Request) bool {
	// Not the pattern that Handler answers: it names one for redirects too.
	h, _ := p.mux.Handler(r)
	return h == hit{}
}

// SetPathValues sets the path values of r, which must belong to the pattern.
func (p *Pattern) SetPathValues(r *http.Request) {
	uri := r.RequestURI // of a request that a server received; the mux itself would reject "*"
	r.RequestURI = ""
	p.mux.ServeHTTP(nil, r) // hit writes nothing
	r.RequestURI = uri
}

// CleanPath is what http.ServeMux makes of a path before it matches it.
func CleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		if len(p) == len(clean)+1 {
			return p // spared a copy: nothing but the slash was taken away
		}
		clean += "/"
	}
	return clean
}

// Host returns the host of a pattern in its normal form, or "" if it has none or is no pattern.
func Host(pattern string) string {
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		pattern = strings.TrimLeft(rest, " \t")
	}
	host, _, _ := strings.Cut(pattern, "/")
	if host, err := authority.Name(host); err == nil {
		return host
	}
	return ""
}

// Hosts returns the hosts that patterns and a list of hosts name, in their normal form: those of the patterns when
// every one has a host, otherwise the list without those that are none.
func Hosts(patterns, list []string) []string {
	var hosts []string
	for _, pattern := range patterns {
		host := Host(pattern)
		if host == "" {
			hosts = nil
			break
		}
		hosts = append(hosts, host)
	}
	if len(hosts) == 0 {
		for _, host := range list {
			if host, err := authority.Named(host); err == nil {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

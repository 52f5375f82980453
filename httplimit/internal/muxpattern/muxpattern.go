// Package muxpattern matches requests with the patterns of [http.ServeMux], one at a time, so that patterns
// which overlap do not conflict.
package muxpattern

import (
	"net/http"
	"path"
	"strings"
)

// A Pattern is one pattern.
type Pattern struct{ mux *http.ServeMux }

// hit is the handler of every pattern: that it was chosen is all that it says.
type hit struct{}

func (hit) ServeHTTP(http.ResponseWriter, *http.Request) {}

// Compile lets http.ServeMux parse a pattern. It panics at one that it cannot parse: its words
// become the problem.
func Compile(pattern string) (p Pattern, problem string) {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
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
	pattern = strings.TrimSpace(method + " " + strings.ToLower(host) + rest[slash:])
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
	return Pattern{mux}, ""
}

// Matches reports whether r belongs to the pattern.
func (p Pattern) Matches(r *http.Request) bool {
	// Not the pattern that Handler answers: it names one for redirects too.
	h, _ := p.mux.Handler(r)
	return h == hit{}
}

// SetPathValues sets the path values of r, which must belong to the pattern.
func (p Pattern) SetPathValues(r *http.Request) {
	p.mux.ServeHTTP(nil, r) // hit writes nothing
}

// CleanPath is what http.ServeMux makes of a path before it matches it.
func CleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
}

// Hosts returns the hosts that patterns and a list of hosts name, in lower case: those of the patterns when
// every one has a host, otherwise the list.
func Hosts(patterns, list []string) []string {
	var hosts []string
	for _, pattern := range patterns {
		if _, rest, ok := strings.Cut(pattern, " "); ok {
			pattern = strings.TrimLeft(rest, " \t")
		}
		host, _, _ := strings.Cut(pattern, "/")
		if host == "" {
			hosts = nil
			break
		}
		hosts = append(hosts, strings.ToLower(host))
	}
	if len(hosts) == 0 {
		for _, host := range list {
			hosts = append(hosts, strings.ToLower(host))
		}
	}
	return hosts
}

// SPDX-License-Identifier: Apache-2.0

package muxpattern

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzMatches: what is rejected by a pattern's hint or shape the mux rejects as well, whatever the pattern and the request.
func FuzzMatches(f *testing.F) {
	patterns := []string{"/", "/{$}", "/a", "/a/", "/a/{$}", "/a/{x}", "/a/{x}/", "/a/{x}/b", "/a/{x...}", "/{a}/{b}", "GET /a", "POST /a/{x}",
		"api.example.com/a", "GET API.Example.com/a/{x}", "/a%2Fb", "/%61/b", "/a/{x}/{$}", "HEAD /a/b", "CONNECT x/", "/a//b", "/a b", " /a", "/\u00fc", "\r/0", "GET \t/a "}
	paths := []string{"/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/a//b", "/A", "/%61/b", "/a%2Fb", "/a%2fb/c", "/a/%2F", "", "*", "a", "/a/./b", "/a/{x}", "/ü", "/a b"}
	for i, p := range patterns {
		for j, path := range paths {
			f.Add(p, []string{"GET", "POST", "HEAD", "CONNECT", ""}[(i+j)%5], []string{"api.example.com", "", "x:80", "x", "API.example.com"}[(i+2*j)%5], path)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, method, host, path string) {
		p, problem := Compile(pattern)
		if problem != "" {
			return
		}
		for _, u := range []*url.URL{{Host: host, Path: path}, {Host: host, Path: CleanPath(path)}, {Host: host, Path: "/a/b", RawPath: path}} {
			if plain, err := url.PathUnescape(path); err == nil && u.RawPath != "" {
				u.Path = plain
			}
			r := &http.Request{Method: method, Host: host, URL: u}
			decided, hint, path := p.Decide(r), p.Hint(), Path{}
			path.Set(u.EscapedPath())
			require.True(t, hint.MayMatch(method, &path) || !decided, "the hint of %q: %s %s %q (%q)", pattern, method, host, u.Path, u.RawPath)
			require.Equal(t, decided, p.Matches(r), "%q: %s %s %q (%q)", pattern, method, host, u.Path, u.RawPath)
		}
	})
}

// TestShapesAreTight: the shape alone rejects what differs in the method, the host, a literal or the number of parts.
func TestShapesAreTight(t *testing.T) {
	for _, c := range []struct {
		pattern, method, host, path string
		want                        bool
	}{
		{"POST x/a/{b}/c", "POST", "x", "/a/1/c", true},
		{"POST x/a/{b}/c", "GET", "x", "/a/1/c", false},
		{"POST x/a/{b}/c", "POST", "y", "/a/1/c", false},
		{"POST x/a/{b}/c", "POST", "x", "/a/1/d", false},
		{"POST x/a/{b}/c", "POST", "x", "/a/1", false},
		{"POST x/a/{b}/c", "POST", "x", "/a/1/c/d", false},
		{"GET /a/", "HEAD", "x", "/a/b/c", true},
		{"/a/", "HEAD", "x", "/a", false},
		{"/a/{$}", "GET", "x", "/a/", true},
		{"/a/{$}", "GET", "x", "/a/b", false},
		{"/a/{r...}", "GET", "x", "/b/c", false},
	} {
		p, problem := Compile(c.pattern)
		require.Empty(t, problem)
		var path Path
		path.Set(c.path)
		require.Equal(t, c.want, p.shape.mayFit(c.method, c.host, &path), "%v", c)
	}
}

// A proxy passes on a request as a server received it, with a RequestURI that http.ServeMux rejects by itself.
func TestPathValuesOfARequestThatAServerReceived(t *testing.T) {
	p, problem := Compile("/{rest...}")
	require.Empty(t, problem)
	r, err := http.NewRequest(http.MethodOptions, "http://x/a", nil)
	require.NoError(t, err)
	r.RequestURI = "*"
	require.True(t, p.Matches(r))
	p.SetPathValues(r)
	require.Equal(t, "a", r.PathValue("rest"))
	require.Equal(t, "*", r.RequestURI)
}

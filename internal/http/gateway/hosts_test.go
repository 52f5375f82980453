// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/stretchr/testify/require"
)

// listed are the hosts of TestWritingsOfHosts and FuzzRoute.
var listed = []httplimit.Rule{{Match: httplimit.Match{
	Hosts:    []string{"*.example.com", "10.0.0.1", "bücher.example"},
	Patterns: []string{"xn--r8jz45g.example/{rest...}"},
}, Detectors: []httplimit.Detector{httplimit.HTTPDetector()}}}

// routes returns the request as a client writes it that has the gateway as its proxy, as its proxy for https, and as its base URL.
func routes(authority string) []string {
	// In a path, what stands for itself in an authority may be encoded.
	return []string{"GET http://" + authority + "/", "CONNECT " + authority, "GET /" + strings.NewReplacer("[", "%5B", "]", "%5D").Replace(authority) + "/"}
}

// dialled returns the address to which net/http makes a connection for a request to u.
func dialled(u *url.URL) (addr string) {
	tr := &http.Transport{DialTLSContext: func(_ context.Context, _, a string) (net.Conn, error) {
		addr = a
		return nil, errors.New("not dialled")
	}}
	tr.DialContext = tr.DialTLSContext
	_, _ = tr.RoundTrip(&http.Request{URL: u, Header: http.Header{}}) // it fails
	return addr
}

// TestWritingsOfHosts checks in all three modes that a host is the same however it is written, and that an address is
// reached only where the list has it: whatever its zone ends in, its resolver reads as one, or its user looks like.
func TestWritingsOfHosts(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		var sent, header string
		var addr string
		g, err := New(client, listed, WithAllow("http://[fe80::1%25lo]:8080", "*.Straße.example:444"), WithBase(platform(func(r *http.Request) (*http.Response, error) {
			addr, sent, header = dialled(r.URL), r.URL.Host, r.Host
			return says(200, "")(r)
		})))
		require.NoError(t, err)
		for authority, want := range map[string]string{
			"A.Example.COM":                "a.example.com",
			"a.example.com.":               "a.example.com",
			"BÜCHER.example":               "xn--bcher-kva.example",
			"xn--bcher-kva.example":        "xn--bcher-kva.example",
			"例え.example":                   "xn--r8jz45g.example",
			"[::ffff:10.0.0.1]":            "10.0.0.1",
			"[::ffff:a00:1]":               "10.0.0.1",
			"167772161":                    "10.0.0.1",
			"012.0x0.1":                    "10.0.0.1",
			"10.0.0.1.":                    "10.0.0.1",
			"[fe80::1%25lo]:8080":          "fe80::1%lo",
			"a.xn--strae-oqa.example:0444": "a.xn--strae-oqa.example",

			"[::1%251.example.com]":                "",
			"[::1%25.example.com]:443":             "",
			"[fe80::1%25lo.example.com]":           "",
			"[::ffff:127.0.0.1%25x.example.com]":   "",
			"[::ffff:10.0.0.1%25x.example.com]:80": "",
			"[fe80::1]:8080":                       "",
			"[fe80::1%25Lo]:8080":                  "",
			"[::1]":                                "",
			"127.0.0.1":                            "",
			"2130706433":                           "",
			"0x7f.1":                               "",
			"10.0.0.2":                             "",
			"１２７.0.0.1":                            "",
			"*.example.com":                        "",
			".example.com":                         "",
			"a..example.com":                       "",
			"example.com":                          "",
			"a.example.com..":                      "",
			"a.example.com:22":                     "",
			"a.example.com:0":                      "",
			"a.example.com@127.0.0.1":              "",
			"bücher.example.evil.net":              "",
			"évil.net":                             "",
		} {
			for _, line := range routes(authority) {
				sent, header, addr = "", "", ""
				method, target, _ := strings.Cut(line, " ")
				r := httptest.NewRequest(method, target, nil)
				if strings.HasPrefix(target, "http") {
					r.Header.Set("Host", "other.example.com")
				}
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				switch {
				case want == "" || strings.HasPrefix(want, "fe80") && method == "CONNECT": // it is listed for http
					require.Equal(t, 403, w.Code, line)
					require.Empty(t, sent, line)
				case strings.HasSuffix(authority, "444") && strings.HasPrefix(target, "http"):
					require.Equal(t, 403, w.Code, "it is listed for https")
				case method == "CONNECT":
					require.Equal(t, http.StatusNotImplemented, w.Code, line)
				default:
					require.Equal(t, 200, w.Code, line)
					host, _, err := net.SplitHostPort(addr)
					require.NoError(t, err)
					require.Equal(t, want, host, line)
					require.Equal(t, sent, header, line)
				}
			}
		}
		w := do(g, "GET", "/user:secret@a.example.com/")
		require.Equal(t, 403, w.Code)
		require.NotContains(t, w.Body.String(), "secret")
	})
}

// FuzzRoute sends what net/http has parsed, in each of the modes. Whatever is written, a connection goes to a host that the
// rules name.
func FuzzRoute(f *testing.F) {
	for _, s := range []string{"a.example.com", "A.EXAMPLE.COM.:443", "[::1%251.example.com]", "[::ffff:127.0.0.1%25x.example.com]", "[::ffff:10.0.0.1]:80", "0xa.1",
		"bücher.example", "１２７.0.0.1", "u:p@a.example.com", "a..example.com", "%2e.example.com", "127.0.0.1#.example.com", "127.0.0.1\\.example.com", "a.example.com:80@b"} {
		f.Add(s)
	}
	hosts, err := newHosts(listed, nil)
	require.NoError(f, err)
	g := &Gateway{stopping: f.Context()}
	g.hosts.Store(&hosts)
	f.Fuzz(func(t *testing.T, s string) {
		for _, line := range append(routes(s), "GET /"+url.PathEscape(s)+"/", "CONNECT "+s+":443") {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: a.example.com\r\n\r\n")))
			if err != nil {
				continue
			}
			to, no := g.route(r)
			if no != nil {
				require.Contains(t, []int{403, 404}, no.Status, "%q", line)
				continue
			}
			u := to.url
			if u == nil {
				u = &url.URL{Scheme: "https", Host: to.origin.authority()}
			}
			require.Nil(t, u.User)
			addr := dialled(u)
			host, port, err := net.SplitHostPort(addr)
			require.NoError(t, err, "%q is dialled as %q", line, addr)
			require.Contains(t, map[string]string{"http": "80", "https": "443"}[u.Scheme], port, "%q", line)
			if below, ok := strings.CutSuffix(host, ".example.com"); ok {
				require.Regexp(t, `^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`, below, "%q", line)
				continue
			}
			require.Contains(t, []string{"10.0.0.1", "xn--bcher-kva.example", "xn--r8jz45g.example"}, host, "%q", line)
		}
	})
}

// TestWhatIsNoHostIsNotRepeated checks that a token, which stands where a host belongs if the host is missing, is neither logged nor
// sent back, whatever it looks like and in every mode; and that the log has the host if it is one of the list.
func TestWhatIsNoHostIsNotRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		var log bytes.Buffer
		g, err := New(client, listed, WithLogger(slog.New(slog.NewJSONHandler(&log, nil))), WithBase(says(200, "")))
		require.NoError(t, err)
		for _, token := range []string{"bot123:AAs3cret", "s3cret", "123456:8080", "s3cret.7", "a@s3cret", "s3cret:pass@b", "xoxb-s3cret_1", "[s3cret]", "s3cret..", "s3cret%20x", "10.0.0.2"} {
			for _, asked := range append(routes(token), "GET /"+token, "GET //"+token+"/sendMessage", "GET http://user:s3cret@"+token+"/") {
				log.Reset()
				method, target, _ := strings.Cut(asked, " ")
				r := &http.Request{Method: method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Host: "gateway", Body: http.NoBody}
				if r.URL, err = url.Parse(target); method == http.MethodConnect {
					r.Host, r.URL, err = target, &url.URL{Host: target}, nil
				}
				if err != nil {
					continue // the server rejects it
				}
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				require.Contains(t, []int{403, 404}, w.Code, asked)
				said := w.Body.String() + log.String()
				for field, values := range w.Header() {
					said += field + strings.Join(values, "")
				}
				for _, secret := range []string{token, "s3cret", "123456", "AAs3"} {
					require.NotContains(t, said, secret, asked)
				}
				require.Contains(t, log.String(), `"status":`)
			}
		}
		log.Reset()
		require.Equal(t, 200, do(g, "GET", "/www.EXAMPLE.com/a").Code)
		require.Contains(t, log.String(), `"url":"https://www.example.com/a"`)

		tunnel := context.WithValue(t.Context(), tunnelKey{}, &tunnelConn{origin: origin{"https", "www.example.com", "443"}})
		r := httptest.NewRequestWithContext(tunnel, "GET", "/", nil)
		r.Host = "s3cret"
		w := httptest.NewRecorder()
		log.Reset()
		g.ServeHTTP(w, r)
		require.Equal(t, 421, w.Code)
		require.Contains(t, w.Body.String(), "www.example.com")
		require.NotContains(t, w.Body.String()+log.String(), "s3cret")
	})
}

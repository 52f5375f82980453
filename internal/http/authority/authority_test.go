// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParse has every writing of an address that a resolver, a browser or net/url knows, and names of all kinds.
func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"api.example.com":         "api.example.com",
		"API.Example.COM.:0443":   "api.example.com:443",
		"api.example.com:":        "api.example.com",
		"my_service-1":            "my_service-1",
		"example.7up":             "example.7up",
		"127.0.0.1.example.com":   "127.0.0.1.example.com",
		"bücher.example":          "xn--bcher-kva.example",
		"BU\u0308CHER。example:1":  "xn--bcher-kva.example:1",
		"XN--BCHER-KVA.example":   "xn--bcher-kva.example",
		"127.0.0.1":               "127.0.0.1",
		"127.0.0.1.:80":           "127.0.0.1:80",
		"127.1":                   "127.0.0.1",
		"2130706433":              "127.0.0.1",
		"017700000001":            "127.0.0.1",
		"0X7F.0.1":                "127.0.0.1",
		"0x7f000001:8080":         "127.0.0.1:8080",
		"0177.0x0.0.01":           "127.0.0.1",
		"１２７。0。0。①":               "127.0.0.1",
		"0":                       "0.0.0.0",
		"0x":                      "0.0.0.0",
		"[::1]":                   "[::1]",
		"[0:0:0:0:0:0:0:1]:80":    "[::1]:80",
		"[2001:DB8::A]":           "[2001:db8::a]",
		"[::ffff:127.0.0.1]:80":   "127.0.0.1:80",
		"[::ffff:7f00:1]":         "127.0.0.1",
		"[FE80::1%Eth0]:80":       "[fe80::1%Eth0]:80",
		"[::1%1.example.com]":     "[::1%1.example.com]",
		"[::1%251.example.com]:1": "[::1%251.example.com]:1",

		"": "", ".": "", "..": "", ".example.com": "", "a..example.com": "", "api.example.com..": "", "*.example.com": "",
		"u@api.example.com": "", "a b": "", "a/b": "", "a%2eb": "", "%31.example.com": "", "a\\b": "", "a#b": "", "a?b": "", "a\x00b": "",
		"a:b": "", "a:1:2": "", "a:0": "", "a:65536": "", "a:-1": "", "a:+1": "", "::1": "", "a:８０": "", "ü:80@b": "",
		"1.2.3.4.5": "", "256.0.0.1": "", "1.2.65536": "", "4294967296": "", "08.0.0.1": "", "0x7g.1": "", "a.0x7f": "", "example.1": "",
		"[": "", "[]": "", "[::1": "", "::1]": "", "[127.0.0.1]": "", "[::1]x": "", "[::1]80": "", "[::g]": "", "[a.example.com]": "",
		"[::ffff:127.0.0.1%x.example.com]": "", "[::1%]": "", "[::1%a/b]": "", "[::1%a b]": "", "[[::1]]": "",
		"xn--ü.example": "", "a\u200b.": "a", "ü／b.example": "", "\xff": "", strings.Repeat("a", 64): "", strings.Repeat("a.", 127) + "a": "",
	} {
		a, err := Parse(in)
		if want == "" {
			require.Error(t, err, "%q: %v", in, a)
			continue
		}
		require.NoError(t, err, "%q", in)
		require.Equal(t, want, a.String(), "%q", in)
	}
}

// TestNamed checks what a rule may name, and which hosts that stands for.
func TestNamed(t *testing.T) {
	for _, c := range []struct {
		named, host string
		want        bool
	}{
		{"API.example.com.", "api.example.com", true},
		{"*.Bücher.example", "a.b.xn--bcher-kva.example", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", ".example.com", false},
		{"*.example.com", "badexample.com", false},
		{"*.example.com", "::1%1.example.com", false},
		{"0x7f.1", "127.0.0.1", true},
	} {
		named, err := Named(c.named)
		require.NoError(t, err)
		require.Equal(t, c.want, Covers(named, c.host), "%v", c)
	}
	for _, bad := range []string{"", "*", "*.", "*.*.a", "a.*", "*.0.0.1", "*.1", "::1", "[::1]", "a:1", "{x}", "a/b"} {
		_, err := Named(bad)
		require.Error(t, err, bad)
	}
}

// dialled returns the address to which net/http makes a connection for the request.
func dialled(r *http.Request) (addr string) {
	tr := &http.Transport{DialContext: func(_ context.Context, _, a string) (net.Conn, error) {
		addr = a
		return nil, errors.New("not dialled")
	}}
	r.RequestURI = ""
	_, _ = tr.RoundTrip(r) // it fails
	return addr
}

// FuzzParse compares with what net/http parses and dials: the host that Parse returns is the one that is dialled, for the
// request as it came and for one to the authority in its normal form, and what net/http takes for an address is that address.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"api.example.com", "API.example.com.:8080", "[::1%251.example.com]", "[::ffff:127.0.0.1]:80", "127.0.0.1:080", "0x7f.1",
		"bücher.example", "１２７。0.0.1", "u:p@a.example", "a..b", "[fe80::1%25eth0]", "%C3%BC.example", "a:", "2130706433"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET http://" + s + "/ HTTP/1.1\r\nHost: x\r\n\r\n")))
		if err != nil || r.URL.Host == "" {
			return
		}
		a, err := Parse(r.URL.Host)
		if err != nil {
			return
		}
		again, err := Parse(a.String())
		require.NoError(t, err)
		require.Equal(t, a, again)

		came := dialled(r)
		r.URL.Host = a.String()
		port := a.Port
		if port == "" {
			port = "80"
		}
		require.Equal(t, net.JoinHostPort(a.Host, port), dialled(r), "%q", s)
		host, _, err := net.SplitHostPort(came)
		require.NoError(t, err, "%q", came)
		if addr, err := netip.ParseAddr(host); err == nil {
			require.True(t, strings.EqualFold(addr.Unmap().String(), a.Host), "%q is dialled as %s and matched as %s", s, addr, a.Host)
		} else if host = strings.TrimSuffix(strings.ToLower(host), "."); host != a.Host {
			require.True(t, IsAddr(a.Host) && digit(host[0]), "%q is dialled as %s and matched as %s", s, host, a.Host)
		}
	})
}

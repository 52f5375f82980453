// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

func prefixes(list ...string) (p []netip.Prefix) {
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// Whose address counts, header by header. The proxies are 10.0.0.0/8 and fd00::/8.
func TestClientAddress(t *testing.T) {
	type notes []string
	for _, c := range []struct {
		remote string
		notes  notes
		want   string // empty: none
	}{
		{"203.0.113.9:4711", nil, "203.0.113.9"},
		{"[2001:db8::9]:4711", nil, "2001:db8::9"},
		{"[fe80::1%eth0]:4711", nil, "fe80::1"},
		{"[::ffff:203.0.113.9]:4711", nil, "203.0.113.9"},
		{"203.0.113.9", nil, "203.0.113.9"},
		{"@", nil, ""},
		{"", nil, ""},
		{"example.com:80", nil, ""},
		{"203.0.113.9:99999", nil, ""},
		// Who is not trusted writes what it likes.
		{"203.0.113.9:4711", notes{"198.51.100.1"}, "203.0.113.9"},
		{"203.0.113.9:4711", notes{"10.0.0.1, 10.0.0.2"}, "203.0.113.9"},
		{"@", notes{"198.51.100.1"}, ""},
		// Who is trusted is believed, and no further.
		{"10.0.0.1:80", nil, "10.0.0.1"},
		{"10.0.0.1:80", notes{""}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"198.51.100.1"}, "198.51.100.1"},
		{"[fd00::1]:80", notes{"198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:10.0.0.1]:80", notes{"198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1:80", notes{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1:80", notes{"192.0.2.66, 198.51.100.1"}, "198.51.100.1"},           // spoofed by 198.51.100.1
		{"10.0.0.1:80", notes{"10.0.0.9, 198.51.100.1"}, "198.51.100.1"},             // the same, as a proxy of ours
		{"10.0.0.1:80", notes{"192.0.2.66, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"}, // two proxies
		{"10.0.0.1:80", notes{"192.0.2.66,198.51.100.1\t,\t 10.0.0.2 "}, "198.51.100.1"},
		{"10.0.0.1:80", notes{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"}, // all are ours: the first
		// Several fields are one list.
		{"10.0.0.1:80", notes{"192.0.2.66", "198.51.100.1", "10.0.0.2"}, "198.51.100.1"},
		{"10.0.0.1:80", notes{"198.51.100.1", "", ", ,"}, "198.51.100.1"},
		// Ports, brackets and zones.
		{"10.0.0.1:80", notes{"198.51.100.1:1234"}, "198.51.100.1"},
		{"10.0.0.1:80", notes{"2001:db8::1"}, "2001:db8::1"},
		{"10.0.0.1:80", notes{"[2001:db8::1]"}, "2001:db8::1"},
		{"10.0.0.1:80", notes{"[2001:db8::1]:1234"}, "2001:db8::1"},
		{"10.0.0.1:80", notes{"fe80::1%eth0"}, "fe80::1"},
		{"10.0.0.1:80", notes{"198.51.100.1, [fd00::2]:443"}, "198.51.100.1"},
		// Nonsense ends the search: what stands before it is nobody's word.
		{"10.0.0.1:80", notes{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"198.51.100.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:80", notes{"198.51.100.1, 300.1.1.1"}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"198.51.100.1 10.0.0.2"}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"[198.51.100.1]"}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"198.51.100.1:port"}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"010.0.0.2"}, "10.0.0.1"}, // octal to some
		{"10.0.0.1:80", notes{"\"198.51.100.1\""}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"for=198.51.100.1"}, "10.0.0.1"},
		{"10.0.0.1:80", notes{"198.51.100.1" + strings.Repeat(", 10.0.0.2", maxHops)}, "10.0.0.2"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.notes, "Forwarded": {"for=192.0.2.99"}}}
		got, ok := ClientAddress{Trusted: prefixes("10.0.0.0/8", "fd00::/8")}.Of(r)
		require.Equal(t, c.want != "", ok, "%+v", c)
		if ok {
			require.Equal(t, c.want, got.String(), "%+v", c)
		}
		got, ok = ClientAddress{}.Of(r) // trusts nobody
		direct, _ := parseNode(c.remote)
		require.Equal(t, c.want != "", ok)
		require.Equal(t, direct, got, "%+v", c)
	}
	r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"X-Forwarded-For": {"198.51.100.1"}, "X-Real-Ip": {"198.51.100.2"}}}
	got, _ := ClientAddress{Trusted: prefixes("::ffff:10.0.0.0/104"), Header: "x-real-ip"}.Of(r)
	require.Equal(t, "198.51.100.2", got.String())
}

// The peer of a Unix socket may be trusted as a proxy is, and nothing else without an address is taken for one.
func TestClientAddressOfUnixSockets(t *testing.T) {
	unix, tcp := &net.UnixAddr{Name: "/run/s", Net: "unix"}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for _, c := range []struct {
		remote, note string
		local        net.Addr // nil: not known
		want         string   // empty: none
	}{
		{"@", "198.51.100.1", unix, "198.51.100.1"},
		{"", "198.51.100.1", unix, "198.51.100.1"},
		{"@", "198.51.100.1", nil, "198.51.100.1"},
		{"@proxy", "198.51.100.1", nil, "198.51.100.1"},
		{"/run/proxy", "192.0.2.66, 198.51.100.1, 10.0.0.2", nil, "198.51.100.1"},
		{"@", "10.0.0.3, 10.0.0.2", unix, "10.0.0.3"},
		{"@", "", unix, ""},
		{"@", "198.51.100.1, unknown", unix, ""},
		{"@", "198.51.100.1", tcp, ""},
		{"", "198.51.100.1", nil, ""},
		{"pipe", "198.51.100.1", nil, ""},
		{"203.0.113.9:4711", "198.51.100.1", nil, "203.0.113.9"},
		{"203.0.113.9:4711", "198.51.100.1", unix, "203.0.113.9"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": {c.note}}}
		if c.local != nil {
			r = r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, c.local))
		}
		got, ok := ClientAddress{Trusted: prefixes("10.0.0.0/8"), TrustedUnix: true}.Of(r)
		require.Equal(t, c.want != "", ok, "%+v", c)
		if ok {
			require.Equal(t, c.want, got.String(), "%+v", c)
		}
	}
}

// Clients behind a proxy on a Unix socket have a limit each, and a server in front of which none is trusted has one for all.
func TestBehindAUnixSocket(t *testing.T) {
	for trusted, want := range map[bool][]int{true: {200, 200, 429}, false: {200, 429, 429}} {
		windows := map[string]limit.Limiter{}
		m, err := NewRules(nil, []Rule{{Name: "x", Keys: []KeyFunc{ByClientAddress(ClientAddress{TrustedUnix: trusted})}, LimiterFor: func(key string) limit.Limiter {
			if windows[key] == nil {
				windows[key] = redistest.Must(limit.NewLocal(limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 1, Interval: time.Hour}}))(t)
			}
			return windows[key]
		}}})
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		s := &http.Server{Handler: m.Handler(answers)}
		go func() { _ = s.Serve(l) }()
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		for i, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
			r := redistest.Must(http.NewRequest(http.MethodGet, "http://x/", nil))(t)
			r.Header.Set("X-Forwarded-For", from)
			resp, err := client.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, want[i], resp.StatusCode, "%v: request %d", trusted, i)
		}
		require.NoError(t, s.Close())
	}
}

func TestClientAddressForwarded(t *testing.T) {
	for note, want := range map[string]string{ // by 10.0.0.1, which is trusted as 10.0.0.0/8 is
		`for=198.51.100.1`:                                       "198.51.100.1",
		`For="198.51.100.1"`:                                     "198.51.100.1",
		`FOR=198.51.100.1;proto=https;by=10.0.0.1`:               "198.51.100.1",
		`proto=http ; by="[fd00::1]:80" ; for="[2001:db8::1]:7"`: "2001:db8::1",
		`for="198.51.100.1:80"`:                                  "198.51.100.1",
		`for=198.51.100.1:80`:                                    "198.51.100.1", // many write it so, without the quotes that a colon needs
		`for="198.51.100.1:_http"`:                               "198.51.100.1",
		`for="[2001:db8::1]:_x"`:                                 "2001:db8::1",
		`for=192.0.2.66, for=198.51.100.1`:                       "198.51.100.1",
		`for=192.0.2.66, for=198.51.100.1, for=10.0.0.2`:         "198.51.100.1",
		`for=198.51.100.1;, for=10.0.0.2;`:                       "198.51.100.1",
		`for="192.0.2.66`:                                        "10.0.0.1",
		`for="192.0.2.66, for=198.51.100.1`:                      "198.51.100.1", // the client's open quote
		`for="\", for=198.51.100.1, for=10.0.0.2`:                "198.51.100.1",
		`for=192.0.2.66, for="_a,b\",for=192.0.2.67"`:            "10.0.0.1", // quoted: one element
		`for=192.0.2.66, for="198.51.100.\1"`:                    "198.51.100.1",
		`for=192.0.2.66, for=unknown`:                            "10.0.0.1",
		`for=192.0.2.66, for=_hidden`:                            "10.0.0.1",
		`for=192.0.2.66, for=_hidden, for=10.0.0.2`:              "10.0.0.2",
		`for=192.0.2.66, proto=https`:                            "10.0.0.1",
		`for=192.0.2.66;for=198.51.100.1`:                        "10.0.0.1", // twice: neither
		`for=192.0.2.66, for=2001:db8::1`:                        "10.0.0.1", // IPv6 is in brackets
		`for=192.0.2.66, for`:                                    "10.0.0.1",
		`for=192.0.2.66, for=`:                                   "10.0.0.1",
		`for=192.0.2.66, for="198.51.100.1"x`:                    "10.0.0.1",
		`192.0.2.66`:                                             "10.0.0.1",
		``:                                                       "10.0.0.1",
		` , ,`:                                                   "10.0.0.1",
	} {
		r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"Forwarded": {note}, "X-Forwarded-For": {"192.0.2.99"}}}
		got, ok := ClientAddress{Trusted: prefixes("10.0.0.0/8"), Header: "forwarded"}.Of(r)
		require.True(t, ok)
		require.Equal(t, want, got.String(), "%s", note)
	}
}

func TestClientAddressGroups(t *testing.T) {
	for _, c := range []struct {
		bits       int
		addr, want string
	}{
		{0, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{0, "64:ff9b::192.0.2.1", "192.0.2.1"}, // NAT64: two clients
		{48, "64:ff9b::192.0.2.2", "192.0.2.2"},
		{0, "64:ff9b:1::192.0.2.2", "64:ff9b:1::/64"}, // a network's own prefix, whose form is not known
		{0, "64:ff9b::1:192.0.2.2", "64:ff9b::/64"},
		{64, "2001:db8:1:2::", "2001:db8:1:2::/64"},
		{56, "2001:db8:1:2ff::1", "2001:db8:1:200::/56"},
		{128, "2001:db8::1", "2001:db8::1/128"},
		{129, "2001:db8::1", "2001:db8::/64"},
		{64, "203.0.113.9", "203.0.113.9"},
	} {
		require.Equal(t, c.want, ClientAddress{IPv6Bits: c.bits}.group(netip.MustParseAddr(c.addr)))
	}
}

// The rule again, written down in another way: the whole list, split, with the standard library's parsers.
func FuzzClientAddress(f *testing.F) {
	f.Add("10.0.0.1:80", "192.0.2.66, 198.51.100.1:80, [fd00::1]", "10.0.0.3")
	f.Add("[fd00::1]:80", "1.2.3.4,,unknown", "")
	f.Fuzz(func(t *testing.T, remote, first, second string) {
		c := ClientAddress{Trusted: prefixes("10.0.0.0/8", "fd00::/8")}
		got, ok := c.Of(&http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {first, second}}})

		parse := func(s string) (netip.Addr, error) {
			if a, err := netip.ParseAddr(s); err == nil {
				return a.WithZone("").Unmap(), nil
			}
			host, port, err := net.SplitHostPort(s)
			if err != nil {
				host, port = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), "0"
				if len(host) != len(s)-2 {
					return netip.Addr{}, fmt.Errorf("no brackets")
				}
			}
			a, err := netip.ParseAddr(host)
			if _, bad := strconv.ParseUint(port, 10, 16); err == nil && (bad != nil || strings.HasPrefix(port, "+")) {
				err = fmt.Errorf("port %q", port)
			}
			if err == nil && a.Is4() == strings.HasPrefix(s, "[") {
				err = fmt.Errorf("brackets are for IPv6")
			}
			return a.WithZone("").Unmap(), err
		}
		want, err := parse(remote)
		require.Equal(t, err == nil, ok, "%q: %v", remote, err)
		if err != nil {
			return
		}
		list := strings.Split(first+","+second, ",")
		for i := len(list) - 1; i >= 0 && len(list)-i <= maxHops; i-- {
			if p := want; !netip.MustParsePrefix("10.0.0.0/8").Contains(p) && !netip.MustParsePrefix("fd00::/8").Contains(p) {
				break
			}
			s := strings.Trim(list[i], " \t")
			if s == "" {
				continue
			}
			a, err := parse(s)
			if err != nil {
				break
			}
			want = a
		}
		require.Equal(t, want, got)
	})
}

// Whatever the client begins a Forwarded list with, what the proxies add to it is read.
func FuzzForwarded(f *testing.F) {
	f.Add(`for="a`, []byte{1, 2, 3}, byte(7))
	f.Add(`for=1.2.3.4;by="\`, []byte{0, 9, 255, 8}, byte(255))
	f.Fuzz(func(t *testing.T, client string, proxies []byte, style byte) {
		list, want := client, netip.Addr{}
		for i, b := range proxies[:min(len(proxies), 20)] {
			a := netip.AddrFrom4([4]byte{198, 51, 100, b}) // the first is the client's own address
			if i > 0 {
				a = netip.AddrFrom4([4]byte{10, 0, 0, b})
			}
			node := a.String()
			if (style+b)&1 > 0 {
				v6 := a.As4()
				a = netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 15: v6[3]})
				if i > 0 {
					a = netip.AddrFrom16([16]byte{0: 0xfd, 15: v6[3]})
				}
				node = `"[` + a.String() + `]"`
			} else if (style+b)&2 > 0 {
				node = `"` + node + `:4711"`
			}
			element := "for=" + node
			if style&4 > 0 {
				element = `by="a,\"b;";` + strings.ToUpper("for=") + node
			}
			if style&8 > 0 {
				element += ";proto=https"
			}
			list += []string{",", ", ", " ,\t"}[b%3] + element
			if i == 0 {
				want = a
			}
		}
		c := ClientAddress{Trusted: prefixes("10.0.0.0/8", "fd00::/8"), Header: "Forwarded"}
		got, ok := c.Of(&http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"Forwarded": {list}}})
		require.True(t, ok)
		if want.IsValid() {
			require.Equal(t, want, got, "%s", list)
		}
	})
}

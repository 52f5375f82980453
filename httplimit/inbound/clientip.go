// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// A ClientAddress determines the address that a request comes from, also behind proxies. It never believes what a
// client writes into its own headers: it takes the right-most address in the header that is not a trusted proxy's,
// and ignores the header unless a trusted proxy has sent the request.
//
// The zero value trusts no proxy: the address is that of the connection. A ClientAddress is safe for concurrent use.
type ClientAddress struct {
	// Trusted are the proxies that are believed. Each must add to the header the address that connected to it.
	Trusted []netip.Prefix
	// TrustedUnix says that every peer on a Unix socket, which has no address, is such a proxy too. By default no such
	// peer is believed, and all requests by Unix sockets count as one client.
	TrustedUnix bool
	// Header is the header that the proxies add the address to: "X-Forwarded-For", which is the default, or
	// "Forwarded" (RFC 7239). All trusted proxies must write it: if one leaves it alone, it comes from the client.
	Header string
	// IPv6Bits is how many leading bits of an IPv6 address identify a client, 1 to 128: a subscriber usually has a
	// whole /64 and may use any address of it. The default, for 0 and for values out of range, is 64. An address of
	// NAT64, in 64:ff9b::/96, counts as the IPv4 address inside it.
	IPv6Bits int
}

// maxHops is how many addresses of the header are read. No honest chain of proxies is longer.
const maxHops = 64

// Of returns the client's address. It reports false if the connection has no address, or one that cannot be read. A
// connection has none on a Unix socket that is not trusted, or whose proxy did not say who connected to it. The zone
// is dropped, and IPv4-mapped IPv6 addresses are unmapped. If a trusted proxy did not say who connected to it
// ("unknown", a made-up name, nonsense), Of returns the address of that proxy: all clients behind it share its limit.
func (c ClientAddress) Of(r *http.Request) (netip.Addr, bool) {
	addr, ok := parseNode(r.RemoteAddr)
	trusted := ok && c.trusts(addr) || !ok && c.TrustedUnix && byUnixSocket(r)
	if !ok && !trusted {
		return netip.Addr{}, false
	}
	notes := xForwardedFor
	name := c.Header
	if http.CanonicalHeaderKey(name) == "Forwarded" {
		notes = forwardedFor
	} else if name == "" {
		name = "X-Forwarded-For"
	}
	hops := 0
	lines := r.Header.Values(name)
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			if hops++; hops > maxHops || !trusted {
				return addr, addr.IsValid()
			}
			var next netip.Addr
			var found, empty bool
			if next, rest, more, found, empty = notes(rest); empty {
				continue
			}
			if !found {
				return addr, addr.IsValid()
			}
			addr, trusted = next, c.trusts(next)
		}
	}
	return addr, addr.IsValid()
}

// byUnixSocket reports whether a request without an address came by a Unix socket. Either the server listens on one,
// or the peer has the name of one, which begins with @ if it is abstract or empty, and with / if it is a file.
func byUnixSocket(r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return strings.HasPrefix(local.Network(), "unix")
	}
	return strings.HasPrefix(r.RemoteAddr, "@") || strings.HasPrefix(r.RemoteAddr, "/")
}

// nat64 is the prefix by which translators represent IPv4 addresses in IPv6 (RFC 6052 §2.1); the IPv4 address is in
// the last 32 bits. All addresses under it are one network.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// group returns the address, or the IPv6 network that counts as one client. For NAT64 it returns the IPv4 address.
func (c ClientAddress) group(a netip.Addr) string {
	if b := a.As16(); nat64.Contains(a) {
		return netip.AddrFrom4([4]byte(b[12:])).String()
	}
	if a.Is4() {
		return a.String()
	}
	bits := c.IPv6Bits
	if bits < 1 || bits > 128 {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked().String()
}

func (c ClientAddress) trusts(a netip.Addr) bool {
	for _, p := range c.Trusted {
		if p.Contains(a) {
			return true
		}
		// 10.0.0.0/8 written as ::ffff:10.0.0.0/104 means the same.
		if b := p.Addr(); b.Is4In6() && p.Bits() >= 96 && netip.PrefixFrom(b.Unmap(), p.Bits()-96).Contains(a) {
			return true
		}
	}
	return false
}

// xForwardedFor takes the last element of a list. Lists have empty elements (RFC 9110 section 5.6.1),
// which count for nothing.
func xForwardedFor(list string) (a netip.Addr, rest string, more, found, empty bool) {
	element := list
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		element, rest, more = list[i+1:], list[:i], true
	}
	if element = trim(element); element == "" {
		return a, rest, more, false, true
	}
	a, found = parseNode(element)
	return a, rest, more, found, false
}

// parseNode reads an address with or without a port: 192.0.2.1, 192.0.2.1:80, 2001:db8::1,
// [2001:db8::1], [2001:db8::1]:80.
func parseNode(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil && strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		if a, err = netip.ParseAddr(s[1 : len(s)-1]); err == nil && a.Is4() {
			return netip.Addr{}, false
		}
	}
	if err != nil {
		var ap netip.AddrPort
		ap, err = netip.ParseAddrPort(s)
		a = ap.Addr()
	}
	return a.WithZone("").Unmap(), err == nil
}

func trim(s string) string { return strings.Trim(s, " \t") }

// forwardedFor takes the last element of a Forwarded list, and from it the node in "for" (RFC 7239 sections 4 and 6).
// It reads backwards, so a client that begins the list with an open quote, for instance, cannot spoil what the
// proxies have added.
func forwardedFor(list string) (a netip.Addr, rest string, more, found, empty bool) {
	element := list
	for i, quoted := len(list)-1, false; i >= 0; i-- {
		switch c := list[i]; {
		case c == '"' && !(quoted && escaped(list, i)):
			quoted = !quoted
		case c == ',' && !quoted:
			element, rest, more = list[i+1:], list[:i], true
			i = 0
		}
	}
	if element = trim(element); element == "" {
		return a, rest, more, false, true
	}
	node, ok := forParameter(element)
	if !ok {
		return a, rest, more, false, false
	}
	// Node ports may be obfuscated, as in "192.0.2.1:_port": only the address counts.
	if host, port, cut := strings.Cut(node, ":_"); cut && port != "" {
		node = host
	}
	if strings.IndexByte(node, ':') >= 0 && !strings.HasPrefix(node, "[") && strings.Count(node, ":") > 1 {
		return a, rest, more, false, false // IPv6 is in brackets
	}
	a, found = parseNode(node)
	return a, rest, more, found, false
}

// escaped reports whether a backslash stands before s[i] which is not escaped itself.
func escaped(s string, i int) bool {
	n := 0
	for i--; i >= 0 && s[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// forParameter returns the value of "for" in a Forwarded element. It reports false if the element has none or
// several, or is malformed.
func forParameter(element string) (value string, found bool) {
	for rest := element; ; {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return "", false
		}
		var v string
		if v, rest, ok = parameterValue(after); !ok {
			return "", false
		}
		if strings.EqualFold(trim(name), "for") {
			if found {
				return "", false
			}
			value, found = v, true
		}
		if rest = trim(rest); rest == "" {
			return value, found
		}
		if rest[0] != ';' {
			return "", false
		}
		if rest = trim(rest[1:]); rest == "" {
			return value, found
		}
	}
}

// parameterValue reads a token or a quoted string (RFC 9110 section 5.6.4) from the start of s.
func parameterValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexByte(s, ';')
		if end < 0 {
			end = len(s)
		}
		value = trim(s[:end])
		return value, s[end:], value != "" && !strings.ContainsAny(value, "\" \t\\=")
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// SPDX-License-Identifier: Apache-2.0

// Package authority turns the authority of a URL into the one form of its host in which hosts are compared and dialled, so
// that no writing of a host leads around a rule or past a list.
package authority

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The bounds of RFC 1035 section 2.3.4, of a name without the dot of the root.
const (
	maxName  = 253
	maxLabel = 63
)

// An Authority is a host and a port in their normal form. See [Parse].
type Authority struct {
	Host string // a name in lower case, or an address as netip writes it, without brackets
	Port string // "" for none
}

// Parse parses the Host of a url.URL or of an http.Request: host, or host:port, in which net/url has decoded what was
// percent-encoded. The normal form of its host is
//
//   - for an address in brackets: what net/netip writes. One that stands for an IPv4 address is that address. An IPv6
//     address keeps its zone, and is another address than the one without.
//   - for a name whose last label is a number: the IPv4 address that it is a writing of, in 1 to 4 parts that are decimal,
//     octal or hexadecimal, as the URL Standard (https://url.spec.whatwg.org/#concept-ipv4-parser) and inet_aton(3) read it.
//   - for any other name: its ASCII form, as net/http dials it, in lower case and without the dot of the root.
//
// What is none of these is an error: a user, a percent sign, an empty label, or any character but letters, digits, hyphens
// and underscores.
func Parse(s string) (Authority, error) {
	bracketed, end := strings.HasPrefix(s, "["), strings.IndexByte(s, ':')
	if bracketed {
		if end = strings.IndexByte(s, ']') + 1; end == 0 {
			return Authority{}, errors.New("a bracket is not closed")
		}
	} else if end < 0 {
		end = len(s)
	}
	host, rest := s[:end], s[end:]
	port, err := portOf(rest)
	if err != nil {
		return Authority{}, err
	}
	if bracketed {
		host, err = address(host[1 : end-1])
	} else {
		host, err = Name(host)
	}
	return Authority{host, port}, err
}

// portOf returns the port in ":port", in decimal without leading zeros.
func portOf(s string) (string, error) {
	digits, ok := strings.CutPrefix(s, ":")
	if s == "" || ok && digits == "" { // RFC 3986 section 3.2.3 allows an empty one
		return "", nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || n == 0 {
		return "", errors.New("the port is no number in 1..65535") // what stands for it may be a password
	}
	return strconv.FormatUint(n, 10), nil
}

// address returns the normal form of what stands in brackets.
func address(s string) (string, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || a.Is4():
		return "", errors.New("what is in brackets is no IPv6 address")
	case a.Is4In6() && a.Zone() != "":
		return "", errors.New("an IPv4 address has no zone")
	}
	for i := range len(a.Zone()) {
		if !unreserved(a.Zone()[i]) {
			return "", errors.New("the zone of the address has other characters than those of RFC 6874")
		}
	}
	return a.Unmap().String(), nil
}

// Name returns the normal form of a host that is no address in brackets and has no port. See [Parse].
func Name(s string) (string, error) {
	if normal(s) {
		return s, nil
	}
	if !ascii(s) {
		var err error
		if s, err = toASCII(s); err != nil {
			return "", err
		}
	}
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if !labels(s) {
		return "", fmt.Errorf("it is not made of labels of 1 to %d letters, digits, hyphens and underscores, of %d characters in all", maxLabel, maxName)
	}
	if last := s[strings.LastIndexByte(s, '.')+1:]; number(last) {
		return ipv4(s)
	}
	return s, nil
}

// normal reports whether s is in its normal form and no address, for most names in one pass and without an allocation.
func normal(s string) bool {
	return labels(s) && s == strings.ToLower(s) && !digit(s[strings.LastIndexByte(s, '.')+1])
}

// labels reports whether s is a name of the labels that Parse allows.
func labels(s string) bool {
	label := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = -1
		case !letter(c) && !digit(c) && c != '-' && c != '_':
			return false
		}
		if label++; label > maxLabel {
			return false
		}
	}
	return label > 0 && len(s) <= maxName
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func unreserved(c byte) bool { return letter(c) || digit(c) || strings.IndexByte("-._~", c) >= 0 }

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// number reports whether a name that ends in the label must be an IPv4 address, by the URL Standard.
func number(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// ipv4 returns the address that a name is a writing of: each part but the last is a byte, and the last is all that is left.
func ipv4(s string) (string, error) {
	bad := fmt.Errorf("%q ends in a number and is no IPv4 address", s)
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return "", bad
	}
	var sum uint64
	for i, part := range parts {
		base := 10
		if hex, ok := strings.CutPrefix(part, "0x"); ok {
			part, base = "0"+hex, 16
		} else if strings.HasPrefix(part, "0") {
			base = 8
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		n, err := strconv.ParseUint(part, base, bits)
		if err != nil {
			return "", bad
		}
		sum = sum<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}).String(), nil
}

// Named returns the normal form of a host that a rule or a list names: a name, an IPv4 address, or "*." and a name, for all
// names below it.
func Named(s string) (string, error) {
	base, below := strings.CutPrefix(s, "*.")
	host, err := Name(base)
	switch {
	case err != nil:
		return "", err
	case below && IsAddr(host):
		return "", errors.New("there are no names below an address")
	case below:
		return "*." + host, nil
	}
	return host, nil
}

// Covers reports whether a host that is named is the other, or stands for it. No "*." stands for an address.
func Covers(named, host string) bool {
	if suffix, ok := strings.CutPrefix(named, "*"); ok {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix) && !IsAddr(host)
	}
	return host == named
}

// IsAddr reports whether a host in its normal form is an address.
func IsAddr(host string) bool {
	return strings.IndexByte(host, ':') >= 0 || number(host[strings.LastIndexByte(host, '.')+1:])
}

// String returns the authority as the Host of a url.URL.
func (a Authority) String() string {
	switch {
	case a.Port != "":
		return net.JoinHostPort(a.Host, a.Port)
	case strings.IndexByte(a.Host, ':') >= 0:
		return "[" + a.Host + "]"
	}
	return a.Host
}

// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

var errNotDialled = errors.New("authority: not dialled")

// toASCII returns the ASCII form of an internationalized name by UTS 46, which may be an address: "１２７.0.0.1" is one. The
// tables for it are inside net/http, which has no function for them, so a Transport is asked for a connection and its Dial
// takes the name. The module golang.org/x/net has such a function, but every importer of this module would have that
// module and the four that it needs in its graph; and what a Transport of another version of the tables dials could then
// be another host.
func toASCII(name string) (string, error) {
	if !utf8.ValidString(name) || strings.ContainsAny(name, ":/[]@%") {
		return "", errors.New("it is no host name")
	}
	var addr string
	t := &http.Transport{DialContext: func(_ context.Context, _, a string) (net.Conn, error) {
		addr = a
		return nil, errNotDialled
	}}
	u := &url.URL{Scheme: "http", Host: name + ":80", Path: "/"}
	if _, err := t.RoundTrip(&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}); !errors.Is(err, errNotDialled) {
		return "", err
	}
	host := strings.TrimSuffix(addr, ":80")
	if !ascii(host) {
		return "", errors.New("it is no internationalized domain name")
	}
	return host, nil
}

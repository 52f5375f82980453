// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestPlatformsCannotSpeakForTheGateway checks with both versions of HTTP that a platform's Proxy-Status with our name
// reaches the client neither in a response of 1xx, nor in the header, nor in a trailer, whether it was announced or not,
// and that what stands beside it does.
func TestPlatformsCannotSpeakForTheGateway(t *testing.T) {
	const said, want = `rrl-gateway; error=proxy_internal_response, cdn; error=dns_error`, "cdn; error=dns_error"
	x := relayTo(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Proxy-Status", said)
		w.WriteHeader(http.StatusEarlyHints)
		prefix := http.TrailerPrefix
		if r.URL.Path == "/announced" {
			h.Del("Proxy-Status") // a ReverseProxy would repeat the header's in the trailer
			h.Set("Trailer", "Proxy-Status, X-Sum")
			prefix = ""
		}
		fmt.Fprint(w, "body")
		w.(http.Flusher).Flush()
		h.Set(prefix+"Proxy-Status", said)
		h.Set(prefix+"X-Sum", "1")
	})
	for _, h2 := range []bool{false, true} {
		for _, path := range []string{"/announced", "/unannounced"} {
			var early []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				early = append(early, h.Values("Proxy-Status")...)
				return nil
			}})
			c := x.direct(h2)
			req := redistest.Must(http.NewRequestWithContext(ctx, "GET", x.front.URL+"/"+strings.TrimPrefix(x.platform.URL, "https://")+path, nil))(t)
			resp := redistest.Must(c.Do(req))(t)
			require.Equal(t, "body", string(redistest.Must(io.ReadAll(resp.Body))(t)))
			require.NoError(t, resp.Body.Close())
			c.CloseIdleConnections()
			require.Equal(t, []string{want}, early, "1xx of %s", path)
			if path == "/unannounced" {
				require.Equal(t, []string{want}, resp.Header["Proxy-Status"])
			}
			require.Equal(t, http.Header{"Proxy-Status": {want}, "X-Sum": {"1"}}, resp.Trailer, path)
		}
	}
	require.NotContains(t, x.log.String(), "rejected")
}

// TestEarlyHintsNeedHTTP11 checks that a client of HTTP/1.0 gets the last response alone.
func TestEarlyHintsNeedHTTP11(t *testing.T) {
	x := relayTo(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "body")
	})
	for version, first := range map[string]int{"1.0": 200, "1.1": 103} {
		conn := redistest.Must(net.Dial("tcp", x.front.Listener.Addr().String()))(t)
		redistest.Must(fmt.Fprintf(conn, "GET /%s/ HTTP/%s\r\nHost: gateway\r\nConnection: close\r\n\r\n", strings.TrimPrefix(x.platform.URL, "https://"), version))(t)
		all := redistest.Must(io.ReadAll(conn))(t)
		require.NoError(t, conn.Close())
		require.Equal(t, fmt.Sprintf("HTTP/%s %d", version, first), string(all[:12]))
		require.Contains(t, string(all), "body")
	}
}

// TestForwardedFieldsAreRemoved checks that a platform learns nothing of the client from the fields that proxies add.
func TestForwardedFieldsAreRemoved(t *testing.T) {
	var got http.Header
	var host string
	x := relayTo(t, func(_ http.ResponseWriter, r *http.Request) { got, host = r.Header, r.Host })
	req := redistest.Must(http.NewRequestWithContext(t.Context(), "GET", x.front.URL+"/"+strings.TrimPrefix(x.platform.URL, "https://"), nil))(t)
	for _, field := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded-Anything",
		"X_Forwarded_For", "x_forwarded-host", "FORWARDED", "Proxy_Authorization", "X_Gateway-Token",
		"Transfer_Encoding", "Content_Length", "Proxy_Connection", "keep_alive"} {
		req.Header.Set(field, "10.1.2.3")
	}
	req.Header.Set("X-Kept", "yes")
	c := x.direct(false)
	defer c.CloseIdleConnections()
	resp := redistest.Must(c.Do(req))(t)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, strings.TrimPrefix(x.platform.URL, "https://"), host)
	require.Equal(t, "yes", got.Get("X-Kept"))
	for field := range got {
		require.NotRegexp(t, "(?i)forwarded|authorization|token|_", field)
	}
}

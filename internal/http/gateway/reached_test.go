// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// raw sends bytes on a connection of its own, and returns the response.
func (x *relay) raw(t *testing.T, format string, args ...any) (*http.Response, string) {
	t.Helper()
	conn := redistest.Must(net.Dial("tcp", x.front.Listener.Addr().String()))(t)
	defer conn.Close()
	redistest.Must(fmt.Fprintf(conn, format, args...))(t)
	resp := redistest.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	defer resp.Body.Close()
	return resp, string(redistest.Must(io.ReadAll(resp.Body))(t))
}

// TestWhatReachedThePlatform checks that only a response to a request that never reached the platform says so, in its Proxy-Status and
// in the log: who reads that sends the request again.
func TestWhatReachedThePlatform(t *testing.T) {
	arrived := make(chan string, 10)
	x := relayTo(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		_, _ = io.Copy(io.Discard, r.Body) // of one that is cut
		panic(http.ErrAbortHandler)
	})
	closed := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, closed.Close())
	x.g.cfg.allow = append(x.g.cfg.allow, "http://"+closed.Addr().String(), "https://localhost:"+port(x.platform.URL))
	require.NoError(t, x.g.Reload(nil))
	host := strings.TrimPrefix(x.platform.URL, "https://")
	for _, c := range []struct {
		name, request string
		status        int
		code          string
		reached       bool // the platform
	}{
		{"closes after it has received it", "POST /" + host + "/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 502, "connection_terminated", true},
		{"no connection", "POST /" + closed.Addr().String() + "/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 502, "destination_unavailable", false},
		{"a certificate of another", "POST /localhost:" + port(x.platform.URL) + "/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 502, "tls_certificate_error", false},
		{"a body that is no body", "POST /" + host + "/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX\r\n0\r\n\r\n", 400, "http_request_error", true},
		{"a host that is not allowed", "POST /example.com/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 403, "http_request_denied", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x.log.Reset()
			resp, body := x.raw(t, "%s", c.request)
			require.Equal(t, c.status, resp.StatusCode, body)
			require.Equal(t, ProxyName+"; error="+c.code, resp.Header.Get("Proxy-Status"), body)
			if c.code == "connection_terminated" {
				require.Equal(t, "/a", <-arrived)
			}
			require.Contains(t, x.log.String(), "error="+c.code)
			require.Equal(t, !c.reached, strings.Contains(x.log.String(), "rejected=true"), x.log.String())
		})
	}
}

// TestStatusesThatCannotBeSentOn checks that the client gets the Gateway's own response, and the log an error, where the status of the
// platform's is none with which a response can be written.
func TestStatusesThatCannotBeSentOn(t *testing.T) {
	x := relayTo(t, nil)
	status := 0
	base := platform(func(r *http.Request) (*http.Response, error) { return says(status, "body")(r) })
	x.g.proxy.Transport = redistest.Must(httplimit.New(x.g.client, httplimit.WithBase(sender{base}), httplimit.WithRules(x.g.hosts.Load().witness())))(t)
	const request = "GET /127.0.0.1/a HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, status = range []int{-1, 0, 99, 100, 150, 199, 1000} {
		x.log.Reset()
		resp, body := x.raw(t, request)
		require.Equal(t, 502, resp.StatusCode)
		require.Equal(t, ProxyName+"; error=connection_terminated", resp.Header.Get("Proxy-Status"))
		require.Contains(t, body, fmt.Sprintf("malformed response: its status is %03d", status))
		require.Contains(t, x.log.String(), "status=502")
		require.Contains(t, x.log.String(), "error=connection_terminated")
		require.NotContains(t, x.log.String(), "rejected=true")
	}
	for _, status = range []int{200, 599, 999} {
		resp, body := x.raw(t, request)
		require.Equal(t, status, resp.StatusCode)
		require.Equal(t, "body", body)
	}
}

// TestClientThatClosesItsSendingSide checks what a client gets that still reads: net/http takes it for one that has left.
func TestClientThatClosesItsSendingSide(t *testing.T) {
	arrived := make(chan struct{}, 1)
	x := relayTo(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	for _, request := range []string{"GET /%s/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc", "POST /%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"} {
		x.log.Reset()
		conn := redistest.Must(net.Dial("tcp", x.front.Listener.Addr().String()))(t)
		defer conn.Close()
		redistest.Must(fmt.Fprintf(conn, request, strings.TrimPrefix(x.platform.URL, "https://")))(t)
		<-arrived
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		resp := redistest.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
		require.Equal(t, statusClosed, resp.StatusCode, request)
		require.Equal(t, ProxyName+"; error=connection_terminated", resp.Header.Get("Proxy-Status"), request)
		require.Contains(t, x.log.String(), "status=499")
	}
}

func port(url string) string { return url[strings.LastIndexByte(url, ':')+1:] }

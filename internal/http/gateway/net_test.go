// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A relay is a gateway and a platform that listen on loopback. The platform speaks https and HTTP/2.
type relay struct {
	g        *Gateway
	platform *httptest.Server
	front    *httptest.Server
	ca       *CA
	log      *strings.Builder
}

// newRelay starts both. The platform sends an event and waits for next before it sends the other, or until the client
// has gone.
func newRelay(t *testing.T, next chan struct{}) *relay {
	return relayTo(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s %s\n\n", r.Proto, r.URL)
		w.(http.Flusher).Flush()
		select {
		case <-next:
			fmt.Fprint(w, "data: last\n\n")
		case <-r.Context().Done():
		}
	})
}

// relayTo starts a platform that is the function, and a gateway before it.
func relayTo(t *testing.T, platform http.HandlerFunc) *relay {
	x := &relay{log: &strings.Builder{}, platform: httptest.NewUnstartedServer(platform)}
	x.platform.EnableHTTP2 = true
	x.platform.StartTLS()
	t.Cleanup(x.platform.Close)
	client := clienttest.New(t, redistest.Client(t))
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	var err error
	x.ca = redistest.Must(CreateCA(t.TempDir()))(t)
	base := x.platform.Client().Transport.(*http.Transport).Clone()
	x.g, err = New(client, []httplimit.Rule{{
		Match:  httplimit.Match{Hosts: []string{"127.0.0.1"}},
		Limits: []httplimit.Limit{{Name: redistest.Key(t), Rate: ratelimiter.Rate{Permits: 100, Interval: time.Minute}}},
	}}, WithAllow(x.platform.URL), WithBase(base), WithCA(x.ca), WithLogger(slog.New(slog.NewTextHandler(x.log, nil))))
	require.NoError(t, err)
	x.front = httptest.NewUnstartedServer(x.g)
	x.front.Config.Protocols = &http.Protocols{}
	x.front.Config.Protocols.SetHTTP1(true)
	x.front.Config.Protocols.SetUnencryptedHTTP2(true)
	x.front.Start()
	t.Cleanup(x.front.Close)
	return x
}

// proxied returns a client that has the gateway as its proxy and trusts its CA.
func (x *relay) proxied(h2 bool) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(x.ca.Certificate())
	proxy, _ := url.Parse(x.front.URL)
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2}}
}

// direct returns a client that uses the gateway as its base URL, over HTTP/2 if h2.
func (x *relay) direct(h2 bool) *http.Client {
	p := &http.Protocols{}
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: &http.Transport{Protocols: p}}
}

// TestLogOfADeniedRequest checks that the log has the status of a request that was denied, in each mode, without anything of its target,
// and what it took with its unit.
func TestLogOfADeniedRequest(t *testing.T) {
	x := relayTo(t, func(http.ResponseWriter, *http.Request) {})
	for _, target := range []string{"/user:secret@elsewhere.example.com/path?token=secret", "http://user:secret@elsewhere.example.com/path?token=secret"} {
		before := len(x.log.String())
		require.Equal(t, 403, do(x.g, "GET", target).Code)
		line := x.log.String()[before:]
		require.Contains(t, line, " status=403 ")
		require.Regexp(t, ` took_ms=\d+ `, line)
		require.NotContains(t, line, "secret")
		require.NotContains(t, line, "elsewhere")
	}
}

// TestStreams checks in both modes and with both versions of HTTP that an event arrives while the stream is open, and that
// Shutdown lets it end, after which there are no new ones. Prefer bounds the wait and not the stream.
func TestStreams(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, proxied := range []bool{false, true} {
			t.Run(fmt.Sprintf("h2=%v proxied=%v", h2, proxied), func(t *testing.T) {
				next := make(chan struct{})
				x := newRelay(t, next)
				c, target := x.direct(h2), x.front.URL+"/"+strings.TrimPrefix(x.platform.URL, "https://")+"/events?token=secret"
				if proxied {
					c, target = x.proxied(h2), x.platform.URL+"/events?token=secret"
				}
				defer c.CloseIdleConnections()
				req := redistest.Must(http.NewRequestWithContext(t.Context(), "GET", target, nil))(t)
				req.Header.Set("Prefer", "wait=0")
				req.Header.Set("Upgrade", "h2c")
				if h2 {
					req.Header.Del("Upgrade")
				}
				resp := redistest.Must(c.Do(req))(t)
				defer resp.Body.Close()
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, h2, resp.ProtoMajor == 2)
				body := bufio.NewReader(resp.Body)
				require.Equal(t, "data: HTTP/2.0 /events?token=secret\n", redistest.Must(body.ReadString('\n'))(t))

				down := make(chan error, 1)
				go func() { down <- x.g.Shutdown(t.Context()) }()
				<-x.g.stopping.Done()
				next <- struct{}{}
				require.Equal(t, "\ndata: last\n\n", string(redistest.Must(io.ReadAll(body))(t)))
				c.CloseIdleConnections()
				require.NoError(t, <-down)
				x.front.Close()
				require.NotContains(t, x.log.String(), "secret")
				require.Contains(t, x.log.String(), "/events")
			})
		}
	}
}

// TestShutdownCutsTunnels checks that a stream in a tunnel ends with Shutdown's context.
func TestShutdownCutsTunnels(t *testing.T) {
	x := newRelay(t, make(chan struct{}))
	c := x.proxied(true)
	defer c.CloseIdleConnections()
	resp := redistest.Must(c.Get(x.platform.URL))(t)
	defer resp.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, x.g.Shutdown(ctx), context.DeadlineExceeded)
	_, err := io.ReadAll(resp.Body)
	require.Error(t, err)
}

// TestTunnelsAreForOneAllowedHost checks that neither CONNECT nor a Host within a tunnel reaches another host.
func TestTunnelsAreForOneAllowedHost(t *testing.T) {
	x := newRelay(t, nil)
	c := x.proxied(false)
	defer c.CloseIdleConnections()
	_, err := c.Get("https://evil.example.net/")
	require.ErrorContains(t, err, "Forbidden")

	req := redistest.Must(http.NewRequestWithContext(t.Context(), "GET", x.platform.URL, nil))(t)
	req.Host = "evil.example.net"
	resp := redistest.Must(c.Do(req))(t)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)

	w := httptest.NewRecorder()
	within := context.WithValue(t.Context(), tunnelKey{}, &tunnelConn{})
	x.g.connect(&recorder{ResponseWriter: w}, httptest.NewRequest(http.MethodConnect, "example.com:443", nil).WithContext(within), nil)
	require.Equal(t, http.StatusNotImplemented, w.Code)
	require.Contains(t, w.Body.String(), "no tunnel within a tunnel")

	x.g.tunnels, x.g.cfg.ca = nil, nil
	c.CloseIdleConnections()
	_, err = c.Get(x.platform.URL)
	require.ErrorContains(t, err, "Not Implemented")
}

// TestCAFiles checks the mode of the key, and what LoadCA and CreateCA reject.
func TestCAFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	_, err := LoadCA(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	ca := redistest.Must(CreateCA(dir))(t)
	key := filepath.Join(dir, CAKeyFile)
	info := redistest.Must(os.Stat(key))(t)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	_, err = CreateCA(dir)
	require.ErrorIs(t, err, fs.ErrExist)

	leaf := redistest.Must(ca.leaf("api.example.com"))(t)
	require.Same(t, leaf, redistest.Must(ca.leaf("api.example.com"))(t))
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	redistest.Must(leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "api.example.com"}))(t)
	for i := range maxLeaves {
		ca.leaves[fmt.Sprint(i)] = leaf
	}
	redistest.Must(ca.leaf("::1"))(t)
	require.Len(t, ca.leaves, 1)

	require.NoError(t, os.Chmod(key, 0o640))
	_, err = LoadCA(dir)
	require.ErrorContains(t, err, "chmod 600")
}

// TestManyCallers checks that 120 callers at once get a response each, and that no window has more than the limit.
func TestManyCallers(t *testing.T) {
	const callers, permits = 120, 50
	var mu sync.Mutex
	var arrived []time.Time
	platform := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived = append(arrived, time.Now())
	}))
	defer platform.Close()
	client := clienttest.New(t, redistest.Client(t))
	defer client.Close()
	g, err := New(client, []httplimit.Rule{{
		Match:  httplimit.Match{Hosts: []string{"127.0.0.1"}},
		Limits: []httplimit.Limit{{Name: redistest.Key(t), Rate: ratelimiter.Rate{Permits: permits, Interval: time.Second / 2}}},
	}}, WithAllow(platform.URL))
	require.NoError(t, err)
	front := httptest.NewServer(g)
	defer front.Close()
	start := time.Now()
	var wg sync.WaitGroup
	status := make([]int, callers)
	for i := range callers {
		wg.Go(func() {
			resp, err := http.Get(front.URL + "/" + strings.TrimPrefix(platform.URL, "http://") + "/")
			if err == nil {
				status[i] = resp.StatusCode
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	for i := range status {
		require.Equal(t, 200, status[i])
	}
	require.Len(t, arrived, callers)
	require.Greater(t, arrived[2*permits].Sub(start), 975*time.Millisecond, "the 101st permit is of the third interval")
}

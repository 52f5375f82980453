// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestRetrySendsTheBodyAgain checks with httplimit.WithRetry that bodies of up to KeptBody are sent again, and that of a
// larger one the platform's response is returned.
func TestRetrySendsTheBodyAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		var got [][]byte
		g, err := New(client, perMinute(name, 1000), WithTransport(httplimit.WithRetry(1)), WithBase(platform(func(r *http.Request) (*http.Response, error) {
			got = append(got, redistest.Must(io.ReadAll(r.Body))(t))
			require.NoError(t, r.Body.Close())
			if len(got) > 1 {
				return says(200, "done")(r)
			}
			resp, _ := says(429, "slow down")(r)
			resp.Header.Set("Retry-After", "1")
			return resp, nil
		})))
		require.NoError(t, err)
		for _, c := range []struct {
			size  int
			known bool
			want  int
		}{
			{1, true, 200}, {1, false, 200}, {KeptBody, true, 200}, {KeptBody, false, 200}, {KeptBody + 1, true, 429}, {KeptBody + 1, false, 429},
		} {
			got = nil
			body := bytes.Repeat([]byte("body "), c.size/5+1)[:c.size]
			r := httptest.NewRequest("POST", "/api.example.com/v1", iotest.HalfReader(bytes.NewReader(body)))
			if r.ContentLength = -1; c.known {
				r.ContentLength = int64(c.size)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			require.Equal(t, c.want, w.Code, c)
			require.Len(t, got, map[int]int{200: 2, 429: 1}[c.want])
			for _, b := range got {
				require.True(t, bytes.Equal(body, b), c)
			}
		}
	})
}

// TestDrainedPlatform checks that a POST gets a response when the platform drains its HTTP/2 connection, by GOAWAY without
// having processed the request, as it does from net/http itself.
func TestDrainedPlatform(t *testing.T) {
	body := strings.Repeat("body ", 2000)
	for _, direct := range []bool{true, false} {
		p := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body) // the test compares
		}))
		l := &draining{Listener: p.Listener}
		p.Listener, p.Config.Protocols = l, &http.Protocols{}
		p.Config.Protocols.SetUnencryptedHTTP2(true)
		p.Start()
		defer p.Close()
		base := &http.Transport{Protocols: p.Config.Protocols}
		defer base.CloseIdleConnections()
		c, target := &http.Client{Transport: base}, p.URL
		if !direct {
			client := clienttest.New(t, redistest.Client(t))
			defer client.Close()
			g, err := New(client, nil, WithAllow(p.URL), WithBase(base))
			require.NoError(t, err)
			front := httptest.NewServer(g)
			defer front.Close()
			c, target = front.Client(), front.URL+"/"+strings.TrimPrefix(p.URL, "http://")+"/"
		}
		resp := redistest.Must(c.Post(target, "text/plain", strings.NewReader(body)))(t)
		got := redistest.Must(io.ReadAll(resp.Body))(t)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode, "direct %v: %s", direct, got)
		require.Equal(t, body, string(got))
		require.True(t, l.drained.Load())
	}
}

// A draining listener serves its first connection itself: it reads one request of HTTP/2 to its end, and says that it has
// processed none.
type draining struct {
	net.Listener
	once    sync.Once
	drained atomic.Bool
}

func (l *draining) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	first := false
	l.once.Do(func() { first = true })
	if !first {
		return c, nil
	}
	go l.drain(c)
	return l.Accept()
}

func (l *draining) drain(c net.Conn) {
	defer c.Close()
	const data, settings, goAway, endStream, ack = 0, 4, 7, 1, 1
	frame := func(kind, flags byte, payload ...byte) {
		_, _ = c.Write(append([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, 0}, payload...)) // an error ends the reading
	}
	if _, err := io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	frame(settings, 0)
	for {
		var header [9]byte
		if _, err := io.ReadFull(c, header[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(header[:4])>>8)); err != nil {
			return
		}
		switch {
		case header[3] == settings && header[4]&ack == 0:
			frame(settings, ack)
		case header[3] == data && header[4]&endStream != 0:
			l.drained.Store(true)
			frame(goAway, 0, 0, 0, 0, 0, 0, 0, 0, 0) // the last stream is 0, and there is no error
		}
	}
}

// TestKeptBody checks that a body passes what the client has sent as it arrives, and that one that takes its place in the
// middle of a read loses nothing.
func TestKeptBody(t *testing.T) {
	in, client := io.Pipe()
	r := &http.Request{Body: in, ContentLength: -1}
	k := keepBody(r)
	send := func(s string) { redistest.Must(io.WriteString(client, s))(t) }
	receive := func(b io.Reader, n int) string {
		p := make([]byte, n)
		redistest.Must(io.ReadFull(b, p))(t)
		return string(p)
	}
	go send("abc")
	first := r.Body
	require.Equal(t, "abc", receive(first, 3), "the client has sent no more")
	blocked := make(chan error)
	go func() {
		_, err := first.Read(make([]byte, 2))
		blocked <- err
	}()
	for k.mu.Lock(); !k.reading; k.mu.Lock() {
		k.mu.Unlock()
		runtime.Gosched()
	}
	k.mu.Unlock()
	second := redistest.Must(r.GetBody())(t)
	go send("defg")
	require.Equal(t, "abcdefg", receive(second, 7))
	require.NoError(t, <-blocked)
	_, err := first.Read(make([]byte, 1))
	require.ErrorIs(t, err, errBodyClosed)

	k.forget()
	require.Empty(t, k.kept)
	_, err = r.GetBody()
	require.ErrorIs(t, err, errBodySent)
	go func() { send("h"); _ = client.Close() }()
	require.Equal(t, "h", string(redistest.Must(io.ReadAll(second))(t)))
	require.NoError(t, second.Close())
}

// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// onServers runs f against a real server of HTTP/1.1 and one of HTTP/2, through a Transport that counts
// requests and looks into every answer. No goroutine is left.
func onServers(t *testing.T, handler http.Handler, f func(t *testing.T, s *served)) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			client := clienttest.New(t, redistest.Client(t))
			name := redistest.Key(t)
			s := &served{proto: proto, limiter: client.RateLimiter(name)}
			srv := httptest.NewUnstartedServer(handler)
			if srv.EnableHTTP2 = proto == "HTTP/2.0"; srv.EnableHTTP2 {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			s.url = srv.URL
			s.base = srv.Client().Transport.(*http.Transport)
			tr, err := New(client, WithBase(s.base),
				WithRules(Rule{Match: Match{Hosts: []string{"127.0.0.1"}}, Limits: []Limit{{Name: name, Rate: ratelimiter.Rate{Permits: 1000, Interval: time.Hour}}}}),
				WithDetectors(DetectorFunc(func(r *Response) Verdict {
					s.seen.Add(1)
					if strings.Contains(string(r.Body), "slow down") {
						s.throttled.Add(1)
						return Verdict{Throttled: true, Until: r.Now.Add(time.Hour)}
					}
					return Verdict{}
				})))
			require.NoError(t, err)
			s.client = &http.Client{Transport: tr}
			f(t, s)
			s.client.CloseIdleConnections()
			require.Eventually(t, func() bool { return left() == "" }, time.Minute, 5*time.Millisecond)
			srv.Close()
			require.NoError(t, client.Close())
		})
	}
}

// left is a goroutine of ours, or of a connection whose answer nobody has ended.
func left() string {
	stacks := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(g, "httplimit.(*peekedBody)") || strings.Contains(g, "http.(*persistConn)") {
			return g
		}
	}
	return ""
}

type served struct {
	proto, url      string
	base            *http.Transport
	client          *http.Client
	seen, throttled atomic.Int64
	limiter         *ratelimiter.RateLimiter // of 1000 permits
}

func (s *served) get(t *testing.T, path string) *http.Response {
	t.Helper()
	resp := redistest.Must(s.client.Do(request(t, "GET", s.url+path, nil)))(t)
	require.Equal(t, s.proto, resp.Proto)
	return resp
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	b := redistest.Must(io.ReadAll(resp.Body))(t)
	require.NoError(t, resp.Body.Close())
	return string(b)
}

func TestRealAnswers(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"method":%q,"body":%q}`, r.Method, body)
	})
	mux.HandleFunc("/gzip", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "slow down, says "+r.Header.Get("Accept-Encoding"))
		_ = z.Close()
	})
	mux.Handle("/hop", http.RedirectHandler("/hop2", http.StatusFound))
	mux.Handle("/hop2", http.RedirectHandler("/json", http.StatusTemporaryRedirect))
	onServers(t, mux, func(t *testing.T, s *served) {
		require.Equal(t, `{"method":"GET","body":""}`, readAll(t, s.get(t, "/json")))

		resp := redistest.Must(s.client.Do(request(t, "POST", s.url+"/json", strings.NewReader("hello"))))(t)
		require.Equal(t, `{"method":"POST","body":"hello"}`, readAll(t, resp))

		resp = redistest.Must(s.client.Do(request(t, "HEAD", s.url+"/json", nil)))(t)
		require.Empty(t, readAll(t, resp))
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))

		require.Equal(t, `{"method":"GET","body":""}`, readAll(t, s.get(t, "/hop")))
		require.EqualValues(t, 6, 1000-redistest.Must(s.limiter.AvailablePermits(t.Context()))(t), "each hop of a redirect spends permits")

		resp = s.get(t, "/gzip")
		require.True(t, resp.Uncompressed)
		require.Equal(t, "slow down, says gzip", readAll(t, resp))
		require.EqualValues(t, 1, s.throttled.Load())

		_, err := s.client.Do(request(t, "GET", s.url+"/json", nil).WithContext(ContextWithMaxWait(t.Context(), 0)))
		var rejected *Error
		require.ErrorAs(t, err, &rejected, "the hour that a compressed answer asked for has begun")
		require.Equal(t, ReasonCoolDown, rejected.Reason)
	})
}

// Events reach the caller while the server is still sending, also where they are looked into. A caller that closes the stream
// early ends it for the server too.
func TestRealStreams(t *testing.T) {
	next, gone := make(chan string), make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		for {
			select {
			case text := <-next:
				if text == "" {
					return
				}
				_, _ = io.WriteString(w, text+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				gone <- struct{}{}
				return
			}
		}
	})
	onServers(t, mux, func(t *testing.T, s *served) {
		for _, contentType := range []string{"text/event-stream", "application/json"} {
			go func() { next <- "first" }()
			resp := s.get(t, "/?type="+contentType)
			lines := bufio.NewReader(resp.Body)
			for _, text := range []string{"first", "second", "third"} {
				if text != "first" {
					next <- text // the handler waits for us: nothing else can be on its way
				}
				require.Equal(t, text+"\n", redistest.Must(lines.ReadString('\n'))(t))
			}
			next <- ""
			_, err := lines.ReadByte()
			require.Equal(t, io.EOF, err)
			require.NoError(t, resp.Body.Close())
			go func() { next <- "first" }()
			require.NoError(t, s.get(t, "/?type="+contentType).Body.Close())
			<-gone
		}
	})
}

// Trailers are there when the caller has read the end, whether that was read ahead or not.
func TestRealTrailers(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Trailer", "X-Sum")
		switch r.URL.Path {
		case "/long":
			_, _ = w.Write(bytes.Repeat([]byte("x"), 3*maxPeek))
		case "/late":
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(200 * time.Millisecond)
		default:
			_, _ = io.WriteString(w, "x")
		}
		w.Header().Set("X-Sum", "42")
	})
	onServers(t, handler, func(t *testing.T, s *served) {
		for _, path := range []string{"/short", "/late", "/long"} {
			resp := s.get(t, path)
			require.Contains(t, resp.Trailer, "X-Sum")
			for range 100 {
				_ = resp.Trailer.Get("X-Sum") // under -race: nobody writes while the caller does not read
				time.Sleep(3 * time.Millisecond)
				if path != "/late" {
					break
				}
			}
			readAll(t, resp)
			require.Equal(t, "42", resp.Trailer.Get("X-Sum"), path)
		}
	})
}

// The connection of a protocol switch is the caller's to write to.
func TestRealSwitchingProtocols(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, "echo "+line)
	}))
	defer srv.Close()
	client := clienttest.New(t, redistest.Client(t))
	defer client.Close()
	tr, err := New(client, WithBase(srv.Client().Transport), WithDetectors(DetectorFunc(func(*Response) Verdict { panic("not for detectors") })),
		WithRules(Rule{Limits: []Limit{{Name: redistest.Key(t), Rate: ratelimiter.Rate{Permits: 1000, Interval: time.Hour}}}}))
	require.NoError(t, err)
	req := request(t, "GET", srv.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp := redistest.Must((&http.Client{Transport: tr}).Do(req))(t)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	redistest.Must(io.WriteString(conn, "hello\n"))(t)
	require.Equal(t, "echo hello\n", readAll(t, resp))
}

// A connection is used again, also when the caller does not read a short answer, which the look at it
// has read to its end.
func TestRealConnectionsAreReused(t *testing.T) {
	var conns atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"errcode":0}`)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	client := clienttest.New(t, redistest.Client(t))
	defer client.Close()
	tr := redistest.Must(New(client, WithBase(srv.Client().Transport), WithDetectors(says("x", 0, ""))))(t)
	for range 20 {
		require.NoError(t, redistest.Must(tr.RoundTrip(request(t, "GET", srv.URL, nil)))(t).Body.Close())
	}
	require.EqualValues(t, 1, conns.Load())
}

// A quarter of a gigabyte streams through in a tenth of the memory, though it is looked into.
func TestRealLongBody(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it measures memory")
	block := bytes.Repeat([]byte("0123456789abcdef"), 64<<10/16)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		for n := 0; n < 1<<28; n += len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	onServers(t, handler, func(t *testing.T, s *served) {
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		resp := s.get(t, "/")
		for range 1 << 28 / (16 << 20) {
			redistest.Must(io.CopyN(io.Discard, resp.Body, 16<<20))(t)
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			require.Less(t, now.HeapAlloc, before.HeapAlloc+32<<20)
		}
		require.Empty(t, readAll(t, resp))
		require.EqualValues(t, 1, s.seen.Load())
	})
}

// TestBaseWithoutAResponse checks that a base which breaks its contract, and returns neither a response nor an error,
// gets the error that http.Client has for it.
func TestBaseWithoutAResponse(t *testing.T) {
	none := base(func(*http.Request) (*http.Response, error) { return nil, nil })
	transport := redistest.Must(New(clienttest.New(t, redistest.Client(t)), WithBase(none)))(t)
	_, err := (&http.Client{Transport: transport}).Get("http://host.invalid/")
	require.ErrorContains(t, err, "nil *Response")
}

// TestSentTwice checks what the comment of Transport says of a platform that closes a connection after it has received a second request
// on it: a GET arrives again for the permits of one, a POST does not, and nor does a GET without kept connections.
func TestSentTwice(t *testing.T) {
	var arrived atomic.Int64
	addr := redistest.Listen(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for i := range 2 {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			arrived.Add(1)
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		}
	})
	client := clienttest.New(t, redistest.Client(t))
	defer client.Close()
	for _, c := range []struct {
		method  string
		fresh   bool
		arrived int64
	}{{"GET", false, 3}, {"POST", false, 2}, {"GET", true, 2}} {
		arrived.Store(0)
		l := client.RateLimiter(redistest.Key(t) + c.method)
		base := &http.Transport{DisableKeepAlives: c.fresh}
		tr := redistest.Must(New(client, WithBase(base), WithRules(Rule{Limits: []Limit{{Name: l.Name(), Rate: ratelimiter.Rate{Permits: 9, Interval: time.Hour}}}})))(t)
		require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 9, Interval: time.Hour}))
		for range 2 {
			if resp, err := tr.RoundTrip(request(t, c.method, "http://"+addr+"/", nil)); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				require.NoError(t, resp.Body.Close())
			}
		}
		base.CloseIdleConnections()
		require.Equal(t, c.arrived, arrived.Load(), c)
		require.EqualValues(t, 7, redistest.Must(l.AvailablePermits(t.Context()))(t))
	}
}

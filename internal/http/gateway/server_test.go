// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/stretchr/testify/require"
)

// A pipes is a net.Listener whose connections are pipes, from the addresses that they are dialled from.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A pipeFrom is a pipe from an address.
type pipeFrom struct {
	net.Conn
	from net.Addr
}

func (p pipeFrom) RemoteAddr() net.Addr { return p.from }

// dial connects from an address. What the server sends is read as it comes.
func (p *pipes) dial(from string) *stranger {
	near, far := net.Pipe()
	ap, err := net.ResolveTCPAddr("tcp", from)
	if err != nil {
		panic(err)
	}
	s := &stranger{Conn: near, since: time.Now()}
	go s.read()
	p.conns <- pipeFrom{far, ap}
	return s
}

// client returns a client from an address, of HTTP/1 or, without TLS, of HTTP/2.
func (p *pipes) client(from string, http2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		p.conns <- pipeFrom{far, addr}
		return near, nil
	}}}
}

// A stranger is a client that reads all that comes.
type stranger struct {
	net.Conn
	since time.Time

	mu   sync.Mutex
	got  strings.Builder
	gone time.Duration // after which the server closed; 0 while it has not
}

func (s *stranger) read() {
	buf := make([]byte, 1<<10)
	for {
		n, err := s.Conn.Read(buf)
		s.mu.Lock()
		s.got.Write(buf[:n])
		if err != nil {
			s.gone = max(time.Since(s.since), 1)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *stranger) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

func (s *stranger) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

func (s *stranger) send(format string, args ...any) *stranger {
	_, _ = fmt.Fprintf(s.Conn, format, args...) // it fails when the server has closed
	return s
}

// served runs f with a gateway that needs a token, as the command serves it, in virtual time.
func served(t *testing.T, most int, base platform, f func(t *testing.T, p *pipes, log *reports), opts ...Option) {
	inWorld(t, func(t *testing.T, client *ratelimiter.Client, name string) {
		g, err := New(client, []httplimit.Rule{{Match: httplimit.Match{Hosts: []string{"a.example.com"}}, Detectors: []httplimit.Detector{httplimit.HTTPDetector()},
			Limits: []httplimit.Limit{{Name: name, Rate: ratelimiter.Rate{Permits: 3, Interval: time.Minute}}}}},
			append(opts, WithToken("sixteen-letters-"), WithBase(base), WithMaxWait(3*time.Minute))...)
		require.NoError(t, err)
		log := &reports{}
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := NewServer(g)
		server.Protocols = &http.Protocols{}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		ended := make(chan struct{})
		go func() { _ = server.Serve(NewListener(p, most, log.note)); close(ended) }()
		f(t, p, log)
		_ = server.Close()
		<-ended
	})
}

// reports are what a Listener told.
type reports struct {
	mu   sync.Mutex
	told []string
}

func (r *reports) note(source string, rejected int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprint(source, " ", rejected))
}

const authorized = "X-Gateway-Token: sixteen-letters-\r\n"

// TestStrangersAreCut checks when the server leaves a client that has no token: one that says nothing, one whose header or body
// trickles, and one that keeps its connection after its rejection, or sends half of a header by HTTP/2.
func TestStrangersAreCut(t *testing.T) {
	served(t, 0, says(200, "ok"), func(t *testing.T, p *pipes, _ *reports) {
		silent := p.dial("192.0.2.1:1000")
		header := p.dial("192.0.2.1:1001").send("GET / HTTP/1.1\r\n")
		length := p.dial("192.0.2.1:1002").send("POST /a.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		chunked := p.dial("192.0.2.1:1003").send("POST /a.example.com/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		idle := p.dial("192.0.2.1:1004").send("GET /a.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
		half := p.dial("192.0.2.1:1005").send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
			"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS
			"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82") // HEADERS of stream 1, without END_HEADERS
		trickles := []*stranger{header, length, chunked}
		for range 9 {
			time.Sleep(time.Second)
			for i, s := range trickles {
				s.send("%s", []string{"X-A: b\r\n", "x", "1\r\nx\r\n"}[i])
			}
		}
		synctest.Wait()
		for _, s := range append(trickles, silent, half) {
			require.Zero(t, s.left())
		}
		require.Contains(t, idle.all(), "401 Unauthorized")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, headerTimeout, silent.left())
		require.Equal(t, headerTimeout, header.left())
		for _, s := range []*stranger{length, chunked} {
			require.GreaterOrEqual(t, s.left(), unreadTimeout)
			require.Less(t, s.left(), unreadTimeout+time.Second, "net/http lingers for half a second after it has closed its half")
			require.Contains(t, s.all(), "401 Unauthorized")
		}
		require.Equal(t, idleTimeout, idle.left())
		require.Equal(t, idleTimeout+time.Second, half.left(), "net/http says goodbye a second before")
	})
}

// TestOthersGetThrough checks that a source which has all the connections that it may have shuts out nobody else, that an IPv6 source is
// a /64, that what it closes is free for it again, and that reports are rare.
func TestOthersGetThrough(t *testing.T) {
	served(t, 3, says(200, "ok"), func(t *testing.T, p *pipes, log *reports) {
		for _, addresses := range [][]string{{"192.0.2.1", "192.0.2.1"}, {"[2001:db8::1]", "[2001:db8:0:0:ffff::2]"}, {"[::ffff:192.0.2.9]", "192.0.2.9"}} {
			var held []*stranger
			for i := range 3 {
				held = append(held, p.dial(fmt.Sprint(addresses[i%2], ":", 1000+i)))
			}
			for i := range 50 {
				s := p.dial(fmt.Sprint(addresses[1], ":", 2000+i))
				synctest.Wait()
				require.NotZero(t, s.left(), "beyond its connections")
			}
			for _, s := range held {
				require.Zero(t, s.left())
			}
			require.NoError(t, held[0].Close())
			synctest.Wait()
			again := p.dial(addresses[1]+":3000").send("%s", "GET /none/ HTTP/1.1\r\nHost: x\r\n\r\n")
			synctest.Wait()
			require.Contains(t, again.all(), "401 Unauthorized")
		}
		other := p.dial("[2001:db8:0:1::1]:1000").send("%s", "GET /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+"\r\n")
		synctest.Wait()
		require.Contains(t, other.all(), "200 OK")
		require.Equal(t, []string{"192.0.2.1/32 1"}, log.told)
		time.Sleep(reportEvery)
		for i := range 9 {
			p.dial(fmt.Sprint("192.0.2.7:", 1000+i))
		}
		synctest.Wait()
		require.Equal(t, []string{"192.0.2.1/32 1", "192.0.2.7/32 150"}, log.told)
	})
}

// TestNothingIsCutThatGoesOn checks with HTTP/1 and HTTP/2 that a stream of events which is silent for hours, an upload that is slow, one
// that waits for its permits or for a platform which does not read, and a long download reach their ends.
func TestNothingIsCutThatGoesOn(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) {
			base := platform(func(r *http.Request) (*http.Response, error) {
				time.Sleep(10 * time.Minute) // without reading the body
				n, err := io.Copy(io.Discard, r.Body)
				if err != nil {
					return nil, err
				}
				in, out := io.Pipe()
				go func() {
					for range 3 {
						fmt.Fprintf(out, "data: %d\n\n", n)
						time.Sleep(2 * time.Hour)
					}
					_ = out.Close()
				}()
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in, ContentLength: -1, Request: r}, nil
			})
			served(t, 1, base, func(t *testing.T, p *pipes, _ *reports) {
				for i := range 4 { // the last one waits for a permit
					c := p.client(fmt.Sprintf("192.0.2.%d:1", i+1), h2)
					in, out := io.Pipe()
					go func() {
						for range 100 {
							_, _ = io.WriteString(out, strings.Repeat("x", 1000))
							time.Sleep(stallTimeout - time.Second)
						}
						_ = out.Close()
					}()
					req, err := http.NewRequestWithContext(t.Context(), "POST", "http://gateway/a.example.com/", in)
					require.NoError(t, err)
					req.Header.Set(TokenHeader, "sixteen-letters-")
					began := time.Now()
					resp, err := c.Do(req)
					require.NoError(t, err, "after %v", time.Since(began))
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.Equal(t, strings.Repeat("data: 100000\n\n", 3), string(body))
					require.NoError(t, resp.Body.Close())
					c.CloseIdleConnections()
				}
			})
		})
	}
}

// TestStalledBody checks that a client of which no byte of its body comes any more gets 408, a minute after the last one.
func TestStalledBody(t *testing.T) {
	served(t, 0, readsAll, func(t *testing.T, p *pipes, _ *reports) {
		s := p.dial("192.0.2.1:1000").send("%s", "POST /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+"Content-Length: 1000\r\n\r\nx")
		time.Sleep(30 * time.Second)
		s.send("y")
		synctest.Wait()
		time.Sleep(stallTimeout - 1)
		synctest.Wait()
		require.Empty(t, s.all())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Contains(t, s.all(), "408 Request Timeout")
		require.Contains(t, s.all(), "Proxy-Status: rrl-gateway; error=http_request_error")
	})
}

// readsAll is a base that reads the body, and fails with its error.
func readsAll(r *http.Request) (*http.Response, error) {
	defer r.Body.Close() // as a RoundTripper has to
	_, err := io.Copy(io.Discard, r.Body)
	return nil, err
}

// endsFirst is a base that ends with the context while it reads the body, as an http.Transport may. Over HTTP/1, net/http cancels the
// context before the Read returns that fails.
func endsFirst(r *http.Request) (*http.Response, error) {
	go func() { _, _ = readsAll(r) }()
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// silentPlatform returns a base that is an http.Transport, on a connection to a platform that reads and never responds.
func silentPlatform(protocols *http.Protocols) platform {
	return func(r *http.Request) (*http.Response, error) {
		near, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		base := &http.Transport{Protocols: protocols, ExpectContinueTimeout: time.Second}
		base.DialContext = func(context.Context, string, string) (net.Conn, error) { return near, nil }
		r.URL.Scheme = "http" // there is no TLS on the pipe
		return base.RoundTrip(r)
	}
}

// TestStalledBodyIsNoClient checks that a body which stops coming is told from a client that leaves, however the base learns of it:
// the client that still listens gets 408 over HTTP/1 and HTTP/2.
func TestStalledBodyIsNoClient(t *testing.T) {
	for name, base := range map[string]platform{"reads": readsAll, "ends first": endsFirst, "transport": silentPlatform(nil)} {
		for _, rest := range []string{"Content-Length: 100000\r\n\r\n", "Content-Length: 2000000\r\n\r\n" + strings.Repeat("x", 100), // more than is kept
			"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
			"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"} {
			t.Run(name, func(t *testing.T) {
				served(t, 0, base, func(t *testing.T, p *pipes, _ *reports) {
					s := p.dial("192.0.2.1:1000").send("%s", "POST /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+rest)
					time.Sleep(stallTimeout - 1)
					synctest.Wait()
					require.NotContains(t, s.all(), "Proxy-Status")
					time.Sleep(2 * time.Second)
					synctest.Wait()
					require.Contains(t, s.all(), "408 Request Timeout", rest)
					require.Contains(t, s.all(), "Proxy-Status: rrl-gateway; error=http_request_error")
					require.NotZero(t, s.left())
				})
			})
		}
	}
	h2 := &http.Protocols{}
	h2.SetUnencryptedHTTP2(true)
	for name, base := range map[string]platform{"reads": readsAll, "transport": silentPlatform(nil), "h2": silentPlatform(h2)} {
		for _, start := range []string{"", "start"} {
			t.Run("h2, "+name, func(t *testing.T) {
				served(t, 0, base, func(t *testing.T, p *pipes, _ *reports) {
					c := p.client("192.0.2.1:1", true)
					defer c.CloseIdleConnections()
					in, out := io.Pipe()
					go func() { _, _ = io.WriteString(out, start) }()
					req, err := http.NewRequestWithContext(t.Context(), "POST", "http://gateway/a.example.com/", in)
					require.NoError(t, err)
					req.Header.Set(TokenHeader, "sixteen-letters-")
					resp, err := c.Do(req)
					require.NoError(t, err)
					require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
					_ = out.Close()
				})
			})
		}
	}
}

// TestStalledBodyBetweenAttempts checks that the same holds where the platform responds before it has the whole body, and the request
// waits to be sent again.
func TestStalledBodyBetweenAttempts(t *testing.T) {
	throttles := platform(func(r *http.Request) (*http.Response, error) {
		go func() { _, _ = readsAll(r) }()
		time.Sleep(time.Second) // it reads: the next attempt closes a body that nobody has read yet
		resp, _ := says(429, "slow down")(r)
		resp.Header.Set("Retry-After", "90")
		return resp, nil
	})
	served(t, 0, throttles, func(t *testing.T, p *pipes, _ *reports) {
		s := p.dial("192.0.2.1:1000").send("%s", "POST /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+"Content-Length: 1000\r\n\r\nx")
		time.Sleep(stallTimeout + time.Second)
		synctest.Wait()
		require.Contains(t, s.all(), "408 Request Timeout")
	}, WithTransport(httplimit.WithRetry(1)))
}

// TestResponseBeforeTheBody checks that a response which the platform begins before it has the body gets to a client that sends no more
// of it within a minute, whether or not the base has read what came. Over HTTP/1, net/http reads the rest of a short body first. To a client
// that sends the rest the response goes on for as long as it likes.
func TestResponseBeforeTheBody(t *testing.T) {
	for _, reads := range []int64{0, 1, 500} {
		early := platform(func(r *http.Request) (*http.Response, error) {
			_, _ = io.CopyN(io.Discard, r.Body, reads)
			in, out := io.Pipe()
			go func() {
				select {
				case <-time.After(10 * time.Minute): // or two of ReverseProxy's goroutines wait for one mutex, where virtual time stands still
					_, _ = io.WriteString(out, "data: x\n\n")
					_ = out.Close()
				case <-r.Context().Done(): // as of an http.Transport
					_ = out.CloseWithError(context.Cause(r.Context()))
				}
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in, ContentLength: -1, Request: r}, nil
		})
		for _, rest := range []int{0, 500} {
			served(t, 0, early, func(t *testing.T, p *pipes, _ *reports) {
				s := p.dial("192.0.2.1:1000").send("%s", "POST /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+"Content-Length: 1000\r\n\r\n"+strings.Repeat("x", 500))
				time.Sleep(stallTimeout / 2)
				s.send("%s", strings.Repeat("x", rest))
				time.Sleep(stallTimeout/2 + time.Second)
				synctest.Wait()
				require.Contains(t, s.all(), "200 OK", "the base has read %d", reads)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if rest > 0 {
					require.Contains(t, s.all(), "data: x", "the base has read %d", reads)
				}
			})
		}
	}
}

// TestBodyThatIsLeftUnread has the base end a request without its body. It checks that a client which does not send the rest gets
// the response after unreadTimeout, and that for one which sends it the base may take as long as it likes.
func TestBodyThatIsLeftUnread(t *testing.T) {
	t.Run("never sent", func(t *testing.T) {
		closes := platform(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			return nil, errors.New("the platform has closed the connection")
		})
		served(t, 0, closes, func(t *testing.T, p *pipes, _ *reports) {
			s := p.dial("192.0.2.1:1000").send("%s", "POST /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+"Content-Length: 1000\r\n\r\nx")
			time.Sleep(unreadTimeout + time.Second)
			synctest.Wait()
			require.Contains(t, s.all(), "502 Bad Gateway")
		})
	})
	t.Run("sent at last", func(t *testing.T) {
		slow := platform(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			select {
			case <-time.After(10 * unreadTimeout):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return nil, errors.New("the platform has closed the connection")
		})
		served(t, 0, slow, func(t *testing.T, p *pipes, _ *reports) {
			s := p.dial("192.0.2.1:1000").send("%s", "POST /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+"Content-Length: 2\r\n\r\nx")
			time.Sleep(time.Second)
			s.send("y")
			time.Sleep(11 * unreadTimeout)
			synctest.Wait()
			require.Contains(t, s.all(), "502 Bad Gateway")
		})
	})
}

// TestClientThatDoesNotRead checks that a write to a client which does not read fails after a minute, also after earlier ones.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn, 1)}
		near, far := net.Pipe()
		p.conns <- pipeFrom{far, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2}}
		c, err := NewListener(p, 0, nil).Accept()
		require.NoError(t, err)
		go func() { _, _ = io.ReadFull(near, make([]byte, 10)) }()
		_, err = io.WriteString(c, strings.Repeat("x", 10))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		began := time.Now()
		_, err = io.WriteString(c, "x")
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, stallTimeout, time.Since(began))
		require.NoError(t, c.Close())
	})
}

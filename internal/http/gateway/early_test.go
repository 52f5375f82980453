// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// posts are bodies of 10 pieces, as HTTP/1 has them: what stands before all, and each piece.
var posts = map[string]struct{ header, piece, end string }{
	"length":              {"Content-Length: 10000\r\n\r\n", strings.Repeat("x", 1000), ""},
	"chunks":              {"Transfer-Encoding: chunked\r\n\r\n", "3e8\r\n" + strings.Repeat("x", 1000) + "\r\n", "0\r\n\r\n"},
	"longer than is kept": {"Content-Length: 3000000\r\n\r\n", strings.Repeat("x", 300_000), ""},
}

const postHeader = "POST /a.example.com/ HTTP/1.1\r\nHost: x\r\n" + authorized

// TestEarlyResponseLosesNoBody checks that all of a body reaches a platform which begins its response first, and that the response
// comes when it began. Over HTTP/1, net/http would take a part of the body for what nobody reads.
func TestEarlyResponseLosesNoBody(t *testing.T) {
	counts := platform(func(r *http.Request) (*http.Response, error) {
		in, out := io.Pipe()
		go func() {
			_, _ = fmt.Fprint(out, "begins. ")
			n, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintf(out, "got %d, %v.", n, err)
			_ = out.Close()
		}()
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: in, ContentLength: -1, Request: r}, nil
	})
	for name, post := range posts {
		t.Run(name, func(t *testing.T) {
			served(t, 0, counts, func(t *testing.T, p *pipes, _ *reports) {
				s := p.dial("192.0.2.1:1000").send("%s", postHeader+post.header)
				synctest.Wait()
				require.Contains(t, s.all(), "begins.")
				for range 10 {
					s.send("%s", post.piece)
					time.Sleep(stallTimeout / 2)
				}
				if post.end != "" {
					s.send("%s", post.end)
				}
				synctest.Wait()
				require.Contains(t, s.all(), fmt.Sprintf("got %d, <nil>.", 10*strings.Count(post.piece, "x")))
				time.Sleep(unreadTimeout)
				synctest.Wait()
				require.NotZero(t, s.left(), "what follows would not be a request")
			})
		})
	}
}

// TestBodyAfterItsResponse has the platform end its response, with or without a length, before it has the body. The client has it at once. A
// client that sends no more is left after unreadTimeout. One that reads only when it has sent all can do so.
func TestBodyAfterItsResponse(t *testing.T) {
	for name, post := range posts {
		for length, body := range map[int64]string{-1: "no", 0: "", 2: "no"} { // the response
			base := platform(func(r *http.Request) (*http.Response, error) {
				go func() { _, _ = io.Copy(io.Discard, r.Body) }()
				return &http.Response{StatusCode: 401, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: length, Request: r}, nil
			})
			for _, pieces := range []int{0, 1, 10} {
				t.Run(fmt.Sprint(name, " ", length, " ", pieces), func(t *testing.T) {
					served(t, 0, base, func(t *testing.T, p *pipes, _ *reports) {
						s := p.dial("192.0.2.1:1000").send("%s", postHeader+post.header)
						synctest.Wait()
						require.Contains(t, s.all(), "401 Unauthorized")
						for range pieces {
							_, err := io.WriteString(s.Conn, post.piece)
							if len(post.piece) <= 10_000 {
								require.NoError(t, err)
							}
							time.Sleep(unreadTimeout / 20)
						}
						if pieces == 10 && post.end != "" {
							_, err := io.WriteString(s.Conn, post.end)
							require.NoError(t, err)
						}
						time.Sleep(unreadTimeout + time.Second)
						synctest.Wait()
						require.NotZero(t, s.left())
						require.LessOrEqual(t, s.left(), unreadTimeout+time.Second)
						require.True(t, length >= 0 || strings.HasSuffix(s.all(), "0\r\n\r\n"), "%q", s.all())
					})
				})
			}
		}
	}
}

// TestRejectionBesideABody has clients send a part of their bodies. A rejection comes when the wait is over, however long it is and
// whatever is missing, and unreadTimeout later at most if the request did not wait; then the connection is closed.
func TestRejectionBesideABody(t *testing.T) {
	for name, header := range map[string]string{"short": "Content-Length: 1000\r\n", "chunks": "Transfer-Encoding: chunked\r\n", "long": "Content-Length: 900000\r\n"} {
		for _, wait := range []time.Duration{0, 20 * time.Second} {
			t.Run(fmt.Sprint(name, " ", wait), func(t *testing.T) {
				served(t, 0, says(200, "ok"), func(t *testing.T, p *pipes, _ *reports) {
					useUp(p, 3)
					s := p.dial("192.0.2.1:1001").send("%s", postHeader+header+fmt.Sprintf("Prefer: wait=%d\r\n\r\n", int(wait.Seconds()))+"3\r\nxxx\r\n")
					time.Sleep(wait)
					synctest.Wait()
					if wait == 0 {
						time.Sleep(unreadTimeout)
						synctest.Wait()
					}
					require.Contains(t, s.all(), "429 Too Many Requests")
					require.True(t, strings.HasSuffix(s.all(), "}"), "%q", s.all())
					time.Sleep(unreadTimeout + time.Second)
					synctest.Wait()
					require.NotZero(t, s.left())
				})
			})
		}
	}
}

// TestWhoWaitsLeavesRoom has requests with bodies wait on a connection of HTTP/2: another one passes.
func TestWhoWaitsLeavesRoom(t *testing.T) {
	for _, size := range []int{250_000, 3_000_000} {
		served(t, 0, platform(func(r *http.Request) (*http.Response, error) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
			return says(200, "ok")(r)
		}), func(t *testing.T, p *pipes, _ *reports) {
			useUp(p, 3)
			c := p.client("192.0.2.7:1", true)
			defer c.CloseIdleConnections()
			post := func(host string, size int) error {
				r, err := http.NewRequestWithContext(t.Context(), "POST", "http://gateway/"+host+"/", strings.NewReader(strings.Repeat("x", size)))
				require.NoError(t, err)
				r.Header.Set(TokenHeader, "sixteen-letters-")
				resp, err := c.Do(r)
				if err == nil {
					defer resp.Body.Close()
					if resp.StatusCode != 200 {
						err = errors.New(resp.Status)
					}
				}
				return err
			}
			require.NoError(t, post("b.example.com", 1))
			var waiters sync.WaitGroup
			for range 6 {
				waiters.Go(func() { _ = post("a.example.com", size) }) // for two minutes
			}
			time.Sleep(time.Second)
			began := time.Now()
			require.NoError(t, post("b.example.com", 10_000))
			require.Less(t, time.Since(began), time.Second)
			waiters.Wait()
		}, WithAllow("b.example.com"))
	}
}

// TestHTTP2ClientThatDoesNotRead checks that a download which the client leaves no room for ends after stallTimeout.
func TestHTTP2ClientThatDoesNotRead(t *testing.T) {
	var ended chan time.Duration
	served(t, 0, platform(func(r *http.Request) (*http.Response, error) {
		began := time.Now()
		context.AfterFunc(r.Context(), func() { ended <- time.Since(began) })
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(endless{}), ContentLength: -1, Request: r}, nil
	}), func(t *testing.T, p *pipes, _ *reports) {
		ended = make(chan time.Duration, 1)
		c := p.client("192.0.2.7:1", true)
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://gateway/a.example.com/", nil)
		require.NoError(t, err)
		r.Header.Set(TokenHeader, "sixteen-letters-")
		resp, err := c.Do(r)
		require.NoError(t, err)
		require.Equal(t, stallTimeout, <-ended)
		_, err = io.Copy(io.Discard, resp.Body)
		require.Error(t, err)
		require.NoError(t, resp.Body.Close())
		c.CloseIdleConnections()
	})
}

// An endless reader has no end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// useUp uses up so many permits, of which there are 3 a minute.
func useUp(p *pipes, permits int) {
	for range permits {
		p.dial("192.0.2.1:1000").send("%s", "GET /a.example.com/ HTTP/1.1\r\nHost: x\r\n"+authorized+"\r\n")
	}
	synctest.Wait()
}

// TestWhoLeavesTheQueue has clients of HTTP/1 leave while their requests with bodies wait, or between the pieces of their bodies. No
// permit is taken for them, and none of them reaches the platform. One who stays has the next permit.
func TestWhoLeavesTheQueue(t *testing.T) {
	for name, post := range posts {
		for _, pieces := range []int{0, 1, 10} {
			if len(post.piece) > 10_000 { // net/http does not see that the client has left
				continue
			}
			t.Run(fmt.Sprint(name, " ", pieces), func(t *testing.T) {
				var sent atomic.Int32
				base := platform(func(r *http.Request) (*http.Response, error) {
					sent.Add(1)
					n, err := io.Copy(io.Discard, r.Body)
					if err != nil {
						return nil, err
					}
					return says(200, fmt.Sprintf("got %d", n))(r)
				})
				served(t, 0, base, func(t *testing.T, p *pipes, _ *reports) {
					useUp(p, 3)
					require.EqualValues(t, 3, sent.Load())
					var left []*stranger
					all := postHeader + post.header + strings.Repeat(post.piece, pieces)
					if pieces == 10 {
						all += post.end
					}
					for range 4 {
						left = append(left, p.dial("192.0.2.1:1001").send("%s", all))
					}
					stays := p.dial("192.0.2.1:1002").send("%s", postHeader+post.header)
					for range 10 {
						time.Sleep(time.Second)
						stays.send("%s", post.piece)
					}
					if post.end != "" { // net/http takes an empty write to a pipe for a client that goes on
						stays.send("%s", post.end)
					}
					for _, s := range left {
						require.NoError(t, s.Close())
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					require.EqualValues(t, 4, sent.Load())
					require.Contains(t, stays.all(), "got 10000")
					require.Zero(t, stays.left())
				})
			})
		}
	}
}

// TestNothingIsReadAheadThatIsNotAskedFor checks that a client which asks whether to send its body is not told to before there is a
// permit, that one whose body stops coming while its request waits gets 408, and one whose body is none gets 400.
func TestNothingIsReadAheadThatIsNotAskedFor(t *testing.T) {
	served(t, 0, says(200, "ok"), func(t *testing.T, p *pipes, _ *reports) {
		useUp(p, 6)
		asks := p.dial("192.0.2.1:1001").send("%s", postHeader+"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n")
		broken := p.dial("192.0.2.1:1003").send("%s", postHeader+"Transfer-Encoding: chunked\r\n\r\nno size\r\n")
		stops := p.dial("192.0.2.1:1002").send("%s", postHeader+"Content-Length: 10\r\n\r\nx")
		time.Sleep(stallTimeout - time.Second)
		synctest.Wait()
		require.Empty(t, asks.all())
		require.Empty(t, stops.all())
		require.Contains(t, broken.all(), "400 Bad Request")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Contains(t, stops.all(), "408 Request Timeout")
		require.Empty(t, asks.all())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, asks.all(), "200 OK")
	})
}

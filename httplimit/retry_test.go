// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A platform throttles the first n requests, by text, for a second each.
type throttling struct {
	n      int
	text   string // of the throttled answers
	bodies []string
	at     []time.Duration
	closed []*closer // of the answers
	w      *world
}

func (p *throttling) RoundTrip(r *http.Request) (*http.Response, error) {
	p.at = append(p.at, p.w.elapsed())
	text := ""
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		text = string(b)
	}
	p.bodies = append(p.bodies, text)
	answer := p.text
	if len(p.at) > p.n {
		answer = "done"
	}
	resp := respond(200, "text/plain", answer)
	c := &closer{Reader: strings.NewReader(answer)}
	resp.Body = c
	p.closed = append(p.closed, c)
	return resp, nil
}

func TestRetry(t *testing.T) {
	plain := func(t *testing.T) *http.Request { return request(t, "GET", "http://x/", nil) }
	body := func(t *testing.T) *http.Request { return request(t, "POST", "http://x/", strings.NewReader("hello")) }
	once := func(t *testing.T) *http.Request {
		return request(t, "POST", "http://x/", io.NopCloser(strings.NewReader("hello")))
	}
	slow := says("slow down", 10*time.Second, "")
	banned := DetectorFunc(func(r *Response) Verdict { v := slow.Detect(r); v.Banned = true; return v })
	cases := []struct {
		name     string
		request  func(*testing.T) *http.Request
		opts     []Option
		detector Detector
		throttle int
		text     string
		sent     int
		gets     string
	}{
		{"once", plain, []Option{WithRetry(1)}, slow, 1, "slow down", 2, "done"},
		{"until the number is used up", plain, []Option{WithRetry(2)}, slow, 9, "slow down", 3, "slow down"},
		{"off by default", plain, nil, slow, 9, "slow down", 1, "slow down"},
		{"a body that can be had again", body, []Option{WithRetry(2)}, slow, 2, "slow down", 3, "done"},
		{"a body that cannot", once, []Option{WithRetry(2)}, slow, 2, "slow down", 1, "slow down"},
		{"not throttled", plain, []Option{WithRetry(2)}, says("other", 0, ""), 9, "slow down", 1, "slow down"},
		{"a ban", plain, []Option{WithRetry(2)}, banned, 9, "slow down", 1, "slow down"},
		{"too long a wait", plain, []Option{WithRetry(2), WithMaxWait(9 * time.Second)}, slow, 9, "slow down", 1, "slow down"},
		{"an answer longer than the peek", plain, []Option{WithRetry(2), WithPeek(4, time.Second)}, says("slow", 10*time.Second, ""), 9, "slow down", 1, "slow down"},
	}
	for _, c := range cases {
		inWorldOf(t, c.name, func(t *testing.T, w *world) {
			p := &throttling{w: w, n: c.throttle, text: c.text}
			tr := w.transport(p, append(c.opts, WithDetectors(c.detector), rules(w.limit("a", 99, time.Hour)))...)
			req := c.request(t)
			resp := redistest.Must(tr.RoundTrip(req))(t)
			require.Same(t, req, resp.Request)
			require.Equal(t, c.gets, string(redistest.Must(io.ReadAll(resp.Body))(t)))
			require.NoError(t, resp.Body.Close())
			require.Len(t, p.at, c.sent)
			for i, at := range p.at {
				require.Equal(t, time.Duration(i)*10*time.Second, at)
				require.EqualValues(t, 1, p.closed[i].closed.Load(), "answer %d", i)
				if req.Body != nil {
					require.Equal(t, "hello", p.bodies[i])
				}
			}
			retries := 0
			for _, e := range w.taken() {
				if e.Kind == EventRetry {
					retries++
					require.Equal(t, retries, e.Attempt)
					require.Equal(t, 10*time.Second, e.Wait)
				}
			}
			require.Equal(t, c.sent-1, retries)
		})
	}
}

// A retry takes permits of its own. When there are none in time the caller gets the platform's answer.
func TestRetryTakesPermits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &throttling{w: w, n: 9, text: "slow down"}
		tr := w.transport(p, WithRetry(5), WithMaxWait(20*time.Second), WithDetectors(says("slow down", 10*time.Second, "x")),
			rules(w.limit("a", 2, time.Hour)))
		_, text := get(t, tr, "http://x/")
		require.Equal(t, "slow down", text)
		require.Len(t, p.at, 2)
		require.EqualValues(t, 1, p.closed[1].closed.Load())
		kinds := w.kinds()
		require.Equal(t, EventRejected, kinds[len(kinds)-1])
	})
}

// A context that ends during the pause ends the request, with the context's error.
func TestRetryObeysTheContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(3*time.Second, cancel)
		p := &throttling{w: w, n: 9, text: "slow down"}
		tr := w.transport(p, WithRetry(5), WithDetectors(says("slow down", 10*time.Second, "")), rules(w.limit("a", 9, time.Hour)))
		again := &closer{Reader: strings.NewReader("hello")}
		req := request(t, "POST", "http://x/", strings.NewReader("hello")).WithContext(ctx)
		req.GetBody = func() (io.ReadCloser, error) { return again, nil }
		_, err := tr.RoundTrip(req)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3*time.Second, w.elapsed())
		require.EqualValues(t, 1, again.closed.Load())
		require.Len(t, p.at, 1)

		req = request(t, "POST", "http://x/", strings.NewReader("hello"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		require.Equal(t, 200, redistest.Must(tr.RoundTrip(req))(t).StatusCode)
	})
}

// A verdict from the header alone is tried again too, once its body has ended.
func TestRetryOfHeaderVerdicts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n := 0
		tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
			if n++; n == 1 {
				return respond(429, "application/octet-stream", "slow down"), nil
			}
			return ok(r)
		}), WithRetry(1), WithDetectors(DetectorFunc(func(r *Response) Verdict {
			return Verdict{Throttled: r.Status == 429}
		})))
		_, text := get(t, tr, "http://x/")
		require.Equal(t, "ok", text)
		require.Equal(t, time.Second, w.elapsed(), "the back-off, without a limiter")
	})
}

// TestRetryAfter503: a 503 may come after the request was executed, so a POST is not sent again for it, unless it
// carries a key by which the server knows it.
func TestRetryAfter503(t *testing.T) {
	for _, c := range []struct {
		method, key string
		status      int
		sent        int
	}{
		{"POST", "", 429, 2}, {"POST", "", 503, 1}, {"PATCH", "", 503, 1}, {"CONNECT", "", 503, 1}, {"get", "", 503, 1},
		{"GET", "", 503, 2}, {"HEAD", "", 503, 2}, {"OPTIONS", "", 503, 2}, {"TRACE", "", 503, 2}, {"PUT", "", 503, 2}, {"DELETE", "", 503, 2},
		{"POST", "Idempotency-Key", 503, 2}, {"POST", "X-Idempotency-Key", 503, 2}, {"POST", "Idempotency-Keys", 503, 1},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			sent := 0
			tr := w.transport(base(func(r *http.Request) (*http.Response, error) {
				if sent++; sent > 1 {
					return ok(r)
				}
				resp := respond(c.status, "text/plain", "")
				resp.Header.Set("Retry-After", "1")
				return resp, nil
			}), WithRetry(3), WithDetectors(HTTPDetector()), rules(w.limit("a", 9, time.Second)))
			req := request(t, c.method, "http://x/", strings.NewReader("order"))
			if c.key != "" {
				req.Header.Set(c.key, "1")
			}
			require.NoError(t, redistest.Must(tr.RoundTrip(req))(t).Body.Close())
			require.Equal(t, c.sent, sent, "%v", c)
			if c.sent == 1 {
				require.Equal(t, time.Second, w.until("a"), "the limiter cools down all the same")
			}
		})
	}
}

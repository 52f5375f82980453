// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A base is a RoundTripper that is a function.
type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A world is a Transport in a bubble of virtual time, and what it did.
type world struct {
	t      *testing.T
	client *ratelimiter.Client
	rdb    *redis.Client
	key    string // the start of every limiter's name
	epoch  time.Time

	mu     sync.Mutex
	events []Event
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		f(t, &world{t: t, client: clienttest.InBubble(t, rdb), rdb: rdb, key: redistest.Key(t), epoch: time.Now()})
	})
}

// inWorldOf is inWorld as a subtest of that name.
func inWorldOf(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inWorld(t, f) })
}

// other is another process of the fleet: a Client of its own.
func (w *world) other() *world {
	return &world{t: w.t, client: clienttest.InBubble(w.t, w.rdb), rdb: w.rdb, key: w.key, epoch: w.epoch}
}

// refusedDial is what go-redis says of a Redis that is not there.
var refusedDial = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// away returns whether Redis is not there.
func (w *world) away() *atomic.Bool {
	away := new(atomic.Bool)
	w.rdb.AddHook(redistest.Failing(func(redis.Cmder) error {
		if away.Load() {
			return refusedDial
		}
		return nil
	}))
	o := w.rdb.Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if away.Load() {
			return nil, refusedDial
		}
		return dial(ctx, network, addr)
	}
	return away
}

func (w *world) transport(b http.RoundTripper, opts ...Option) *Transport {
	w.t.Helper()
	tr, err := New(w.client, append([]Option{WithBase(b), WithEvents(w.event), WithMaxWait(48 * time.Hour)}, opts...)...)
	require.NoError(w.t, err)
	return tr
}

func (w *world) event(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// kinds is the events so far, and forgets them.
func (w *world) kinds() (list []EventKind) {
	for _, e := range w.taken() {
		list = append(list, e.Kind)
	}
	return list
}

func (w *world) taken() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

func (w *world) elapsed() time.Duration { return time.Since(w.epoch) }

// limit is a limit of the world's own: so many permits in the interval.
func (w *world) limit(name string, permits int64, interval time.Duration) Limit {
	return Limit{Name: w.key + name, Rate: ratelimiter.Rate{Permits: permits, Interval: interval}}
}

func (w *world) until(name string) time.Duration {
	w.t.Helper()
	// By a Client of its own, which does not know of an outage that is over.
	until, err := clienttest.InBubble(w.t, w.rdb).RateLimiter(w.key + name).Admin().CoolDownUntil(w.t.Context())
	if errors.Is(err, ratelimiter.ErrNotInitialized) {
		return 0
	}
	require.NoError(w.t, err)
	if until.IsZero() {
		return 0
	}
	return until.Sub(w.epoch).Round(time.Millisecond)
}

func (w *world) available(name string) int64 {
	w.t.Helper()
	return redistest.Must(w.client.RateLimiter(w.key + name).AvailablePermits(w.t.Context()))(w.t)
}

// rules is a rule for the host x, whose limiters are that host's.
func rules(limits ...Limit) Option {
	return WithRules(Rule{Name: "r", Match: Match{Hosts: []string{"x"}}, Limits: limits})
}

// get sends a GET and reads the answer.
func get(t *testing.T, rt http.RoundTripper, url string) (*http.Response, string) {
	t.Helper()
	resp := redistest.Must(rt.RoundTrip(request(t, "GET", url, nil)))(t)
	text := redistest.Must(io.ReadAll(resp.Body))(t)
	require.NoError(t, resp.Body.Close())
	return resp, string(text)
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	return redistest.Must(http.NewRequestWithContext(t.Context(), method, url, body))(t)
}

// respond is a response with a body of which the length is known.
func respond(status int, contentType, body string) *http.Response {
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {contentType}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
}

// always is a base that returns that text, with status 200.
func always(text string) base {
	return func(*http.Request) (*http.Response, error) { return respond(200, "text/plain", text), nil }
}

// rejected sends a request that must be rejected.
func rejected(t *testing.T, rt http.RoundTripper, r *http.Request) *Error {
	t.Helper()
	_, err := rt.RoundTrip(r) //nolint:bodyclose // there is none
	var e *Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, ErrRejected)
	return e
}

func ok(*http.Request) (*http.Response, error) { return respond(200, "text/plain", "ok"), nil }

// A closer counts how often a body is closed.
type closer struct {
	io.Reader
	closed atomic.Int32
}

func (c *closer) Close() error { c.closed.Add(1); return nil }

// says is a detector of bodies that are just text; Until is d from now, if d is not 0.
func says(text string, d time.Duration, scope Scope) Detector {
	return DetectorFunc(func(r *Response) Verdict {
		if string(r.Body) != text {
			return Verdict{}
		}
		v := Verdict{Throttled: true, Scope: scope, Reason: "said " + text}
		if d > 0 {
			v.Until = r.Now.Add(d)
		}
		return v
	})
}

// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
	events []httplimit.Event
}

var (
	// nowhere is for profiles that send nothing, inBubble that of the last bubble.
	nowhere  = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	inBubble *redis.Client
)

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		inBubble = rdb
		f(t, &world{t: t, client: clienttest.InBubble(t, rdb), rdb: rdb, key: redistest.Key(t), epoch: time.Now()})
	})
}

func (w *world) transport(b http.RoundTripper, opts ...httplimit.Option) *httplimit.Transport {
	w.t.Helper()
	tr, err := httplimit.New(w.client, append([]httplimit.Option{httplimit.WithBase(b), httplimit.WithEvents(w.event), httplimit.WithMaxWait(48 * time.Hour)}, opts...)...)
	require.NoError(w.t, err)
	return tr
}

func (w *world) event(e httplimit.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// kinds is the events so far, and forgets them.
func (w *world) kinds() (list []httplimit.EventKind) {
	for _, e := range w.taken() {
		list = append(list, e.Kind)
	}
	return list
}

func (w *world) taken() []httplimit.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

func (w *world) elapsed() time.Duration { return time.Since(w.epoch) }

// limit is a limit of the world's own: so many permits in the interval.
func (w *world) limit(name string, permits int64, interval time.Duration) httplimit.Limit {
	return httplimit.Limit{Name: w.key + name, Rate: ratelimiter.Rate{Permits: permits, Interval: interval}}
}

func (w *world) until(name string) time.Duration {
	w.t.Helper()
	until, err := w.client.RateLimiter(w.key + name).Admin().CoolDownUntil(w.t.Context())
	if errors.Is(err, ratelimiter.ErrNotInitialized) {
		return 0
	}
	require.NoError(w.t, err)
	if until.IsZero() {
		return 0
	}
	return until.Sub(w.epoch).Round(time.Millisecond)
}

// rules is a rule for the host x, whose limiters are that host's.
func rules(limits ...httplimit.Limit) httplimit.Option {
	return httplimit.WithRules(httplimit.Rule{Name: "r", Match: httplimit.Match{Hosts: []string{"x"}}, Limits: limits})
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

func ok(*http.Request) (*http.Response, error) { return respond(200, "text/plain", "ok"), nil }

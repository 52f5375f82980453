// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// failing is a hook with which every call fails as long as the error that it points to is set.
type failing struct {
	redistest.Passing
	err *atomic.Pointer[error]
}

// counting is a hook that counts pipelines.
type counting struct {
	redistest.Passing
	atomic.Int64
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.Add(1); return next(ctx, cmds) }
}

// fail sets the error of a hook, or none.
func fail(p *atomic.Pointer[error], text string) {
	if text == "" {
		p.Store(nil)
		return
	}
	err := errors.New(text)
	p.Store(&err)
}

func (f failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.err.Load(); err != nil {
			cmd.SetErr(*err)
			return *err
		}
		return next(ctx, cmd)
	}
}

func (f failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := f.err.Load(); err != nil {
			return *err
		}
		return next(ctx, cmds)
	}
}

// A viewer is somebody who looks at live events.
type viewer struct {
	leave  context.CancelFunc
	ended  chan struct{}
	header http.Header

	mu     sync.Mutex
	status int
	buf    bytes.Buffer
}

func (w *viewer) Header() http.Header { return w.header }
func (w *viewer) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = code
}
func (w *viewer) Flush() {}
func (w *viewer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

// events returns what has come since the last call.
func (w *viewer) events(t testing.TB) (list []struct{ Down, Live string }) {
	t.Helper()
	w.mu.Lock()
	text := w.buf.String()
	w.buf.Reset()
	w.mu.Unlock()
	for block := range strings.SplitSeq(text, "\n\n") {
		if data, ok := strings.CutPrefix(block, "data: "); ok {
			var e struct{ Down, Live string }
			require.NoError(t, json.Unmarshal([]byte(data), &e))
			list = append(list, e)
		}
	}
	return list
}

func (s *site) watch(target string) *viewer {
	ctx, leave := context.WithCancel(s.Context())
	w := &viewer{leave: leave, ended: make(chan struct{}), header: http.Header{}}
	r := httptest.NewRequest(http.MethodGet, "/"+target, nil).WithContext(ctx)
	go func() {
		s.ServeHTTP(w, r)
		close(w.ended)
	}()
	s.Cleanup(func() { leave(); <-w.ended })
	return w
}

// TestViewersShareAReader checks that a limiter is read once a second however many look, and not at all when the last
// one has left.
func TestViewersShareAReader(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		calls := &counting{}
		rdb.AddHook(calls)
		s, name := newSite(t, rdb), redistest.Key(t)
		limiter(t, rdb, name, tenAMinute, 2)
		calls.Swap(0)
		target := "events?name=" + url.QueryEscape(name)
		var viewers []*viewer
		for range 10 {
			viewers = append(viewers, s.watch(target))
		}
		zh := s.watch(target + "&lang=zh")
		time.Sleep(10*time.Second + time.Millisecond)
		located := int64(2) // in ten seconds, and once where the server does not tell
		if rdb.ClientList(t.Context()).Err() != nil {
			located = 1
		}
		require.EqualValues(t, 11+located, calls.Swap(0), "one batch a second, from the first one on, and those for where the processes connect from")
		for _, v := range viewers {
			events := v.events(t)
			require.Len(t, events, 11)
			require.Contains(t, events[10].Live, `id="left">8<`)
			require.Empty(t, events[10].Down)
		}
		require.Contains(t, zh.events(t)[10].Live, "任意 1m 内 10 个许可")
		require.Len(t, s.feeds.of, 1)

		for _, v := range viewers {
			v.leave()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		require.Len(t, zh.events(t), 1, "those who stay go on")
		zh.leave()
		synctest.Wait()
		calls.Swap(0)
		require.Empty(t, s.feeds.of)
		require.Zero(t, s.feeds.streams)
		time.Sleep(time.Minute)
		require.Zero(t, calls.Swap(0), "nobody looks")
	})
}

// TestEventsMove checks that events show grants, those of others too, as they come and as they age out.
func TestEventsMove(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, name, ratelimiter.Rate{Permits: 10, Interval: 4 * time.Second}, 2)
	v := s.watch("events?name=" + url.QueryEscape(name))
	see := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			for _, e := range v.events(t) {
				if strings.Contains(e.Live, want) {
					return
				}
			}
			require.Less(t, time.Now(), deadline, "no event says %q", want)
		}
	}
	for _, java := range []string{"3", "0"} {
		if java == "3" { // as Redisson 3.17 writes it
			at := float64(rdb.Time(t.Context()).Val().UnixMilli())
			s.do("zadd", "{"+name+"}:permits", at, "\x08abcdefgh\x03\x00\x00\x00")
		}
		see(" by Go, " + java + " by Java.")
	}
	see("Permits in the last 4s: 0 by Go, 0 by Java.")
}

func TestStreamsAreBounded(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s := newSite(t, rdb, WithStreams(2))
		a, b := s.watch("events"), s.watch("events?name=a")
		synctest.Wait()
		p := s.get("events")
		require.Equal(t, http.StatusServiceUnavailable, p.Code)
		require.Equal(t, "30", p.Header().Get("Retry-After"))
		require.Contains(t, p.body, "Too many live views are open")
		a.leave()
		synctest.Wait()
		c := s.watch("events")
		synctest.Wait()
		require.NotEmpty(t, c.events(t))
		require.NotEmpty(t, b.events(t))
	})
}

// TestClose checks that Close ends the live views and the search, and that a bubble, in which no goroutine may be left,
// ends.
func TestClose(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s := newSite(t, rdb)
		v := s.watch("events")
		s.get("")
		s.get("doctor")
		synctest.Wait()
		require.NoError(t, s.Close())
		<-v.ended
		require.Equal(t, http.StatusServiceUnavailable, s.get("").Code)
		require.NoError(t, s.Close())
	})
}

// TestEventsOverTheNetwork checks that events come at once through a real server with a WriteTimeout, below a prefix.
func TestEventsOverTheNetwork(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, name, tenAMinute, 2)
	mux := http.NewServeMux()
	mux.Handle("/a/b/", s)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", s))
	server := httptest.NewUnstartedServer(mux)
	server.Config.WriteTimeout = 50 * time.Millisecond
	server.Start()
	defer server.Close()
	for _, prefix := range []string{"/a/b/", "/stripped/"} {
		reply := redistest.Must(server.Client().Get(server.URL + prefix + "page.css"))(t)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, http.StatusOK, reply.StatusCode)
	}
	reply := redistest.Must(server.Client().Get(server.URL + "/a/b/events?name=" + url.QueryEscape(name)))(t)
	require.Equal(t, "text/event-stream; charset=utf-8", reply.Header.Get("Content-Type"))
	var text []byte
	for buf := make([]byte, 64<<10); bytes.Count(text, []byte("data: ")) < 3; {
		n := redistest.Must(reply.Body.Read(buf))(t)
		text = append(text, buf[:n]...)
	}
	require.NoError(t, reply.Body.Close())
	feeds := func() int {
		s.feeds.mu.Lock()
		defer s.feeds.mu.Unlock()
		return len(s.feeds.of)
	}
	for feeds() > 0 { // until the server notices
		time.Sleep(time.Millisecond)
	}
}

// TestTheLastHour draws what was read of a limiter that somebody watched: one sample in five seconds, for an hour.
func TestTheLastHour(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, name string) {
		require.NotContains(t, s.get("limiter?name="+name).body, "History", "there is one sample")
		if !redistest.TTLsAreVirtual() {
			return // the clock of a server does not follow that of the bubble
		}
		v := s.watch("events?name=" + name)
		time.Sleep(20*time.Second + time.Millisecond)
		v.leave()
		p := s.get("limiter?name=" + name)
		require.Contains(t, p.body, "at most 0 callers waited, and a new caller up to 0.")
		require.Contains(t, p.body, `<polyline class="past-used" points="480.0,`, "twenty seconds are a third of the least that is drawn")
		require.Len(t, s.history.of[feedKey{name, ""}].samples, 5)
		time.Sleep(time.Hour + 20*time.Second)
		s.get("limiter?name=" + name)
		require.Len(t, s.history.of[feedKey{name, ""}].samples, 1, "the others are older than an hour")
	})
}

// TestHistoryIsBounded keeps the limiters that were read last.
func TestHistoryIsBounded(t *testing.T) {
	h, begin := &history{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	row := func(i int, at time.Time, waiting int64) *view.Row {
		return &view.Row{Name: fmt.Sprint(i), At: at.UnixMilli(), Rate: permit.Rate{Permits: 10, Interval: time.Second}, Used: 10, Waiting: waiting, Queued: time.Minute}
	}
	for i := range historyMost + 1 {
		h.add(row(i, begin.Add(time.Duration(i)*time.Second), 0))
	}
	require.Len(t, h.of, historyMost)
	require.NotContains(t, h.of, feedKey{"0", ""})
	at := begin.Add(10 * time.Minute)
	for i := range 3000 {
		at = at.Add(5 * time.Second)
		h.add(row(7, at, int64(i%200)))
		h.add(row(7, at.Add(time.Second), 1000)) // too soon
	}
	require.Len(t, h.of[feedKey{"7", ""}].samples, 721)
	o := h.view(&pageView{Lang: "en"}, feedKey{"7", ""}, at)
	require.Equal(t, "199", o.Most)
	require.Equal(t, "1h00m", o.Span)
	require.Len(t, o.Used, 1)
	require.True(t, strings.HasSuffix(o.Used[0], "720.0,0.0 "), o.Used[0][len(o.Used[0])-40:])
	require.Contains(t, o.Text, "at most 199 callers waited, and a new caller up to 1m00s")
	require.Equal(t, [3]string{o.From, o.Half, o.Till}, [3]string{"03:20:00Z", "03:50:00Z", "04:20:00Z"})
	require.Contains(t, o.Limiting, "since 03:20:00Z")

	// Half an hour in which nobody looked is a gap, and one look alone a dot.
	at = at.Add(30 * time.Minute)
	h.add(row(7, at, 3))
	o = h.view(&pageView{Lang: "en"}, feedKey{"7", ""}, at)
	require.Len(t, o.Used, 2)
	require.True(t, strings.HasSuffix(o.Used[0], "360.0,0.0 "), o.Used[0][len(o.Used[0])-40:])
	require.Equal(t, "720.0,0.0 720.0,0.0 ", o.Used[1])
	require.Len(t, o.Waiting, 2)
	require.Contains(t, o.Limiting, "since 04:50:00Z")
	at = at.Add(5 * time.Second)
	free := row(7, at, 0)
	free.Queued = 0
	h.add(free)
	require.Empty(t, h.view(&pageView{Lang: "en"}, feedKey{"7", ""}, at).Limiting)
}

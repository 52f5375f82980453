// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// A viewer is a page that asks once a second how things stand.
type viewer struct {
	leave context.CancelFunc
	ended chan struct{}

	mu   sync.Mutex
	list []seen
}

// A seen is a reply to a viewer.
type seen struct {
	Down, Live string
	Found      int
}

// events returns what has come since the last call.
func (w *viewer) events() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// askState asks once.
func (s *site) askState(ctx context.Context, target string) (e seen, ok bool) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+target, nil).WithContext(ctx))
	return e, json.Unmarshal(w.Body.Bytes(), &e) == nil
}

// watch asks until the viewer leaves.
func (s *site) watch(target string) *viewer {
	ctx, leave := context.WithCancel(s.Context())
	w := &viewer{leave: leave, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for ctx.Err() == nil {
			if e, ok := s.askState(ctx, target); ok {
				w.mu.Lock()
				w.list = append(w.list, e)
				w.mu.Unlock()
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	s.Cleanup(func() { leave(); <-w.ended })
	return w
}

// kept returns how many feeds the page keeps.
func (s *site) kept() int {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	return len(s.feeds.of)
}

// TestViewersShareAReading checks that a limiter is read once a second however many look, and not at all when the last one
// has left.
func TestViewersShareAReading(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		calls := &counting{}
		rdb.AddHook(calls)
		s, name := newSite(t, rdb), redistest.Key(t)
		limiter(t, rdb, name, tenAMinute, 2)
		calls.Swap(0)
		target := "state?name=" + url.QueryEscape(name)
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
			events := v.events()
			require.Len(t, events, 11)
			require.Contains(t, events[10].Live, `id="left">8<`)
			require.Empty(t, events[10].Down)
		}
		require.Contains(t, zh.events()[10].Live, "任意 1m 内 10 个许可")
		require.Equal(t, 1, s.kept())

		for _, v := range viewers {
			v.leave()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		require.Len(t, zh.events(), 1, "those who stay go on")
		zh.leave()
		synctest.Wait()
		calls.Swap(0)
		time.Sleep(time.Minute)
		require.Zero(t, calls.Swap(0), "nobody looks")
		s.askState(t.Context(), "state")
		require.Equal(t, 1, s.kept(), "what nobody looks at is forgotten")
	})
}

// TestAReaderWhoLeaves checks that one who leaves while he reads for others as well leaves the reading to them, and that who
// waits for his turn can leave, too.
func TestAReaderWhoLeaves(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		slow := &holding{free: make(chan struct{})}
		s, name := newSite(t, rdb), redistest.Key(t)
		limiter(t, rdb, name, tenAMinute, 2)
		rdb.AddHook(slow)
		target := "state?name=" + url.QueryEscape(name)
		first, second, third := s.watch(target), s.watch(target), s.watch(target)
		synctest.Wait()
		require.EqualValues(t, 1, slow.Load(), "one reads")
		first.leave()
		third.leave()
		second.leave()
		<-first.ended
		<-second.ended
		<-third.ended
		last := s.watch(target)
		close(slow.free)
		synctest.Wait()
		require.Contains(t, last.events()[0].Live, `id="left">8<`)
		require.Empty(t, last.events())
	})
}

// holding is a hook that holds pipelines until they are set free, or their callers leave, and counts them.
type holding struct {
	redistest.Passing
	atomic.Int64
	free chan struct{}
}

func (h *holding) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.Add(1)
		select {
		case <-h.free:
			return next(ctx, cmds)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestStatesMove checks that what a page asks for shows grants, those of others too, as they come and as they age out.
func TestStatesMove(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, name, ratelimiter.Rate{Permits: 10, Interval: 4 * time.Second}, 2)
	v := s.watch("state?name=" + url.QueryEscape(name))
	see := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			for _, e := range v.events() {
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

// TestClose checks that Close ends the search, that a page which asks is told, and that a bubble, in which no goroutine may be
// left, ends.
func TestClose(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		s := newSite(t, rdb)
		v := s.watch("state")
		s.get("")
		s.get("doctor")
		synctest.Wait()
		require.NoError(t, s.Close())
		require.Len(t, v.events(), 1)
		time.Sleep(time.Minute)
		require.Empty(t, v.events())
		require.Equal(t, http.StatusServiceUnavailable, s.get("state").Code)
		require.Equal(t, http.StatusServiceUnavailable, s.get("").Code)
		require.NoError(t, s.Close())
	})
}

// TestBelowAPrefix checks that the page is served below a prefix, whether it is stripped or not, and that no request waits for
// another event: a browser has six connections for all its tabs.
func TestBelowAPrefix(t *testing.T) {
	rdb := redistest.Client(t)
	s, name := newSite(t, rdb), redistest.Key(t)
	limiter(t, rdb, name, tenAMinute, 2)
	mux := http.NewServeMux()
	mux.Handle("/a/b/", s)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", s))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, prefix := range []string{"/a/b/", "/stripped/"} {
		for target, typ := range map[string]string{"page.css": "text/css; charset=utf-8", "state?name=" + url.QueryEscape(name): "application/json", "state": "application/json"} {
			reply := redistest.Must(server.Client().Get(server.URL + prefix + target))(t)
			require.Equal(t, http.StatusOK, reply.StatusCode)
			require.Equal(t, typ, reply.Header.Get("Content-Type"))
			require.NotEmpty(t, redistest.Must(io.ReadAll(reply.Body))(t)) // which ends
			require.NoError(t, reply.Body.Close())
		}
	}
}

// TestTheLastHour draws what was read of a limiter that somebody watched: one sample in five seconds, for an hour.
func TestTheLastHour(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, name string) {
		require.NotContains(t, s.get("limiter?name="+name).body, "History", "there is one sample")
		if !redistest.TTLsAreVirtual() {
			return // the clock of a server does not follow that of the bubble
		}
		v := s.watch("state?name=" + name)
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

// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A ledger is a Hook that keeps what it is told.
type ledger struct {
	mu       sync.Mutex
	requests []RequestInfo
	calls    []CallInfo
	events   []Event
	waiting  map[string]int
	most     int
}

func (h *ledger) hook() Hook {
	return Hook{
		Request: func(_ context.Context, r RequestInfo) { h.mu.Lock(); h.requests = append(h.requests, r); h.mu.Unlock() },
		Call:    func(c CallInfo) { h.mu.Lock(); h.calls = append(h.calls, c); h.mu.Unlock() },
		Event:   func(e Event) { h.mu.Lock(); h.events = append(h.events, e); h.mu.Unlock() },
		Waiting: func(limiter string, delta int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.waiting == nil {
				h.waiting = map[string]int{}
			}
			h.waiting[limiter] += delta
			h.most = max(h.most, h.waiting[limiter])
		},
	}
}

// one returns the only request since the last call of one.
func (h *ledger) one(t *testing.T) RequestInfo {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(t, h.requests, 1)
	r := h.requests[0]
	h.requests = nil
	return r
}

// Each request, however it ends, is told exactly once, with how long it took.
func TestHookIsToldOfEachRequestOnce(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(5, 10*time.Second), func(t *testing.T, w *world) {
		rate := overall(5, 10*time.Second)
		second := w.others(overall(3, 10*time.Second))[0]
		canceled, cancel := context.WithCancel(w.ctx)
		cancel()
		bounded, stop := context.WithTimeout(w.ctx, 2*time.Second)
		defer stop()
		for _, c := range []struct {
			name string
			ask  func()
			want RequestInfo
			err  error
		}{
			{"granted", func() { w.granted(2) },
				RequestInfo{Operation: OperationAllow, Outcome: RequestGranted, Permits: 2, Replied: true, Available: 3, Rate: rate}, nil},
			{"peek", func() { _, _ = w.l.Peek(w.ctx, 3) },
				RequestInfo{Operation: OperationPeek, Outcome: RequestGranted, Permits: 3, Replied: true, Available: 3, Rate: rate}, nil},
			{"peek rejected", func() { _, _ = w.l.Peek(w.ctx, 4) },
				RequestInfo{Operation: OperationPeek, Outcome: RequestRejected, Permits: 4, Replied: true, Available: 3, Rate: rate}, nil},
			{"rejected", func() { w.rejected(4, 10*time.Second) },
				RequestInfo{Operation: OperationAllow, Outcome: RequestRejected, Permits: 4, Replied: true, Available: 3, Rate: rate}, nil},
			{"one try of TryAcquire", func() { _, _ = w.l.TryAcquire(w.ctx, 3, 0) },
				RequestInfo{Operation: OperationAllow, Outcome: RequestGranted, Permits: 3, Replied: true, Rate: rate}, nil},
			{"timeout", func() { _, _ = w.l.TryAcquire(w.ctx, 1, time.Second) },
				RequestInfo{Operation: OperationAcquire, Outcome: RequestTimeout, Permits: 1, Duration: time.Second}, nil},
			{"deadline", func() { _ = w.l.Acquire(bounded, 1) },
				RequestInfo{Operation: OperationAcquire, Outcome: RequestTimeout, Permits: 1, Duration: time.Second}, context.DeadlineExceeded},
			{"canceled", func() { _ = w.l.Acquire(canceled, 1) },
				RequestInfo{Operation: OperationAcquire, Outcome: RequestCanceled, Permits: 1}, context.Canceled},
			{"invalid", func() { _, _ = w.l.Allow(w.ctx, 0) },
				RequestInfo{Operation: OperationAllow, Outcome: RequestError}, ErrInvalidArgument},
			{"too many", func() { _, _ = w.l.Allow(w.ctx, 6) },
				RequestInfo{Operation: OperationAllow, Outcome: RequestError, Permits: 6}, ErrPermitsExceedRate},
			{"several, rejected", func() {
				_, _ = w.client.TryAcquireAll(w.ctx, 0, Demand{second, 2}, Demand{w.l, 1})
			}, RequestInfo{Operation: OperationAll, Outcome: RequestRejected, Permits: 3}, nil},
			{"several, in time", func() {
				_, _ = w.client.TryAcquireAll(w.ctx, time.Minute, Demand{w.l, 1}, Demand{second, 2})
			}, RequestInfo{Operation: OperationAll, Outcome: RequestGranted, Permits: 3, Duration: 8 * time.Second}, nil},
			{"several, too late", func() {
				_, _ = w.client.TryAcquireAll(w.ctx, time.Second, Demand{w.l, 5}, Demand{second, 1})
			}, RequestInfo{Operation: OperationAll, Outcome: RequestTimeout, Permits: 6, Duration: time.Second}, nil},
			{"none of several", func() { _, _ = w.client.TryAcquireAll(w.ctx, 0) },
				RequestInfo{Operation: OperationAll, Outcome: RequestError}, ErrInvalidArgument},
		} {
			c.ask()
			got := h.one(t)
			require.ErrorIs(t, got.Err, c.err, c.name)
			if c.name != "none of several" {
				require.Equal(t, w.l.Name(), got.Limiter, c.name)
			}
			require.Equal(t, time.Since(got.Begin), got.Duration, c.name)
			if c.want.Operation == OperationAll { // which asks again in steps of ms
				require.InDelta(t, c.want.Duration, got.Duration, float64(10*time.Millisecond), c.name)
				got.Duration = c.want.Duration
			}
			if got.Outcome == RequestTimeout { // the reply to a call at the last instant may come in time or not
				got.Replied, got.Available, got.Rate = false, 0, Rate{}
			}
			got.Err, got.Limiter, got.Begin, got.CallContext = nil, "", time.Time{}, nil
			require.Equal(t, c.want, got, c.name)
		}
		require.Equal(t, map[string]int{w.l.Name(): 0}, h.waiting)
		require.Equal(t, 1, h.most)

		require.NoError(t, w.client.Close())
		require.ErrorIs(t, w.l.Acquire(w.ctx, 1), ErrClosed)
		require.Equal(t, RequestError, h.one(t).Outcome)
	}, WithHook(h.hook()))
}

// A call tells how many requests share it, and permits given back are counted once.
func TestHookIsToldOfCalls(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(4, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(4)
		h.mu.Lock()
		var names []string
		for _, c := range h.calls {
			names = append(names, strings.TrimSuffix(c.Script, "_rest")) // one in 64 is a check
			require.Equal(t, w.l.Name(), c.Limiter)
			require.EqualValues(t, 1, c.Requests)
			require.NoError(t, c.Err)
		}
		require.Equal(t, []string{"set_rate", "acquire"}, names)
		h.calls = nil
		h.mu.Unlock()

		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { require.NoError(t, w.l.Acquire(w.ctx, 1)) })
		}
		wg.Wait()
		var most int64
		for _, c := range h.calls {
			most = max(most, c.Requests)
		}
		require.EqualValues(t, 4, most, "%+v", h.calls)

		h.calls = nil
		id := permit.ID{3}
		w.at(30 * time.Second)
		w.ask(permit.Batch{ID: id, Runs: []permit.Run{{Permits: 3, Count: 1}}})
		for range 2 { // the second finds nothing
			require.NoError(t, w.l.redis.Refund(w.ctx, permit.Overall, permit.Grant{ID: id.Run(0), Permits: 3, Keep: 1}))
		}
		require.Len(t, h.calls, 3)
		require.Equal(t, []int64{0, 2, 0}, []int64{h.calls[0].Refunded, h.calls[1].Refunded, h.calls[2].Refunded})
	}, WithHook(h.hook()))
}

// A Hook that panics disturbs neither the request nor the other Hooks; the observer is told.
func TestHookThatPanics(t *testing.T) {
	var told []Event
	h := &ledger{}
	bad := Hook{
		Request: func(context.Context, RequestInfo) { panic("request") },
		Call:    func(CallInfo) { panic(errors.New("call")) },
		Waiting: func(string, int) { panic("waiting") },
	}
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		told = nil
		require.True(t, must(w.l.TryAcquire(w.ctx, 1, time.Second))(t))
		require.Equal(t, RequestGranted, h.one(t).Outcome)
		var texts []string
		for _, e := range told {
			require.Equal(t, Panicked, e.Kind)
			require.Equal(t, w.l.Name(), e.Limiter)
			texts = append(texts, e.Err.Error())
		}
		require.Equal(t, []string{"a Hook panicked: waiting", "a Hook panicked: call", "a Hook panicked: waiting", "a Hook panicked: request"}, texts)
	}, WithHook(bad), WithHook(h.hook()), WithHook(Hook{Event: func(e Event) {
		told = append(told, e)
		panic("the observer, too")
	}}),
	)
}

func TestLogHook(t *testing.T) {
	var out bytes.Buffer
	var level slog.LevelVar
	options := &slog.HandlerOptions{Level: &level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	h := LogHook(slog.New(slog.NewTextHandler(&out, options)))
	ctx := context.Background()
	h.Request(ctx, RequestInfo{Limiter: "a", Outcome: RequestGranted})
	require.Empty(t, out.String(), "requests are for level Debug")
	h.Call(CallInfo{Limiter: "a"})
	require.Empty(t, out.String(), "only what is healed is worth a line")
	for _, c := range []struct {
		log  func()
		want string
	}{
		{func() {
			h.Request(ctx, RequestInfo{Limiter: "a", Operation: OperationAllow, Outcome: RequestError, Permits: 2, Err: ErrClosed})
		}, `level=WARN msg="rate limiter: request" limiter=a operation=allow outcome=error permits=2 duration=0s error="ratelimiter: client is closed"`},
		{func() { h.Event(Event{Kind: OutageBegan, Limiter: "a", Err: errors.New("rejected")}) },
			`level=WARN msg="rate limiter: outage began" limiter=a error=rejected`},
		{func() { h.Event(Event{Kind: OutageEnded, Limiter: "a", Duration: time.Second, Degraded: 3}) },
			`level=INFO msg="rate limiter: outage ended" limiter=a duration=1s degraded=3`},
		{func() { h.Event(Event{Kind: Panicked, Limiter: "a", Err: errors.New("panicked: 1")}) },
			`level=ERROR msg="rate limiter: panicked" limiter=a error="panicked: 1"`},
		{func() { h.Call(CallInfo{Limiter: "a", Healed: Healed{Lost: 3}}) },
			`level=INFO msg="rate limiter: healed" limiter=a value=0 lost=3 surplus=0 clock=0`},
		{func() { h.Started(ClientInfo{ID: "28d0c3a1", Process: "28d0"}) }, `level=INFO msg="rate limiter: started" client_id=28d0c3a1 process=28d0`},
	} {
		out.Reset()
		c.log()
		require.Equal(t, c.want+"\n", out.String())
	}

	level.Set(slog.LevelDebug)
	out.Reset()
	h.Request(ctx, RequestInfo{Limiter: "a", Operation: OperationAcquire, Outcome: RequestGranted, Permits: 1, Degraded: true, ClockSkew: time.Second})
	require.Equal(t, "level=DEBUG msg=\"rate limiter: request\" limiter=a operation=acquire outcome=granted permits=1 duration=0s degraded=true clock_skew=1s\n", out.String())
}

// Failed requests of an outage do not fill the log: of each kind of error one in ten seconds is a warning, which counts the others.
func TestLogHookBoundsWarnings(t *testing.T) {
	redistest.NoServer(t)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := LogHook(slog.New(slog.NewTextHandler(&out, nil)))
		fail := func(err error) { h.Request(t.Context(), RequestInfo{Limiter: "a", Outcome: RequestError, Err: err}) }
		for range 250 { // 25 s
			fail(fmt.Errorf("a: %w", ErrUnavailable))
			time.Sleep(100 * time.Millisecond)
		}
		fail(ErrPermitsExceedRate)
		fail(errors.New("WRONGTYPE"))
		fail(errors.New("ERR of another kind"))
		var similar []string
		for line := range strings.Lines(out.String()) {
			require.Contains(t, line, "level=WARN")
			_, n, _ := strings.Cut(strings.TrimSpace(line), "similar=")
			similar = append(similar, n)
		}
		require.Equal(t, []string{"", "99", "99", "", ""}, similar)
	})
}

// healed returns what the calls healed since the last call of healed.
func (h *ledger) healed() (sum Healed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		sum.Value += c.Healed.Value
		sum.Lost += c.Healed.Lost
		sum.Surplus += c.Healed.Surplus
		sum.Clock += c.Healed.Clock
	}
	h.calls = nil
	return sum
}

// A state that was broken is told once, with the permits that it is about, whatever call heals it.
func TestHealedIsTold(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		k := w.l.redis.Keys
		ahead := func(d time.Duration, permits uint32) {
			require.NoError(t, w.rdb.ZAdd(w.ctx, k.Permits[0], redis.Z{Score: float64(time.Now().Add(d).UnixMilli()), Member: grant(permits)}).Err())
		}
		value := func(v any) { require.NoError(t, w.rdb.Set(w.ctx, k.Value[0], v, 0).Err()) }
		heal := func() { require.NoError(t, w.l.Admin().Heal(w.ctx)) }
		try := func(n int64) func() {
			return func() { must(w.l.Allow(w.ctx, n))(t) }
		}
		acquire := func() {
			must(w.l.TryAcquire(w.ctx, 10, 10*time.Second))(t)
		}
		for _, c := range []struct {
			name  string
			state func()
			call  func()
			want  Healed
		}{
			{"unused", func() {}, try(10), Healed{}},
			{"unused, healed", func() {}, heal, Healed{}},
			{"only used up", func() { ahead(-time.Second, 10); value(0) }, try(1), Healed{}},
			{"all expired", func() { ahead(-time.Hour, 10); value(0) }, try(10), Healed{}},
			{"no value", func() { ahead(-time.Second, 4) }, try(2), Healed{Value: 10}},
			{"no value, by Heal", func() { ahead(-time.Second, 4) }, heal, Healed{Value: 10}},
			{"no number", func() { value("x") }, try(2), Healed{Value: 10}},
			{"no number, by Heal", func() { value("x") }, heal, Healed{Value: 10}},
			{"stuck", func() { value(3) }, try(5), Healed{Lost: 7}},
			{"lost, and none would do", func() { ahead(-time.Second, 4); value(1) }, try(5), Healed{Lost: 5}},
			{"lost, found by a check", func() { ahead(-time.Second, 8); value(1) }, try(2), Healed{Lost: 1}},
			{"lost, found by a waiter", func() { ahead(-time.Second, 8); value(1) }, acquire, Healed{Lost: 1}},
			{"lost, by Heal", func() { ahead(-time.Second, 4); value(1) }, heal, Healed{Lost: 5}},
			{"more than the rate is left", func() { ahead(-time.Second, 4); value(12) }, try(1), Healed{Surplus: 6}},
			{"too many, found by a check", func() { ahead(-time.Second, 8); ahead(-2*time.Second, 4); value(1) }, try(3), Healed{Surplus: 3}},
			{"too many, by Heal", func() { ahead(-time.Second, 8); value(5) }, heal, Healed{Surplus: 3}},
			{"ahead", func() { ahead(time.Second, 6); ahead(2*time.Second, 3); value(1) }, try(2), Healed{Clock: 9}},
			{"ahead, after a look", func() { ahead(time.Second, 6); value(4); try(5)(); try(5)(); h.healed() }, try(5), Healed{}},
		} {
			// Each on a limiter that no process has looked at.
			require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Minute)))
			h.healed()
			c.state()
			c.call()
			require.Equal(t, c.want, h.healed(), c.name)
			c.call()
			require.Zero(t, h.healed(), "%s: once more", c.name)
		}
		// Far more than one call reads.
		require.NoError(t, w.l.SetRate(w.ctx, overall(5000, time.Hour)))
		for range 3000 {
			ahead(-time.Second, 1)
		}
		value(500)
		h.healed()
		heal()
		require.Equal(t, Healed{Lost: 1500}, h.healed())
	}, WithHook(h.hook()))
}

// TestHealthyUseHealsNothing uses a limiter in every way that this package has, with several clients.
func TestHealthyUseHealsNothing(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(10, 500*time.Millisecond), func(t *testing.T, w *world) {
		other := w.others(overall(7, time.Second))[0]
		peer := newWorld(t, w.rdb, WithHook(h.hook())).client
		defer peer.Close()
		rng := proptest.Rand(t)
		for round := range 60 {
			var wg sync.WaitGroup
			for i, l := range []*RateLimiter{w.l, peer.RateLimiter(w.l.Name()), w.l} {
				n := 1 + rng.Int64N(4)
				wg.Go(func() { _, _ = l.TryAcquire(w.ctx, n, 700*time.Millisecond) })
				wg.Go(func() { _, _ = l.Allow(w.ctx, n) })
				wg.Go(func() { _, _ = l.client.TryAcquireAll(w.ctx, 300*time.Millisecond, Demand{l, n}) })
				if i == 0 {
					wg.Go(func() { _, _ = w.client.TryAcquireAll(w.ctx, 300*time.Millisecond, Demand{l, n}, Demand{other, n}) })
				}
			}
			wg.Wait()
			var err error
			switch round % 10 {
			case 1:
				err = w.l.Release(w.ctx, 2)
			case 3:
				err = w.l.CoolDown(w.ctx, time.Now().Add(400*time.Millisecond), Reopen(300*time.Millisecond))
			case 4:
				_, err = w.l.Admin().LiftCoolDown(w.ctx)
			case 5:
				err = w.l.SetRate(w.ctx, overall(14, 500*time.Millisecond), KeepState())
			case 6:
				err = w.l.SetRate(w.ctx, overall(6, 500*time.Millisecond), KeepState())
			case 7:
				_, err = w.l.Peek(w.ctx, 2)
			case 8:
				time.Sleep(time.Second)
			case 9:
				err = w.l.Admin().Heal(w.ctx)
			}
			require.NoError(t, err)
			h.mu.Lock() // a call that gives something back may still be on its way
			for _, c := range h.calls {
				assert.Zero(t, c.Healed, "%s, in round %s", c.Script, strconv.Itoa(round))
			}
			h.calls = nil
			h.mu.Unlock()
		}
	}, WithHook(h.hook()))
}

// A request that shared the call of another knows the context of that call.
func TestCallContext(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(4, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(4)
		require.NotNil(t, h.one(t).CallContext)
		type key struct{}
		var wg sync.WaitGroup
		for i := range 4 {
			ctx := context.WithValue(w.ctx, key{}, i)
			wg.Go(func() { require.NoError(t, w.l.Acquire(ctx, 1)) })
		}
		wg.Wait()
		led := map[any]int{}
		for _, r := range h.requests {
			require.NoError(t, r.CallContext.Err())
			led[r.CallContext.Value(key{})]++
		}
		require.Len(t, led, 1, "they shared one call")
		for _, n := range led {
			require.Equal(t, 4, n)
		}
		h.requests = nil
		must(w.l.Peek(w.ctx, 1))(t)
		require.Nil(t, h.one(t).CallContext)
	}, WithHook(h.hook()))
}

// A listener collects the events of a Client.
type listener []Event

func (l *listener) hook() Option {
	return WithHook(Hook{Event: func(e Event) { *l = append(*l, e) }})
}

// TestMixedLayoutsAreReported checks that a Client which meets grants of Redisson 3.16.4 to 3.16.8 beside its own layout reports
// them, and one with WithRedisson316 grants in another layout: once for each limiter, whatever call meets them.
func TestMixedLayoutsAreReported(t *testing.T) {
	for _, long := range []bool{false, true} {
		for name, call := range map[string]func(w *world){
			"granted": func(w *world) { require.True(w.t, w.try(8).Granted) },
			"peek": func(w *world) {
				require.True(w.t, must(w.l.Peek(w.ctx, 8))(w.t).Granted)
			},
			"waits": func(w *world) {
				require.NoError(w.t, w.l.Acquire(w.ctx, 10))
			},
			"list": func(w *world) {
				other := w.client.RateLimiter(redistest.Key(w.t))
				require.NoError(w.t, other.SetRate(w.ctx, overall(10, time.Second)))
				require.True(w.t, must(w.client.TryAcquireAll(w.ctx, 0, Demand{Limiter: other, Permits: 1}, Demand{Limiter: w.l, Permits: 8}))(w.t).Granted)
			},
		} {
			t.Run(fmt.Sprint(name, long), func(t *testing.T) {
				var heard listener
				opts := []Option{heard.hook()}
				if long {
					opts = append(opts, WithRedisson316())
				}
				inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
					write := func(id byte) {
						member := string(redisson.Member(!long, redisson.RandomID().Run(int(id)), 2))
						require.NoError(t, w.rdb.ZAdd(w.ctx, w.permitsKey(), redis.Z{Score: float64(time.Now().UnixMilli()), Member: member}).Err())
						require.NoError(t, w.rdb.IncrBy(w.ctx, w.valueKey(), -2).Err())
					}
					require.True(t, w.try(1).Granted)
					require.Empty(t, heard)
					write(0)
					w.at(1500 * time.Millisecond)
					call(w)
					synctest.Wait()
					require.Len(t, heard, 1)
					require.Equal(t, LayoutsMixed, heard[0].Kind)
					require.Equal(t, w.l.Name(), heard[0].Limiter)
					require.False(t, heard[0].Time.Before(w.epoch.Add(1500*time.Millisecond)))
					require.ErrorContains(t, heard[0].Err, "WithRedisson316")
					require.ErrorContains(t, heard[0].Err, "3.16.4 to 3.16.8")
					require.Equal(t, long, strings.Contains(heard[0].Err.Error(), "make this one without"))

					w.at(4 * time.Second)
					require.True(t, w.try(1).Granted)
					write(1)
					w.at(6 * time.Second)
					call(w)
					require.Len(t, heard, 1, "once")
				}, opts...)
			})
		}
	}
}

// TestMixedLayoutsOfManyLimiters checks that a Client reports no more than a hundred limiters.
func TestMixedLayoutsOfManyLimiters(t *testing.T) {
	var heard listener
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		beside := w.another(WithRedisson316()).client
		for i := range 120 {
			name := fmt.Sprint(redistest.Key(t), i)
			require.NoError(t, beside.RateLimiter(name).SetRate(w.ctx, overall(10, time.Minute)))
			require.True(t, must(beside.RateLimiter(name).TryAcquire(w.ctx, 8, 0))(t))
			require.False(t, must(w.client.RateLimiter(name).TryAcquire(w.ctx, 8, 0))(t))
		}
		require.Len(t, heard, 100)
	}, heard.hook())
}

// TestMixedLayoutsInAJoint has calls of thirty limiters travel in one command, half of which meet grants of another layout. It checks
// that each of these limiters is reported, and no other.
func TestMixedLayoutsInAJoint(t *testing.T) {
	t.Run("in use", func(t *testing.T) { mixedInAJoint(t, 0) })
	t.Run("expired", func(t *testing.T) { mixedInAJoint(t, 90*time.Second) })
}

// mixedInAJoint makes the calls so long after the grants that they meet, which are in use for a minute.
func mixedInAJoint(t *testing.T, after time.Duration) {
	redistest.Since(t, 6, 0, "HELLO, which tells that one server has all keys")
	var mu sync.Mutex
	want, heard := map[string]int{}, map[string]int{}
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		cutter := &redistest.Cutter{Delay: time.Millisecond} // the others wait behind the first, and leave together
		client := newWorld(t, redistest.Peer(t, w.rdb, cutter.Option), WithHook(Hook{Event: func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			heard[e.Limiter]++
		}})).client
		defer client.Close()
		beside := w.another(WithRedisson316()).client
		var all []*RateLimiter
		for i := range 30 {
			l := client.RateLimiter(fmt.Sprint(redistest.Key(t), i))
			require.NoError(t, l.SetRate(w.ctx, overall(10, time.Minute)))
			if i%2 == 0 {
				require.True(t, must(beside.RateLimiter(l.Name()).TryAcquire(w.ctx, 8, 0))(t))
				want[l.Name()] = 1
			}
			all = append(all, l)
		}
		time.Sleep(after)
		joints := 0
		for range 3 {
			cutter.CutAt(math.MaxInt, func(requests [][]string) bool {
				return strings.HasPrefix(requests[0][0], "eval") && len(requests[0]) > 40 // of ten limiters or more
			})
			var calls sync.WaitGroup
			for i, l := range all {
				calls.Go(func() {
					ok, err := l.TryAcquire(w.ctx, 3, 0)
					assert.NoError(t, err)
					assert.Equal(t, after > 0 || i%2 == 1, ok)
				})
			}
			calls.Wait()
			if _, matched := cutter.Cut(); matched {
				joints++
			}
		}
		require.Positive(t, joints)
		require.Equal(t, want, heard)
	})
}

// TestStarted: each Client tells its Hooks once what identifies it in Redis: its id, of which the first four digits are those of its
// grants unless the id is no UUID, or one that begins like a mark.
func TestStarted(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		for i, id := range []string{"", "", "28d0c3a1-5b1c-4c11-9e07-2d7b3c1f0a55", "pod-7", "7e00c3a1-5b1c-4c11-9e07-2d7b3c1f0a55"} {
			var told []ClientInfo
			opts := []Option{WithHook(Hook{Started: func(c ClientInfo) { told = append(told, c) }})}
			if id != "" {
				opts = append(opts, WithClientID(id))
			}
			c, err := New(rdb, opts...)
			require.NoError(t, err)
			name := redistest.Key(t) + strconv.Itoa(i)
			require.NoError(t, c.RateLimiter(name).SetRate(t.Context(), Rate{Permits: 1, Interval: time.Minute}))
			require.NoError(t, c.RateLimiter(name).Acquire(t.Context(), 1))
			require.Len(t, told, 1)
			require.Equal(t, c.ID(), told[0].ID)
			require.Regexp(t, "^[0-9a-f]{4}$", told[0].Process)
			member := rdb.ZRange(t.Context(), "{"+name+"}:permits", 0, -1).Val()[0]
			require.Equal(t, told[0].Process, hex.EncodeToString([]byte(member[1:3])))
			require.Equal(t, id != "pod-7" && id != "7e00c3a1-5b1c-4c11-9e07-2d7b3c1f0a55", strings.HasPrefix(c.ID(), told[0].Process), c.ID())
			require.NoError(t, c.Close())
		}
	})
}

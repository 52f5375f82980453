package ratelimiter

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
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
			names = append(names, c.Script)
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

// An attempt that fails is told with its error, and so are the events of an outage.
func TestHookIsToldOfFailures(t *testing.T) {
	h := &ledger{}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer rdb.Close()
	client := newClient(t, rdb, WithHook(h.hook()))
	_, err := client.RateLimiter("a").Allow(t.Context(), 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NoError(t, client.Close())
	require.Equal(t, RequestError, h.one(t).Outcome)
	require.Len(t, h.events, 1)
	require.Equal(t, OutageBegan, h.events[0].Kind)
	require.NotEmpty(t, h.calls)
	for _, c := range h.calls {
		require.Equal(t, "acquire", c.Script)
		require.Error(t, c.Err)
	}
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
		ok, err := w.l.TryAcquire(w.ctx, 1, time.Second)
		require.NoError(t, err)
		require.True(t, ok)
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

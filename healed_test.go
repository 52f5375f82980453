package ratelimiter

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
		heal := func() { require.NoError(t, w.l.Heal(w.ctx)) }
		try := func(n int64) func() {
			return func() { _, err := w.l.Allow(w.ctx, n); require.NoError(t, err) }
		}
		acquire := func() {
			_, err := w.l.TryAcquire(w.ctx, 10, 10*time.Second)
			require.NoError(t, err)
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
		rng := rand.New(rand.NewPCG(1, 2))
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
				_, err = w.l.LiftCoolDown(w.ctx)
			case 5:
				err = w.l.SetRate(w.ctx, overall(14, 500*time.Millisecond), KeepState())
			case 6:
				err = w.l.SetRate(w.ctx, overall(6, 500*time.Millisecond), KeepState())
			case 7:
				_, err = w.l.Peek(w.ctx, 2)
			case 8:
				time.Sleep(time.Second)
			case 9:
				err = w.l.Heal(w.ctx)
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
		_, err := w.l.Peek(w.ctx, 1)
		require.NoError(t, err)
		require.Nil(t, h.one(t).CallContext)
	}, WithHook(h.hook()))
}

// A rejection that was known made no call, and the context of the call that it is known from is not kept.
func TestCallContextOfACachedRejection(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(4, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(4)
		require.NotNil(t, h.one(t).CallContext)
		w.try(1)
		require.NotNil(t, h.one(t).CallContext)
		calls := len(h.calls)
		w.try(1)
		r := h.one(t)
		require.Equal(t, RequestRejected, r.Outcome)
		require.Len(t, h.calls, calls, "it is known")
		require.Nil(t, r.CallContext)
	}, WithHook(h.hook()), WithCachedRejections(time.Second))
}

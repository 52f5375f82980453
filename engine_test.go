package ratelimiter

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A holder is a hook that delays the replies of scripts. The scripts run at once, but their callers get the reply
// later.
type holder struct {
	scriptHook
	mu    sync.Mutex
	delay time.Duration
}

func (h *holder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return err
		}
		h.mu.Lock()
		d := h.delay
		h.mu.Unlock()
		time.Sleep(d)
		return err
	}
}

func (h *holder) set(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delay = d
}

func hold(w *world, d time.Duration) *holder {
	for _, s := range allScripts() { // with the scripts loaded, no NOSCRIPT reply is delayed as well
		require.NoError(w.t, w.rdb.ScriptLoad(w.ctx, s.Src).Err())
	}
	h := &holder{delay: d}
	w.rdb.AddHook(h)
	return h
}

// TestGrantOfACallerThatLeftGoesBack checks that an unclaimed grant is refunded to Redis if nobody else waits, as
// if it had never been taken.
func TestGrantOfACallerThatLeftGoesBack(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		for _, typ := range []RateType{Overall, PerClient} {
			inWorld(t, Rate{Type: typ, Permits: 10, Interval: time.Minute}, func(t *testing.T, w *world) {
				w.granted(1)
				h := hold(w, 800*time.Millisecond)
				for _, ask := range []func(ctx context.Context) error{
					func(ctx context.Context) error { _, err := w.l.Allow(ctx, 4); return err },
					func(ctx context.Context) error { return w.l.Acquire(ctx, 4) },
					func(ctx context.Context) error { _, err := w.l.TryAcquire(ctx, 4, time.Minute); return err },
				} {
					ctx, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
					begin := time.Now()
					err := ask(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, ErrUnavailable, "there has been no reply")
					require.Equal(t, 300*time.Millisecond, time.Since(begin))
					cancel()
					time.Sleep(5 * time.Second)
					used, members := w.used()
					require.EqualValues(t, 1, used)
					require.Equal(t, 1, members)
					require.EqualValues(t, 9, w.value())
				}
				// Two of five callers of one batch leave, and their part is refunded.
				before, leave := context.WithTimeout(w.ctx, 300*time.Millisecond)
				defer leave()
				var wg sync.WaitGroup
				go func() { _, _ = w.l.Allow(w.ctx, 1) }()
				go func() { _, _ = w.l.Allow(w.ctx, 1) }() // occupy both flights, so that the requests that follow are batched
				time.Sleep(time.Millisecond)
				for i := range 5 {
					ctx := w.ctx
					if i%2 == 1 {
						ctx = before
					}
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						r, err := w.l.Allow(ctx, 1)
						require.Equal(t, i%2 == 1, errors.Is(err, context.DeadlineExceeded))
						require.Equal(t, i%2 == 0, r.Granted)
					})
				}
				wg.Wait()
				h.set(0)
				time.Sleep(5 * time.Second)
				used, _ := w.used()
				require.EqualValues(t, 1+2+3, used)
				require.EqualValues(t, 10-6, w.value())
			}, WithMemberFormat(format))
		}
	}
}

// TestGiveBackKnowsItsBounds checks that a refund gives nothing back if the grant is already gone, and never lifts
// the free permits above the rate.
func TestGiveBackKnowsItsBounds(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		refund := func(g permit.Grant) { require.NoError(t, w.l.redis.Refund(w.ctx, permit.Overall, g)) }
		id := redisson.RandomID()
		w.put(0, redisson.Member(false, id, 5))
		w.setValue(8) // something else has restored too many permits
		refund(permit.Grant{ID: id, Permits: 5, Keep: 2})
		require.EqualValues(t, 10, w.value())
		used, members := w.used()
		require.EqualValues(t, 2, used)
		require.Equal(t, 1, members)
		for range 2 {
			w.setValue(3)
			refund(permit.Grant{ID: id, Permits: 5, Keep: 2})
			require.EqualValues(t, 3, w.value())
		}
		refund(permit.Grant{ID: id, Permits: 2})
		require.EqualValues(t, 5, w.value())
		_, members = w.used()
		require.Zero(t, members)
	})
}

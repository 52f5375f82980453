package ratelimiter

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (w *world) grant(permits int64) *Grant {
	w.t.Helper()
	g := must(w.l.AcquireGrant(w.ctx, permits))(w.t)
	require.Equal(w.t, permits, g.Permits())
	return g
}

// TestSettle checks what a grant and the limiter are after it was settled, sent once, twice by something in between, or
// twice because the reply was lost.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct{ rate, permits, actual int64 }{
		"less":               {10, 5, 2},
		"nothing":            {10, 5, 0},
		"more":               {10, 5, 8},
		"all that is left":   {10, 5, 10},
		"more than is left":  {10, 5, 14},
		"more than the rate": {10, 10, 1000},
		"the same":           {10, 5, 5},
	} {
		for _, sent := range []string{"once", "twice", "doubled"} {
			t.Run(name+", sent "+sent, func(t *testing.T) {
				inResends(t, overall(c.rate, time.Minute), func(t *testing.T, w *world, twice *resender) {
					twice.on.Store(false)
					twice.first = sent == "doubled"
					g := w.grant(c.permits)
					w.at(10 * time.Second)
					twice.on.Store(sent != "once")
					require.NoError(t, g.Settle(w.ctx, c.actual))
					twice.on.Store(false)
					w.holds(w.l, c.rate, c.actual)
					require.ErrorIs(t, g.Settle(w.ctx, c.actual), ErrSettled)
					require.ErrorIs(t, g.Cancel(w.ctx), ErrSettled)
					w.holds(w.l, c.rate, c.actual)
					w.available(max(c.rate-c.actual, 0))
					if left := c.rate - c.actual; left <= 0 {
						w.rejected(1, 50*time.Second) // until the grant expires, which kept its instant
					} else {
						w.granted(left)
					}
					w.at(time.Minute + 10*time.Millisecond)
					if c.actual > c.rate {
						w.granted(c.rate)
					}
				})
			})
		}
	}
}

// TestSettleWhatIsGone checks that nothing happens to others where the grant of a Grant is no longer there.
func TestSettleWhatIsGone(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"expired":      func(w *world) { w.at(time.Minute + time.Millisecond); w.granted(3) },
		"released":     func(w *world) { require.NoError(w.t, w.l.Release(w.ctx, 5)); w.granted(3) },
		"another rate": func(w *world) { require.NoError(w.t, w.l.SetRate(w.ctx, overall(10, time.Hour))); w.granted(3) },
		"another type": func(w *world) {
			require.NoError(w.t, w.l.SetRate(w.ctx, Rate{PerClient, 10, time.Hour, 0, 0}))
			w.granted(3)
		},
		"value evicted": func(w *world) {
			w.at(2 * time.Minute)
			require.NoError(w.t, w.rdb.Del(w.ctx, w.valueKey()).Err())
			w.granted(3)
		},
	} {
		for actual, what := range map[int64]string{0: "cancelled", 9: "for more"} {
			t.Run(name+", "+what, func(t *testing.T) {
				inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
					g := w.grant(5)
					lose(w)
					require.NoError(t, g.Settle(w.ctx, actual))
					w.holds(w.l, 10, 3)
				})
			})
		}
	}
	t.Run("deleted", func(t *testing.T) {
		inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
			g := w.grant(5)
			must(w.l.Delete(w.ctx))(t)
			require.NoError(t, g.Settle(w.ctx, 9))
			require.Zero(t, must(w.rdb.Exists(w.ctx, keysAll(w.l, Overall)...).Result())(t), "nothing came back")
		})
	})
}

// TestGrantsAreTheirCallers checks that each of many equal requests, some of which can be settled, settles its own.
func TestGrantsAreTheirCallers(t *testing.T) {
	inWorld(t, overall(100, time.Minute), func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for i := range int64(20) {
			wg.Go(func() {
				if i%4 == 0 {
					require.NoError(t, w.l.Acquire(w.ctx, 2))
					return
				}
				require.NoError(t, must(w.l.TryAcquireGrant(w.ctx, 2, time.Duration(i%2)*time.Minute))(t).Settle(w.ctx, i%4+1)) // 2, 3, 4
			})
		}
		wg.Wait()
		w.holds(w.l, 100, 5*2+5*(2+3+4))
	})
}

// TestSettledPermitsWake checks that whoever waits gets at once what a grant did not use, a grant that waits too.
func TestSettledPermitsWake(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		g := w.grant(10)
		var wg sync.WaitGroup
		wg.Go(func() {
			second := must(w.l.AcquireGrant(w.ctx, 4))(t)
			require.Equal(t, 5*time.Second, w.elapsed())
			require.NoError(t, second.Settle(w.ctx, 1))
		})
		w.at(5 * time.Second)
		require.NoError(t, g.Settle(w.ctx, 6))
		wg.Wait()
		w.holds(w.l, 10, 7)
	})
}

// TestLargeGrantIsSettled checks it of a grant whose permits were taken ahead, beside others that take each as it comes back.
func TestLargeGrantIsSettled(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		peer := newClient(t, w.rdb, func(c *config) { c.clientClock, c.sharedClock = w.client.cfg.clientClock, true }) // of the same clock
		small := peer.RateLimiter(w.l.Name())
		ctx, cancel := context.WithCancel(w.ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := small.Allow(w.ctx, 1); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		w.at(2 * time.Second)
		g, err := w.l.AcquireGrant(w.ctx, 10)
		cancel()
		wg.Wait()
		require.NoError(t, err)
		require.NoError(t, g.Settle(w.ctx, 7))
		w.holds(w.l, 10, 7)
	})
}

// TestSettleErrors checks what Settle returns, and that a call that failed may be made again.
func TestSettleErrors(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		g := w.grant(5)
		require.ErrorIs(t, g.Settle(w.ctx, -1), ErrInvalidArgument)
		require.ErrorIs(t, g.Settle(w.ctx, 1<<32), ErrInvalidArgument)
		require.ErrorIs(t, (&Grant{}).Settle(w.ctx, 1), ErrInvalidArgument)
		require.ErrorIs(t, (*Grant)(nil).Cancel(w.ctx), ErrInvalidArgument)
		ended, end := context.WithCancel(w.ctx)
		end()
		require.ErrorIs(t, g.Settle(ended, 1), context.Canceled)
		_, err := w.l.AcquireGrant(w.ctx, 11)
		require.ErrorIs(t, err, ErrPermitsExceedRate)
		require.Nil(t, must(w.l.TryAcquireGrant(w.ctx, 6, 0))(t))

		c := cutOff(w, refusedDial)
		c.down.Store(true)
		require.ErrorIs(t, g.Settle(w.ctx, 7), ErrUnavailable)
		c.down.Store(false)
		time.Sleep(2 * time.Second) // until the outage is over
		require.ErrorIs(t, g.Settle(w.ctx, 8), ErrSettled, "it may have been settled to 7")
		require.NoError(t, g.Settle(w.ctx, 7))
		w.holds(w.l, 10, 7)
	})
}

// TestLocalGrant checks that a grant of a local quota is settled by doing nothing.
func TestLocalGrant(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		cutOff(w, refusedDial).down.Store(true)
		require.NoError(t, must(w.l.OnOutage(FailOpen()).AcquireGrant(w.ctx, 3))(t).Settle(w.ctx, 1))
	})
}

// TestGrantsOfSeveralLimiters checks that each grant of a request for several limiters settles its own, in the order of the
// demands, whether one script decided them or they were reserved; and that there are none after a rejection.
func TestGrantsOfSeveralLimiters(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		for _, order := range [][2]string{{"a", "z"}, {"z", "a"}} {
			var l [2]*RateLimiter
			for i, name := range order {
				l[i] = w.client.RateLimiter(w.l.Name() + name)
				require.NoError(t, l[i].SetRate(w.ctx, overall(10, time.Minute)))
			}
			r, grants, err := w.client.TryAcquireAllGrants(w.ctx, 0, Demand{l[0], 2}, Demand{l[1], 5}, Demand{l[0], 1})
			require.NoError(t, err)
			require.True(t, r.Granted)
			require.Len(t, grants, 2)
			require.Same(t, l[0], grants[0].Limiter())
			require.EqualValues(t, 3, grants[0].Permits())
			require.NoError(t, grants[0].Settle(w.ctx, 1))
			require.NoError(t, grants[1].Settle(w.ctx, 6))
			w.holds(l[0], 10, 1)
			w.holds(l[1], 10, 6)
			r, grants, err = w.client.TryAcquireAllGrants(w.ctx, 0, Demand{l[0], 9}, Demand{l[1], 5})
			require.NoError(t, err)
			require.False(t, r.Granted)
			require.Empty(t, grants)
			_, grants, err = w.client.TryAcquireAllGrants(w.ctx, time.Hour, Demand{l[0], 10}, Demand{l[1], 10})
			require.NoError(t, err)
			require.NoError(t, grants[0].Cancel(w.ctx))
			require.NoError(t, grants[1].Settle(w.ctx, 3))
			w.holds(l[0], 10, 0)
			w.holds(l[1], 10, 3)
			_, grants, err = w.client.TryAcquireAllGrants(w.ctx, 0, Demand{l[0], 4})
			require.NoError(t, err)
			require.NoError(t, grants[0].Settle(w.ctx, 2))
			w.holds(l[0], 10, 2)
		}
		_, _, err := w.client.TryAcquireAllGrants(w.ctx, 0)
		require.ErrorIs(t, err, ErrInvalidArgument)
	})
}

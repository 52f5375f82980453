// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The acquire script builds the same bytes as the codec.
func TestAcquireWritesTheCodecsMember(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		inWorld(t, overall(1<<32-1, time.Hour), func(t *testing.T, w *world) {
			for _, n := range []int64{1, 255, 256, 65535, 1 << 24, 1<<31 - 1, 1<<32 - 1} {
				require.NoError(t, w.l.SetRate(w.ctx, overall(1<<32-1, time.Hour)))
				id := redisson.RandomID()
				w.ask(permit.Batch{ID: id, Runs: []permit.Run{{Permits: n, Count: 1}, {Permits: 3, Count: 1}, {Permits: 7, Count: 2}}})
				want := []string{string(redisson.Member(format == wire.FormatLc0I, id.Run(0), uint32(n)))}
				if n < 1<<32-1 {
					want = append(want, string(redisson.Member(format == wire.FormatLc0I, id.Run(1), 3)), string(redisson.Member(format == wire.FormatLc0I, id.Run(2), 14)))
				}
				require.ElementsMatch(t, want, w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val())
			}
		}, inFormat(format))
	}
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		require.Len(t, w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val()[0], 20)
	}, WithRedisson316())
}

// TestBatchedRequestsBeyondOneMember checks batched requests whose sum does not fit into one member. Redisson
// allows rates that large.
func TestBatchedRequestsBeyondOneMember(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", 1_000_000_000_000).Err())
		for _, r := range batched(w.ctx, w.l, []int64{3e9, 3e9, 1, 3e9}) {
			require.NoError(t, r.Err)
			require.True(t, r.Granted)
		}
		used, members := w.used()
		require.EqualValues(t, 9e9+1, used)
		require.Equal(t, 4, members)
		require.EqualValues(t, 1_000_000_000_000-9e9-1, w.value())
	})
}

// TestNameThatIsAKeyOfAnotherLimiter checks that a limiter whose name is a key of another one, such as {alice}:value
// beside alice, gets an error that names it, and takes nothing from the other.
func TestNameThatIsAKeyOfAnotherLimiter(t *testing.T) {
	inWorld(t, overall(5, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		for _, name := range keysOf(w.l, Overall)[1:] {
			l := w.client.RateLimiter(name)
			_, err := l.Allow(w.ctx, 1)
			rejected := []error{err, l.SetRate(w.ctx, overall(3, time.Second)), l.Acquire(w.ctx, 1), l.Release(w.ctx, 1)}
			_, err = l.TrySetRate(w.ctx, overall(3, time.Second))
			rejected = append(rejected, err)
			_, err = l.Rate(w.ctx)
			rejected = append(rejected, err)
			_, err = l.Admin().Inspect(w.ctx)
			rejected = append(rejected, err)
			_, err = w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}, Demand{l, 1})
			rejected = append(rejected, err)
			for _, err := range rejected {
				require.ErrorContains(t, err, "WRONGTYPE")
				require.NotErrorIs(t, err, ErrUnavailable)
			}
		}
		w.available(4)
		w.settled(5)
	})
}

// TestSecondTripIsRare checks that no call of a limiter in its usual state, of those that acquire is made for, is left to
// acquire_rest.
func TestSecondTripIsRare(t *testing.T) {
	const calls = 300
	for name, c := range map[string]struct {
		rate    permit.Rate
		ttl     time.Duration
		expired int           // members that have expired before the first call
		between time.Duration // from call to call
		idle    time.Duration // in the middle
		run     permit.Run
	}{
		"granted":           {rate: permit.Rate{Permits: 1000, Interval: time.Second}, run: permit.Run{Permits: 1, Count: 1}},
		"most rejected":     {rate: permit.Rate{Permits: 10, Interval: time.Second}, between: time.Millisecond, run: permit.Run{Permits: 1, Count: 1}},
		"partly":            {rate: permit.Rate{Permits: 10, Interval: time.Second}, between: 30 * time.Millisecond, run: permit.Run{Permits: 3, Count: 4}},
		"PER_CLIENT":        {rate: permit.Rate{Type: permit.PerClient, Permits: 10, Interval: time.Second}, between: 10 * time.Millisecond, run: permit.Run{Permits: 1, Count: 1}},
		"large requests":    {rate: permit.Rate{Permits: 1000, Interval: time.Second}, expired: 300, between: 7 * time.Millisecond, run: permit.Run{Permits: 300, Count: 1}},
		"KeepAlive":         {rate: permit.Rate{Permits: 10, Interval: time.Second, KeepAlive: 3 * time.Hour}, between: 20 * time.Millisecond, run: permit.Run{Permits: 1, Count: 2}},
		"a TTL":             {rate: permit.Rate{Permits: 10, Interval: time.Second}, ttl: 3 * time.Hour, between: 20 * time.Millisecond, run: permit.Run{Permits: 1, Count: 2}},
		"an idle hour":      {rate: permit.Rate{Permits: 10, Interval: time.Second}, idle: time.Hour, between: 20 * time.Millisecond, run: permit.Run{Permits: 1, Count: 2}},
		"many members":      {rate: permit.Rate{Permits: 200, Interval: time.Second}, between: 3 * time.Millisecond, run: permit.Run{Permits: 1, Count: 1}},
		"1000 have expired": {rate: permit.Rate{Permits: 1000, Interval: time.Second}, expired: 1000, run: permit.Run{Permits: 900, Count: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				ctx, sent := t.Context(), map[string]int{}
				conn := redisson.NewConn(rdb, redisson.Config{Scripts: &scripts, ClientClock: true, KeyTTL: time.Hour,
					Called: func(c permit.Call) { sent[c.Script]++ }})
				key := redistest.Key(t)
				l := &redisson.Limiter{Conn: conn, Name: key, Keys: redisson.NewKeys(key, "me")}
				must(l.TrySetRate(c.rate).Run(ctx))(t)
				if c.ttl > 0 {
					require.NoError(t, rdb.PExpire(ctx, key, c.ttl).Err())
				}
				typ, old := c.rate.Type, time.Now().Add(-time.Minute).UnixMilli()
				if c.expired > 0 {
					members := make([]redis.Z, c.expired)
					for i := range members {
						members[i] = redis.Z{Score: float64(old), Member: "\x10abc" + strconv.Itoa(1000+i) + "id" + string(binary.LittleEndian.AppendUint32(nil, 1))}
					}
					require.NoError(t, rdb.ZAdd(ctx, l.Keys.Permits[typ], members...).Err())
					require.NoError(t, rdb.Set(ctx, l.Keys.Value[typ], c.rate.Permits-int64(c.expired), 0).Err())
				}
				granted := int64(0)
				for i := range calls {
					b := &permit.Batch{Type: typ, Runs: []permit.Run{c.run}}
					binary.BigEndian.PutUint32(b.ID[12:], uint32(i))
					a := must(l.Acquire(ctx, b))(t)
					require.Equal(t, permit.Done, a.Next)
					granted += a.Granted[0]
					require.Equal(t, a.Granted[0] < c.run.Count, a.Wait > 0)
					time.Sleep(c.between)
					if i == calls/2 {
						time.Sleep(c.idle)
					}
				}
				require.Positive(t, granted)
				require.Equal(t, calls, sent["acquire"])
				require.Zero(t, sent["acquire_rest"])
			})
		})
	}
}

// TestWithCachedRejections checks that a known rejection is told as if Redis had been asked, and the option of one handle.
func TestWithCachedRejections(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(4, time.Minute), func(t *testing.T, w *world) {
		w.granted(3)
		want := w.try(2)
		w.at(100 * time.Millisecond)
		calls := len(h.calls)
		want.Wait -= 100 * time.Millisecond
		want.Time = want.Time.Add(100 * time.Millisecond)
		require.Equal(t, want, w.try(2))
		require.False(t, must(w.l.TryAcquire(w.ctx, 4, 0))(t))
		require.Len(t, h.calls, calls, "it is known")
		require.Nil(t, h.requests[len(h.requests)-1].CallContext, "and so are those of its first call")
		require.False(t, must(w.l.CachedRejections(0).Allow(w.ctx, 2))(t).Granted)
		require.Greater(t, len(h.calls), calls)
		require.ErrorIs(t, errOf(w.l.CachedRejections(-1).Allow(w.ctx, 1)), ErrInvalidArgument)
	}, WithHook(h.hook()), WithCachedRejections(time.Second))
}

// TestWithRate checks that each call which acquires sets the rate that its handle carries where there is none, again after a
// flush, and that a limiter with a rate keeps it.
func TestWithRate(t *testing.T) {
	for name, acquire := range map[string]func(w *world, l *RateLimiter) (bool, error){
		"TryAcquire": func(w *world, l *RateLimiter) (bool, error) { return l.TryAcquire(w.ctx, 2, time.Second) },
		"Acquire":    func(w *world, l *RateLimiter) (bool, error) { return true, l.Acquire(w.ctx, 2) },
		"Allow":      func(w *world, l *RateLimiter) (bool, error) { r, err := l.Allow(w.ctx, 2); return r.Granted, err },
		"AcquireGrant": func(w *world, l *RateLimiter) (bool, error) {
			g, err := l.AcquireGrant(w.ctx, 2)
			return g != nil, err
		},
		"TryAcquireAll": func(w *world, l *RateLimiter) (bool, error) {
			r, err := w.client.TryAcquireAll(w.ctx, time.Second, Demand{l, 2}, Demand{w.client.RateLimiter(w.l.Name() + "2").WithRate(overall(9, time.Hour)), 1})
			return r.Granted, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
				l := w.client.RateLimiter(w.l.Name()).WithRate(Rate{PerClient, 5, time.Hour, 0, 0})
				require.True(t, must(acquire(w, l))(t))
				require.Equal(t, overall(10, time.Minute), must(l.Rate(w.ctx))(t), "it has a rate, and keeps it")
				for range 2 {
					must(w.l.Admin().Delete(w.ctx))(t)
					_, err := w.client.RateLimiter(w.l.Name()).Allow(w.ctx, 1)
					require.ErrorIs(t, err, ErrNotInitialized, "a handle that carries none")
					require.True(t, must(acquire(w, l))(t))
					require.EqualValues(t, 3, must(l.AvailablePermits(w.ctx))(t))
				}
			})
		})
	}
}

// TestWithRateWaiting checks that callers that wait go on by the rate that is set again.
func TestWithRateWaiting(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		l := w.l.WithRate(overall(4, time.Minute))
		w.granted(1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				require.True(t, must(l.TryAcquire(w.ctx, 1, 30*time.Minute))(t))
				require.Less(t, w.elapsed(), 2*time.Minute)
			})
		}
		w.at(time.Minute)
		must(w.client.RateLimiter(w.l.Name()).Admin().Delete(w.ctx))(t)
		wg.Wait()
		w.holds(w.l, 4, 3)
	})
}

// TestWithRateLostOften loses the rate more often than a call sets it in a row: callers that wait go on. One whose rate is lost again and
// again at once is told.
func TestWithRateLostOften(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		l := w.l.WithRate(overall(1, time.Minute))
		w.granted(1)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { require.NoError(t, l.Acquire(w.ctx, 1)) })
		}
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			must(w.client.RateLimiter(w.l.Name()).Admin().Delete(w.ctx))(t)
		}
		wg.Wait()
	})
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		sets := 0
		onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if err == nil && redistest.Must(w.rdb.Del(ctx, w.l.redis.Keys.Hash).Result())(t) > 0 {
				sets++
			}
			return err
		})
		_, err := w.l.WithRate(overall(1, time.Minute)).Allow(w.ctx, 1)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.Equal(t, maxCarried, sets)
	})
}

// TestWithRateSetByOthers has callers set the rate whose contexts end before it is set. Those that wait for them set it themselves.
func TestWithRateSetByOthers(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Args()[2] == 1 && len(cmd.Args()) > 5 { // try_set_rate
				select {
				case <-ctx.Done():
					cmd.SetErr(ctx.Err())
					return ctx.Err()
				case <-time.After(500 * time.Millisecond):
				}
			}
			return next(ctx, cmd)
		})
		l := w.l.WithRate(overall(100, time.Minute))
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(w.ctx, time.Duration(20+10*i)*time.Millisecond)
				if i >= 20 {
					ctx, cancel = context.WithTimeout(w.ctx, time.Minute)
				}
				defer cancel()
				_, err := l.Allow(ctx, 1)
				if i >= 20 {
					require.NoError(t, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestWithRateInvalid(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		_, err := w.l.WithRate(Rate{}).Allow(w.ctx, 1)
		require.ErrorIs(t, err, ErrInvalidArgument)
	})
}

func TestNameMapper(t *testing.T) {
	inWorld(t, overall(2, time.Second), func(t *testing.T, w *world) {
		calls := 0
		c := newClient(t, w.rdb, WithNameMapper(func(name string) string { calls++; return strings.TrimPrefix(name, "app:") }), WithClientClock())
		l := c.RateLimiter("app:" + w.l.Name())
		require.Equal(t, "app:"+w.l.Name(), l.Name())
		require.Equal(t, w.l.redis.Keys.Hash, l.redis.Keys.Hash)
		require.Equal(t, 1, calls)
		require.True(t, must(l.TryAcquire(w.ctx, 2, 0))(t))
		w.available(0)
	})
	c := newClient(t, redis.NewClient(&redis.Options{}), WithNameMapper(func(string) string { return "" }))
	_, err := c.RateLimiter("x").Allow(context.Background(), 1)
	require.ErrorIs(t, err, ErrInvalidArgument)
}

func TestOptionsOutOfRange(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is ever sent
	rejected := func(name string, rdb redis.UniversalClient, opts ...Option) {
		c, err := New(rdb, opts...)
		require.ErrorIs(t, err, ErrInvalidArgument, name)
		require.Nil(t, c, name)
	}
	rejected("nil redis", nil)
	l := newClient(t, rdb).RateLimiter("x")
	require.ErrorIs(t, l.SetRate(t.Context(), overall(1, time.Second), nil), ErrInvalidArgument, "a nil RateOption")
	require.ErrorIs(t, l.CoolDown(t.Context(), time.Now().Add(time.Second), nil), ErrInvalidArgument, "a nil CoolDownOption")
	rejected("a *redis.Client that is nil", (*redis.Client)(nil))
	rejected("a *redis.ClusterClient that is nil", (*redis.ClusterClient)(nil))
	rejected("a *redis.Ring that is nil", (*redis.Ring)(nil))
	for name, o := range map[string]Option{
		"empty id":          WithClientID(""),
		"nil mapper":        WithNameMapper(nil),
		"client key TTL":    WithClientKeyTTL(-time.Second),
		"fine TTL":          WithClientKeyTTL(time.Second + 1),
		"recheck of zero":   WithRecheck(0),
		"fine recheck":      WithRecheck(time.Millisecond - 1),
		"cached rejections": WithCachedRejections(-1),
		"outage limit":      WithOutageLimit(-1),
		"outage policy":     WithOutagePolicy(LocalQuota(Rate{}, 0)),
		"no option":         nil,
	} {
		rejected(name, rdb, o)
	}
}

// A hundred thousand names that are used once leave nothing behind but one idle limiter in each shard.
func TestNamesLeaveNothingBehind(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "the engine is tested with it")
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		(&forger{forever: []any{int64(1)}}).on(rdb) // not initialised
		c := newClient(t, rdb)
		for i := range 100_000 {
			_, err := c.RateLimiter(fmt.Sprint("once", i)).Allow(context.Background(), 1)
			require.ErrorIs(t, err, ErrNotInitialized)
		}
		requireIdle(t, c)
		require.NoError(t, c.Close())
	})
}

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
			must(w.l.Admin().Delete(w.ctx))(t)
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
				g, ok, err := w.l.TryAcquireGrant(w.ctx, 2, time.Duration(i%2)*time.Minute)
				require.NoError(t, err)
				require.True(t, ok)
				require.NoError(t, g.Settle(w.ctx, i%4+1)) // 2, 3, 4
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
		none, ok, err := w.l.TryAcquireGrant(w.ctx, 6, 0)
		require.NoError(t, err)
		require.False(t, ok)
		require.Nil(t, none)

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
			grants, r, err := w.client.TryAcquireAllGrants(w.ctx, 0, Demand{l[0], 2}, Demand{l[1], 5}, Demand{l[0], 1})
			require.NoError(t, err)
			require.True(t, r.Granted)
			require.Len(t, grants, 2)
			require.Same(t, l[0], grants[0].Limiter())
			require.EqualValues(t, 3, grants[0].Permits())
			require.NoError(t, grants[0].Settle(w.ctx, 1))
			require.NoError(t, grants[1].Settle(w.ctx, 6))
			w.holds(l[0], 10, 1)
			w.holds(l[1], 10, 6)
			grants, r, err = w.client.TryAcquireAllGrants(w.ctx, 0, Demand{l[0], 9}, Demand{l[1], 5})
			require.NoError(t, err)
			require.False(t, r.Granted)
			require.Empty(t, grants)
			grants, _, err = w.client.TryAcquireAllGrants(w.ctx, time.Hour, Demand{l[0], 10}, Demand{l[1], 10})
			require.NoError(t, err)
			require.NoError(t, grants[0].Cancel(w.ctx))
			require.NoError(t, grants[1].Settle(w.ctx, 3))
			w.holds(l[0], 10, 0)
			w.holds(l[1], 10, 3)
			grants, _, err = w.client.TryAcquireAllGrants(w.ctx, 0, Demand{l[0], 4})
			require.NoError(t, err)
			require.NoError(t, grants[0].Settle(w.ctx, 2))
			w.holds(l[0], 10, 2)
		}
		_, _, err := w.client.TryAcquireAllGrants(w.ctx, 0)
		require.ErrorIs(t, err, ErrInvalidArgument)
	})
}

// With WithEarlyRejection the deadline of a context is judged at once, as a timeout is. The error names the limiter and the wait.
func TestEarlyRejectionByContext(t *testing.T) {
	for name, acquire := range map[string]func(ctx context.Context, w *world) (bool, error){
		"Acquire": func(ctx context.Context, w *world) (bool, error) { return true, w.l.Acquire(ctx, 1) },
		"AcquireGrant": func(ctx context.Context, w *world) (bool, error) {
			g, err := w.l.AcquireGrant(ctx, 1)
			return g != nil, err
		},
		"TryAcquire": func(ctx context.Context, w *world) (bool, error) { return w.l.TryAcquire(ctx, 1, time.Hour) },
		"AcquireAll": func(ctx context.Context, w *world) (bool, error) {
			return true, w.client.AcquireAll(ctx, Demand{w.l, 1})
		},
		"in a class": func(ctx context.Context, w *world) (bool, error) {
			return true, w.l.LeaveFree(2, time.Hour).Acquire(ctx, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
				require.NoError(t, w.l.Acquire(w.ctx, 10))
				begin := time.Now()
				for _, waiting := range []bool{false, true} { // alone, and behind somebody whose wait is known
					if waiting {
						go func() { _ = w.l.Acquire(w.ctx, 1) }()
						synctest.Wait()
					}
					ctx, cancel := context.WithTimeout(w.ctx, 9*time.Second)
					_, err := acquire(ctx, w)
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, w.l.Name())
					require.ErrorContains(t, err, "10s")
					require.Zero(t, time.Since(begin), "it slept")
				}
				ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
				defer cancel()
				ok, err := acquire(ctx, w)
				require.NoError(t, err)
				require.True(t, ok)
				require.InDelta(t, 10*time.Second, time.Since(begin), float64(50*time.Millisecond)) // a class lets others go first
				ok, err = w.l.TryAcquire(ctx, 10, 5*time.Second)                                    // the timeout is the earlier one
				require.NoError(t, err)
				require.False(t, ok)
			}, WithEarlyRejection())
		})
	}
}

// TestAllowAtMost checks that a call takes what there is up to what it asks for, once, and that it gives way.
func TestAllowAtMost(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.load()
		loses := false // the reply to the next call
		onScripts(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if loses {
				loses = false
				cmd.SetErr(io.EOF)
				return io.EOF
			}
			return err
		})
		for _, lost := range []bool{false, true} {
			atMost := func(n int64) (int64, Result) {
				t.Helper()
				loses = lost
				got, r, err := w.l.AllowAtMost(w.ctx, n)
				require.NoError(t, err)
				require.Equal(t, got > 0, r.Granted)
				require.Equal(t, overall(10, time.Second), r.Rate)
				require.False(t, loses, "a reply was lost")
				return got, r
			}
			w.granted(1)
			got, r := atMost(2)
			require.EqualValues(t, 2, got)
			require.EqualValues(t, 7, r.Available)
			w.granted(4)
			got, r = atMost(1 << 31)
			require.EqualValues(t, 3, got, "more than the rate")
			require.Zero(t, r.Available)
			w.holds(w.l, 10, 10)
			got, r = atMost(10)
			require.Zero(t, got)
			require.LessOrEqual(t, r.Wait, time.Second, "the wait of one permit")
			time.Sleep(time.Second)
			got, _ = atMost(100)
			require.EqualValues(t, 10, got)
			w.holds(w.l, 10, 10)
			time.Sleep(time.Second)
		}
		_, _, err := w.l.AllowAtMost(w.ctx, 0)
		require.ErrorIs(t, err, ErrInvalidArgument)
		new := w.client.RateLimiter(w.l.Name() + "-new")
		_, _, err = new.AllowAtMost(w.ctx, 1)
		require.ErrorIs(t, err, ErrNotInitialized)
		got, _, err := new.WithRate(overall(5, time.Minute)).LeaveFree(2, time.Hour).AllowAtMost(w.ctx, 9)
		require.NoError(t, err)
		require.EqualValues(t, 3, got, "the rate that it carries, of which two stay free")
		_, _, err = new.LeaveFree(5, time.Hour).AllowAtMost(w.ctx, 1)
		require.ErrorIs(t, err, ErrPermitsExceedRate)
		gaps := Rate{Permits: 5, Interval: time.Minute, MinGap: time.Second}
		got, _, err = w.client.RateLimiter(w.l.Name()+"-gaps").WithRate(gaps).AllowAtMost(w.ctx, 9)
		require.NoError(t, err)
		require.EqualValues(t, 1, got, "the next one is a gap later")

	})
}

// TestAllowAtMostWhoseCallersLeave checks that what a call was granted whose caller left before the reply goes back.
func TestAllowAtMostWhoseCallersLeave(t *testing.T) {
	redistest.NeedReal(t)
	ctx, name := t.Context(), redistest.Key(t)
	proxy := redistest.StartProxy(t, redistest.Client(t).Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	client := newClient(t, rdb)
	defer client.Close()
	l := client.RateLimiter(name).WithRate(overall(1000, time.Hour))
	got, _, err := l.AllowAtMost(ctx, 10)
	require.NoError(t, err)
	require.EqualValues(t, 10, got)
	proxy.Judge(func(words []string) (f redistest.Fault) {
		if strings.HasPrefix(words[0], "eval") {
			f.Hold = 200 * time.Millisecond
		}
		return f
	})
	for i := range 5 {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(20+30*i)*time.Millisecond)
		_, _, err := l.AllowAtMost(ctx, []int64{1, 7, 300, 2, 5}[i])
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	proxy.Judge(nil)
	soon(t, "all is given back", func() bool { return must(l.AvailablePermits(ctx))(t) == 990 })
}

// TestAllowAtMostBesideWaiters checks that a call that takes what there is gets something while others of its Client wait, when it
// comes back after the wait that it is told, and that one who waits for all permits is passed over for an interval at most.
func TestAllowAtMostBesideWaiters(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		ctx, leave := context.WithCancel(w.ctx)
		var all sync.WaitGroup
		var waited atomic.Int64
		for range 4 {
			all.Go(func() {
				for w.l.Acquire(ctx, 6) == nil {
					waited.Add(6)
				}
			})
		}
		time.Sleep(time.Second)
		got := int64(0)
		for w.elapsed() < 40*time.Second {
			n, r, err := w.l.AllowAtMost(w.ctx, 5)
			require.NoError(t, err)
			got += n
			time.Sleep(r.Wait + time.Millisecond)
		}
		leave()
		all.Wait()
		t.Logf("%d permits, and %d to those who waited", got, waited.Load())
		require.Positive(t, got)
		require.GreaterOrEqual(t, waited.Load(), int64(20*6), "an interval in which each is passed over, and one in which it is served")
		require.LessOrEqual(t, waited.Load()+got, int64(410))
	})
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		served := make(chan error, 1)
		go func() { served <- w.l.Acquire(w.ctx, 10) }()
		synctest.Wait()
		got, _, err := w.l.AllowAtMost(w.ctx, 5)
		require.NoError(t, err)
		require.EqualValues(t, 5, got, "of nine, while ten are waited for")
		for len(served) == 0 {
			time.Sleep(50 * time.Millisecond)
			_, r, err := w.l.AllowAtMost(w.ctx, 1)
			require.NoError(t, err)
			require.True(t, r.Granted || r.Wait > 0)
		}
		require.NoError(t, <-served)
		require.LessOrEqual(t, w.elapsed(), 2100*time.Millisecond)
	})
}

// TestAllowAtMostOffline checks what a policy grants to a call that takes what there is.
func TestAllowAtMostOffline(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		goesAway(w, cutOff(w, refusedDial))
		_, _, err := w.l.AllowAtMost(w.ctx, 3)
		require.ErrorIs(t, err, ErrUnavailable)
		got, r, err := w.l.OnOutage(FailOpen()).AllowAtMost(w.ctx, 3)
		require.NoError(t, err)
		require.EqualValues(t, 3, got)
		require.True(t, r.Degraded)
		time.Sleep(time.Second)
		share := w.l.OnOutage(LocalQuota(overall(10, time.Second), 3))
		for _, want := range []int64{2, 1, 0} { // of a share of 3
			got, _, err := share.AllowAtMost(w.ctx, 2)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

// TestAllowAtMostWithoutReplies loses the replies to a call that takes what there is, and to no other. It checks that no policy decides,
// as there is no outage.
func TestAllowAtMostWithoutReplies(t *testing.T) {
	for _, p := range []OutagePolicy{FailOpen(), LocalQuota(overall(10, time.Second), 1)} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			w.granted(1)
			w.rdb.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				if strings.HasPrefix(cmd.Name(), "eval") {
					err = io.EOF
				}
				return err
			}))
			got, r, err := w.l.OnOutage(p).AllowAtMost(w.ctx, 3)
			require.ErrorIs(t, err, ErrUnavailable)
			require.Zero(t, got)
			require.Zero(t, r)
		})
	}
}

// TestHandlesAreRemembered checks that the limiter of a name is the same value, made without allocating.
func TestHandlesAreRemembered(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	c := newClient(t, rdb)
	require.Same(t, c.RateLimiter("user 42"), c.RateLimiter("user "+fmt.Sprint(42)))
	require.Zero(t, testing.AllocsPerRun(100, func() { c.RateLimiter("user 42") }))
	prefix := "a"
	mapped := newClient(t, rdb, WithNameMapper(func(name string) string { return prefix + name }))
	a := mapped.RateLimiter("x")
	prefix = "b"
	require.NotEqual(t, keysOf(a, Overall), keysOf(mapped.RateLimiter("x"), Overall), "a mapper may change its mind")
}

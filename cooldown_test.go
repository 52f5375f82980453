package ratelimiter

import (
	"context"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/wire"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCoolDown(t *testing.T) {
	until := func(w *world, d time.Duration) time.Time { return w.epoch.Add(d) }

	t.Run("nobody before, everybody after", func(t *testing.T) {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			w.granted(4)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute)))
			w.rejected(1, time.Minute)
			w.available(0)
			w.at(30 * time.Second)
			w.rejected(10, 30*time.Second)
			at, err := w.l.CoolDownUntil(w.ctx)
			require.NoError(t, err)
			require.True(t, at.Equal(until(w, time.Minute)), at)
			require.NoError(t, w.l.Acquire(w.ctx, 10))
			require.Equal(t, time.Minute, w.elapsed(), "the whole rate, at the instant at which it ends")
			at, err = w.l.CoolDownUntil(w.ctx)
			require.NoError(t, err)
			require.Zero(t, at)
			w.rejected(1, time.Second)
			w.at(time.Minute + time.Second)
			w.granted(10)
			require.False(t, w.rdb.HExists(w.ctx, w.l.redis.Keys.Hash, "coolDown").Val(), "nothing is left of it")
		})
	})

	t.Run("longer wins", func(t *testing.T) {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, 10*time.Second)))
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, 5*time.Second)))
			w.rejected(1, 10*time.Second)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, 20*time.Second)))
			w.at(19999 * time.Millisecond)
			w.rejected(1, time.Millisecond)
			w.at(20 * time.Second)
			w.granted(10)
			used, _ := w.used()
			require.EqualValues(t, 10, used)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Second)), "a past one is over")
			w.at(21 * time.Second)
			w.granted(10)
		})
	})

	t.Run("shorter than the interval", func(t *testing.T) {
		inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
			w.granted(3)
			w.at(5 * time.Second)
			w.granted(3)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, 11*time.Second)))
			w.rejected(1, 6*time.Second)
			w.at(11 * time.Second)
			w.granted(7) // the three of 5 s expire at 15 s as always
			w.rejected(1, 4*time.Second)
			w.at(15 * time.Second)
			w.granted(3)
		})
	})

	t.Run("re-opens gradually", func(t *testing.T) {
		inWorld(t, overall(20, 10*time.Second), func(t *testing.T, w *world) {
			w.granted(20)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute), Reopen(10*time.Second)))
			w.at(time.Minute)
			for i := range 50 {
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.Equal(t, time.Minute+time.Duration(i)*500*time.Millisecond, w.elapsed(), i)
			}
		})
	})

	t.Run("met by many, it re-opens as slowly", func(t *testing.T) {
		inWorld(t, overall(20, 10*time.Second), func(t *testing.T, w *world) {
			for range 5 {
				require.NoError(t, w.l.CoolDown(w.ctx, until(w, 5*time.Second), Reopen(10*time.Second)))
				w.at(w.elapsed() + 10*time.Millisecond)
			}
			for i := range 20 {
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.Equal(t, 5*time.Second+time.Duration(i)*500*time.Millisecond, w.elapsed(), i)
			}
		})
	})

	t.Run("a short one does not speed up the re-opening of a long one", func(t *testing.T) {
		inWorld(t, overall(20, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, 10*time.Second), Reopen(20*time.Second)))
			w.at(10*time.Second + time.Millisecond)
			w.granted(1)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, 12*time.Second)))
			w.at(12 * time.Second)
			w.available(3) // those of 10 s, 11 s and 12 s
		})
	})

	t.Run("lifted", func(t *testing.T) {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			w.granted(10)
			w.at(100 * time.Millisecond)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Hour), Reopen(time.Minute)))
			w.at(200 * time.Millisecond)
			ok, err := w.l.LiftCoolDown(w.ctx)
			require.NoError(t, err)
			require.True(t, ok)
			w.rejected(1, 800*time.Millisecond) // all at once would be 20 in 200 ms
			w.at(time.Second)
			w.granted(10)
			ok, err = w.l.LiftCoolDown(w.ctx)
			require.NoError(t, err)
			require.False(t, ok)
		})
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Hour)))
			done := make(chan error)
			go func() { done <- w.l.Acquire(w.ctx, 10) }()
			w.at(5 * time.Second)
			_, err := w.l.LiftCoolDown(w.ctx)
			require.NoError(t, err)
			require.NoError(t, <-done)
			require.Equal(t, 5*time.Second, w.elapsed(), "waiters ask at once")
		})
	})

	t.Run("what peers do to it", func(t *testing.T) {
		for name, harm := range map[string]func(w *world){
			"release":                      func(w *world) { require.NoError(w.t, w.l.Release(w.ctx, 10)) },
			"SetRate":                      func(w *world) { require.NoError(w.t, w.l.SetRate(w.ctx, overall(30, 2*time.Second))) },
			"SetRate that keeps the state": func(w *world) { require.NoError(w.t, w.l.SetRate(w.ctx, overall(30, time.Second), KeepState())) },
			"SetRate to less":              func(w *world) { require.NoError(w.t, w.l.SetRate(w.ctx, overall(3, time.Second), KeepState())) },
			"Redisson's setRate":           func(w *world) { w.rdb.Del(w.ctx, w.valueKey(), w.permitsKey()) },
			"Redisson's release":           func(w *world) { w.rdb.IncrBy(w.ctx, w.valueKey(), 3) },
			"value evicted":                func(w *world) { w.rdb.Del(w.ctx, w.valueKey()) },
			"permits evicted":              func(w *world) { w.rdb.Del(w.ctx, w.permitsKey()) },
			"another type": func(w *world) {
				require.NoError(w.t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 7, Interval: time.Second}))
			},
		} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
					w.granted(5)
					require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute)))
					w.at(2 * time.Second)
					harm(w)
					rate, err := w.l.Rate(w.ctx)
					require.NoError(t, err)
					for at := 2 * time.Second; at < time.Minute; at += 5 * time.Second {
						w.at(at)
						w.rejected(1, time.Minute-at)
						w.available(0)
						require.LessOrEqual(t, w.rdb.Get(w.ctx, w.l.redis.Keys.Value[rate.Type]).Val(), "0", "Redisson is rejected too")
					}
					w.at(time.Minute)
					w.granted(rate.Permits)
					w.at(time.Minute + rate.Interval)
					w.granted(rate.Permits)
				})
			})
		}
	})

	t.Run("a set too large for one call", func(t *testing.T) {
		inWorld(t, overall(4000, time.Second), func(t *testing.T, w *world) {
			w.fill(0, 1000)
			w.setValue(3000)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute)))
			_, members := w.used()
			require.Equal(t, 2, members, "what was free, and what was in use")
			w.rejected(1, time.Minute)
			w.at(time.Minute)
			w.granted(4000)
		})
	})

	t.Run("it outlives the limiter's TTL", func(t *testing.T) {
		inWorld(t, Rate{Permits: 10, Interval: time.Second, KeepAlive: 2 * time.Second}, func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute)))
			w.rejected(1, time.Minute)
			ttl, err := w.l.TTL(w.ctx)
			require.NoError(t, err)
			require.InDelta(t, time.Minute+time.Second, ttl, float64(50*time.Millisecond))
		})
	})

	t.Run("it outlives the keep-alive of a new rate", func(t *testing.T) {
		short := Rate{Permits: 10, Interval: 200 * time.Millisecond, KeepAlive: 200 * time.Millisecond}
		for name, set := range map[string]func(l *RateLimiter, ctx context.Context) error{
			"SetRate":    func(l *RateLimiter, ctx context.Context) error { return l.SetRate(ctx, short) },
			"KeepState":  func(l *RateLimiter, ctx context.Context) error { return l.SetRate(ctx, short, KeepState()) },
			"UpdateRate": func(l *RateLimiter, ctx context.Context) error { _, err := l.UpdateRate(ctx, short); return err },
		} {
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute)))
				require.NoError(t, set(w.l, w.ctx), name)
				for _, key := range keysOf(w.l, Overall) {
					require.InDelta(t, time.Minute+200*time.Millisecond, w.rdb.PTTL(w.ctx, key).Val(), float64(50*time.Millisecond), name)
				}
				w.at(time.Second)
				w.rejected(1, 59*time.Second)
			})
		}
	})

	t.Run("per client", func(t *testing.T) {
		inWorld(t, Rate{Type: PerClient, Permits: 10, Interval: time.Second}, func(t *testing.T, w *world) {
			other := newWorld(t, w.rdb)
			defer other.client.Close()
			other.l = other.client.RateLimiter(w.l.Name())
			other.granted(1)
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute)))
			w.rejected(1, time.Minute)
			other.rejected(1, time.Minute)
			w.at(time.Minute)
			w.granted(10)
			other.granted(10)
		})
	})

	t.Run("members of the 20-byte format", func(t *testing.T) {
		inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute), Reopen(time.Minute)))
			used, members := w.used()
			require.EqualValues(t, 100, used)
			require.Equal(t, 64, members)
			for _, m := range w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val() {
				parsed, err := wire.ParseMember([]byte(m))
				require.NoError(t, err)
				require.Equal(t, wire.FormatLc0I, parsed.Format)
			}
			w.rdb.Del(w.ctx, w.valueKey(), w.permitsKey())
			w.rejected(1, time.Minute)
			require.Len(t, w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val()[0], 20)
			w.at(time.Minute)
			w.granted(100)
		}, WithMemberFormat(wire.FormatLc0I))
	})

	t.Run("bad input", func(t *testing.T) {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, time.Minute)), ErrNotInitialized)
			_, err := w.l.CoolDownUntil(w.ctx)
			require.ErrorIs(t, err, ErrNotInitialized)
			_, err = w.l.LiftCoolDown(w.ctx)
			require.ErrorIs(t, err, ErrNotInitialized)
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, 1000*24*time.Hour)), ErrInvalidArgument)
			require.ErrorIs(t, w.l.CoolDown(w.ctx, time.Unix(math.MaxInt64, 0)), ErrInvalidArgument, "which is before now, for time.Time")
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, time.Minute), Reopen(-1)), ErrInvalidArgument)
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, time.Minute), Reopen(time.Microsecond)), ErrInvalidArgument)
			require.False(t, w.rdb.Exists(w.ctx, w.l.redis.Keys.Hash).Val() > 0, "nothing was written")
		})
	})
}

// In any order of operations nothing is granted during a cool-down, and no window around it holds more than the
// rate.
func TestCoolDownIsSafe(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		check(t, func(rt *rapid.T) {
			l := w.client.RateLimiter(w.l.Name() + "#" + rapid.StringMatching(`[a-z]{8}`).Draw(rt, "name"))
			rate := overall(rapid.Int64Range(1, 30).Draw(rt, "rate"), time.Duration(rapid.IntRange(1, 2000).Draw(rt, "interval"))*time.Millisecond)
			require.NoError(rt, l.SetRate(w.ctx, rate))
			var until time.Duration
			var grants []modelGrant
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"try", "try", "try", "try", "sleep", "sleep", "cool", "lift"}).Draw(rt, "do") {
				case "try":
					n := rapid.Int64Range(1, rate.Permits).Draw(rt, "permits")
					r, err := l.Allow(w.ctx, n)
					require.NoError(rt, err)
					if r.Granted {
						require.GreaterOrEqual(rt, w.elapsed(), until, "granted during a cool-down")
						grants = append(grants, modelGrant{w.elapsed(), n})
					} else if until > w.elapsed() {
						require.Equal(rt, until-w.elapsed(), r.Wait)
					}
				case "sleep":
					time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
				case "cool":
					d := w.elapsed() + time.Duration(rapid.IntRange(1, 5000).Draw(rt, "for"))*time.Millisecond
					reopen := time.Duration(rapid.IntRange(0, 1).Draw(rt, "reopens")*rapid.IntRange(0, 5000).Draw(rt, "over")) * time.Millisecond
					require.NoError(rt, l.CoolDown(w.ctx, w.epoch.Add(d), Reopen(reopen)))
					until = max(until, d)
				case "lift":
					_, err := l.LiftCoolDown(w.ctx)
					require.NoError(rt, err)
					until = 0
				}
			}
			for i, last := range grants {
				used := int64(0)
				for _, g := range grants[:i+1] {
					if g.at > last.at-rate.Interval {
						used += g.permits
					}
				}
				require.LessOrEqual(rt, used, rate.Permits, "in the window that ends at %v: %v of %v", last.at, grants, rate)
			}
			// The whole rate is free again after the longest cool-down that can be left.
			time.Sleep(max(0, until-w.elapsed()) + 5*time.Second + rate.Interval)
			r, err := l.Allow(w.ctx, rate.Permits)
			require.NoError(rt, err)
			require.True(rt, r.Granted, "%+v", r)
			_, err = l.Delete(w.ctx)
			require.NoError(rt, err)
		})
	})
}

// Blocks are not grants, so a release of more than was granted ends.
func TestReleaseWhileReopening(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(2*time.Second), Reopen(10*time.Second)))
		w.at(2100 * time.Millisecond)
		w.granted(1)
		n := count(w.rdb)
		require.NoError(t, w.l.Release(w.ctx, 3))
		require.LessOrEqual(t, n.sent.Load(), int64(4))
		w.granted(1)
		w.rejected(1, 900*time.Millisecond)
	})
}

// What a peer is granted between its own setRate and our next call does not come back a second time.
func TestPeersGrantDuringACoolDown(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Minute)))
		w.rdb.Del(w.ctx, w.valueKey(), w.permitsKey()) // Redisson's setRate
		w.setValue(9)                                  // and a grant of Redisson's
		w.put(0, grant(1))
		w.rejected(1, time.Minute) // a call of ours
		// An interval later Redisson reclaims what has expired, which must be nothing.
		n := w.rdb.ZCount(w.ctx, w.permitsKey(), "-inf", "("+strconv.FormatInt(w.epoch.Add(time.Minute-time.Second).UnixMilli(), 10)).Val()
		require.Zero(t, n, "members that expire before the end")
		w.at(time.Minute)
		w.granted(10)
		w.rejected(1, time.Second)
	})
}

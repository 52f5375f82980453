// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// livesFor checks a TTL that was set to d since began, by the clock of Redis, which goes on while a machine stalls.
func (w *world) livesFor(d time.Duration, began time.Time, ttl time.Duration, msg ...any) {
	w.t.Helper()
	const slack = 50 * time.Millisecond
	require.LessOrEqual(w.t, ttl, d+slack, msg...)
	require.GreaterOrEqual(w.t, ttl, d-w.rdb.Time(w.ctx).Val().Sub(began)-slack, msg...)
}

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
			at := must(w.l.Admin().CoolDownUntil(w.ctx))(t)
			require.True(t, at.Equal(until(w, time.Minute)), at)
			require.NoError(t, w.l.Acquire(w.ctx, 10))
			require.Equal(t, time.Minute, w.elapsed(), "the whole rate, at the instant at which it ends")
			require.Zero(t, must(w.l.Admin().CoolDownUntil(w.ctx))(t))
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

	t.Run("lifted", func(t *testing.T) {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Hour)))
			done := make(chan error)
			go func() { done <- w.l.Acquire(w.ctx, 10) }()
			w.at(5 * time.Second)
			require.True(t, must(w.l.Admin().LiftCoolDown(w.ctx))(t))
			require.NoError(t, <-done)
			require.Equal(t, 5*time.Second, w.elapsed(), "waiters ask at once")
			require.False(t, must(w.l.Admin().LiftCoolDown(w.ctx))(t))
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
					rate := must(w.l.Rate(w.ctx))(t)
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

	t.Run("it outlives every keep-alive", func(t *testing.T) {
		short := Rate{Permits: 10, Interval: 200 * time.Millisecond, KeepAlive: 200 * time.Millisecond}
		for name, then := range map[string]func(w *world) error{
			"nothing":    func(w *world) error { return nil },
			"SetRate":    func(w *world) error { return w.l.SetRate(w.ctx, short) },
			"KeepState":  func(w *world) error { return w.l.SetRate(w.ctx, short, KeepState()) },
			"UpdateRate": func(w *world) error { _, err := w.l.UpdateRate(w.ctx, short); return err },
		} {
			inWorld(t, short, func(t *testing.T, w *world) {
				began := w.rdb.Time(w.ctx).Val()
				require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute)))
				require.NoError(t, then(w), name)
				for _, key := range keysOf(w.l, Overall) {
					w.livesFor(time.Minute+200*time.Millisecond, began, w.rdb.PTTL(w.ctx, key).Val(), name)
				}
				w.at(time.Second)
				w.rejected(1, 59*time.Second)
			})
		}
	})

	t.Run("members of the 20-byte format", func(t *testing.T) {
		inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
			require.NoError(t, w.l.CoolDown(w.ctx, until(w, time.Minute), Reopen(time.Minute)))
			_, members := w.used()
			require.Equal(t, 64, members)
			for _, m := range w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val() {
				require.Equal(t, wire.FormatLc0I, must(wire.ParseMember([]byte(m)))(t).Format)
			}
		}, WithRedisson316())
	})

	t.Run("bad input", func(t *testing.T) {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, time.Minute)), ErrNotInitialized)
			_, err := w.l.Admin().CoolDownUntil(w.ctx)
			require.ErrorIs(t, err, ErrNotInitialized)
			_, err = w.l.Admin().LiftCoolDown(w.ctx)
			require.ErrorIs(t, err, ErrNotInitialized)
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, 1000*24*time.Hour)), ErrInvalidArgument)
			require.ErrorIs(t, w.l.CoolDown(w.ctx, time.Unix(math.MaxInt64, 0)), ErrInvalidArgument, "which is before now, for time.Time")
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, time.Minute), Reopen(-1)), ErrInvalidArgument)
			require.ErrorIs(t, w.l.CoolDown(w.ctx, until(w, time.Minute), Reopen(time.Microsecond)), ErrInvalidArgument)
			require.False(t, w.rdb.Exists(w.ctx, w.l.redis.Keys.Hash).Val() > 0, "nothing was written")
		})
	})
}

// TestCoolDownThatIsNoInstant checks what the operations make of a coolDown and a reopenUntil that no cool-down
// writes: a number beyond 2^53 is an instant far ahead, whatever is no number is none, and no script fails on them,
// least of all after it has written something.
func TestCoolDownThatIsNoInstant(t *testing.T) {
	for _, field := range []string{"coolDown", "reopenUntil"} {
		for v, far := range map[string]bool{"9007199254740994": true, "99999999999999999999": true, "1e400": true, "inf": true,
			"-inf": false, "nan": false, "-5": false, "abc": false, "": false} {
			if redistest.TTLsAreVirtual() && (strings.ContainsAny(v, "en") || len(v) > 18) {
				continue // the Lua of miniredis does not parse these
			}
			far = far && field == "coolDown"
			for _, typ := range []RateType{Overall, PerClient} {
				rate := Rate{Type: typ, Permits: 3, Interval: time.Second, KeepAlive: time.Minute}
				inWorld(t, rate, func(t *testing.T, w *world) {
					why := fmt.Sprintf("%s is %q, %v", field, v, typ)
					until := time.Time{}
					for i, call := range []func() error{
						func() error {
							r, err := w.l.Allow(w.ctx, 1)
							require.Equal(t, far, !r.Granted, why)
							require.Equal(t, far, r.Wait > 200*365*24*time.Hour, why)
							return err
						},
						func() error { return errOf(w.l.AvailablePermits(w.ctx)) },
						func() (err error) { until, err = w.l.Admin().CoolDownUntil(w.ctx); return err },
						func() error { return w.l.SetRate(w.ctx, rate) },
						func() error { return w.l.SetRate(w.ctx, rate, KeepState()) },
						func() error { return w.l.Release(w.ctx, 1) },
						func() error { return w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)) },
						func() error { return errOf(w.l.Admin().LiftCoolDown(w.ctx)) },
					} {
						require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, field, v).Err())
						require.NoError(t, call(), "%s: %d", why, i)
					}
					require.Equal(t, far, until.After(time.Now()), why)
					require.Equal(t, far, !until.IsZero(), why)
					w.granted(1)
				})
			}
		}
	}
}

// coolDownEnds are the ways in which a cool-down ends ahead of time.
var coolDownEnds = map[string]func(w *world, r Rate){
	"lifted": func(w *world, r Rate) {
		require.True(w.t, must(w.l.Admin().LiftCoolDown(w.ctx))(w.t))
	},
	"deleted and set": func(w *world, r Rate) {
		must(w.l.Admin().Delete(w.ctx))(w.t)
		require.NoError(w.t, w.l.SetRate(w.ctx, r))
	},
	"expired and set": func(w *world, r Rate) {
		require.NoError(w.t, w.rdb.Del(w.ctx, w.l.redis.Keys.Hash).Err())
		require.True(w.t, must(w.l.TrySetRate(w.ctx, r))(w.t))
	},
	"of another type meanwhile": func(w *world, r Rate) {
		require.NoError(w.t, w.l.SetRate(w.ctx, overall(3, r.Interval)))
		must(w.l.Admin().LiftCoolDown(w.ctx))(w.t)
		require.NoError(w.t, w.l.SetRate(w.ctx, r))
	},
}

// TestCoolDownEndsForAll checks that another client of a PER_CLIENT limiter, whose permits nobody else can
// name, has them back at once, and that its grants within the interval still count.
func TestCoolDownEndsForAll(t *testing.T) {
	for name, end := range coolDownEnds {
		for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
			for _, interval := range []time.Duration{time.Second, 31 * 24 * time.Hour} {
				t.Run(fmt.Sprint(name, "/", format, "/", interval), func(t *testing.T) {
					r := Rate{Type: PerClient, Permits: 10, Interval: interval}
					inWorld(t, r, func(t *testing.T, w *world) {
						other := w.another(inFormat(format))
						other.granted(2)
						w.at(interval / 10)
						other.granted(1)
						w.granted(4)
						until := w.elapsed() + time.Hour
						require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)))
						w.at(w.elapsed() + min(interval/10, time.Minute))
						other.rejected(1, until-w.elapsed())
						other.available(0)
						now := w.elapsed()
						end(w, r)
						other.available(7)
						other.granted(7)
						other.rejected(1, interval-now)
						w.at(interval)
						other.granted(2)
						other.rejected(1, interval/10)
						w.at(interval + interval/10)
						other.granted(1)
						other.settled(10)
					}, inFormat(format))
				})
			}
		}
	}
}

// TestLiftOfALargeSet checks when the permits of a set are back that is too large to be read in one call: to the millisecond if
// only few of them expire before the cool-down ends, and otherwise at most a 128th of an interval late, and never early.
func TestLiftOfALargeSet(t *testing.T) {
	const interval = 1280 * time.Second
	for name, c := range map[string]struct {
		lasts time.Duration
		late  int64
	}{"few of them end before": {interval / 10, 0}, "all of them end before": {366 * 24 * time.Hour, 4000 / 128}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(5000, interval), func(t *testing.T, w *world) {
				for i := range 4000 {
					w.put(time.Duration(i)*interval/4000+time.Millisecond, grant(1))
				}
				w.setValue(1000)
				w.at(interval)
				require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(c.lasts)))
				w.at(interval + time.Millisecond)
				require.True(t, must(w.l.Admin().LiftCoolDown(w.ctx))(t))
				for at := interval + 2*time.Millisecond; at < 2*interval; at += 7 * time.Second {
					w.at(at)
					back := int64((at - interval - time.Millisecond) * 4000 / interval)
					n := must(w.l.AvailablePermits(w.ctx))(t)
					require.LessOrEqual(t, n, 1000+back+1, "too early, at %v", at)
					require.GreaterOrEqual(t, n, 1000+back-c.late-1, "too late, at %v", at)
				}
				w.at(2*interval + time.Millisecond)
				w.granted(5000)
				w.settled(5000)
			})
		})
	}
}

// A caller that waits in another process asks again within its recheck.
func TestLiftWakesOtherProcesses(t *testing.T) {
	inWorld(t, Rate{Type: PerClient, Permits: 10, Interval: time.Second}, func(t *testing.T, w *world) {
		other := w.another()
		require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Hour)))
		done := make(chan error)
		go func() { done <- other.l.Acquire(w.ctx, 10) }()
		w.at(10*time.Second + 500*time.Millisecond)
		must(w.l.Admin().LiftCoolDown(w.ctx))(t)
		require.NoError(t, <-done)
		require.Equal(t, 11*time.Second, w.elapsed())
	})
}

// The rate may change during a cool-down, whose end is the same for all.
func TestRateChangesDuringACoolDown(t *testing.T) {
	for name, to := range map[string]Rate{
		"more":    {Type: PerClient, Permits: 20, Interval: 10 * time.Second},
		"less":    {Type: PerClient, Permits: 5, Interval: 10 * time.Second},
		"longer":  {Type: PerClient, Permits: 10, Interval: time.Minute},
		"shorter": {Type: PerClient, Permits: 10, Interval: time.Second},
	} {
		for _, lifted := range []bool{false, true} {
			for _, keep := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/lifted ", lifted, "/kept ", keep), func(t *testing.T) {
					inWorld(t, Rate{Type: PerClient, Permits: 10, Interval: 10 * time.Second}, func(t *testing.T, w *world) {
						other := w.another()
						other.granted(4)
						w.granted(4)
						w.at(time.Second)
						require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Hour)))
						other.rejected(1, time.Hour-time.Second)
						w.at(2 * time.Second)
						var opts []RateOption
						if keep {
							opts = append(opts, KeepState())
						}
						require.NoError(t, w.l.SetRate(w.ctx, to, opts...))
						other.rejected(1, time.Hour-2*time.Second)
						w.rejected(1, time.Hour-2*time.Second)
						if !lifted {
							w.at(time.Hour)
							other.granted(to.Permits)
							other.settled(to.Permits)
							w.granted(to.Permits)
							w.settled(to.Permits)
							return
						}
						must(w.l.Admin().LiftCoolDown(w.ctx))(t)
						free := to.Permits - 4
						if to.Interval == time.Second {
							free = to.Permits // the others have expired by the new rate
						}
						other.granted(free)
						other.rejected(1, min(to.Interval, max(time.Second, to.Interval-2*time.Second)))
						if !keep {
							free = to.Permits
						}
						w.granted(free)
					})
				})
			}
		}
	}
}

// TestRateOfAnotherInACoolDown checks that a client which is rejected in a cool-down after another one has set a PER_CLIENT rate has what
// that leaves it when the cool-down is over.
func TestRateOfAnotherInACoolDown(t *testing.T) {
	for _, to := range []int64{10, 7, 5, 3} {
		for calls := range 4 {
			t.Run(fmt.Sprint(to, " after ", calls), func(t *testing.T) {
				inWorld(t, Rate{Type: PerClient, Permits: 5, Interval: 10 * time.Second}, func(t *testing.T, w *world) {
					other := w.another()
					other.granted(5)
					w.at(time.Second)
					require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(3*time.Second)))
					require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: to, Interval: 10 * time.Second}))
					for i := range calls {
						w.at(time.Second + time.Duration(i+1)*time.Millisecond)
						other.rejected(1, 2*time.Second-time.Duration(i+1)*time.Millisecond)
					}
					w.at(3 * time.Second)
					if to > 5 {
						other.granted(to - 5)
					}
					other.rejected(1, 7*time.Second)
					other.settled(to)
				})
			})
		}
	}
}

// TestLowerRateDuringACoolDown lowers the rate by less than what was free. The grants from before the cool-down stay, so
// that the window holds no more than the rate once it is lifted, or has been lost with the hash.
func TestLowerRateDuringACoolDown(t *testing.T) {
	for name, lost := range map[string]bool{"lifted": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				w.granted(3)
				require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Minute)))
				if lost {
					require.NoError(t, w.rdb.Del(w.ctx, w.l.Name()).Err())
				}
				require.NoError(t, w.l.SetRate(w.ctx, overall(6, time.Second), KeepState()))
				must(w.l.Admin().LiftCoolDown(w.ctx))(t)
				w.available(3)
				w.granted(3)
				w.rejected(1, time.Second)
			})
		})
	}
}

// TestHealDuringACoolDown lowers the rate behind the back of this package while a cool-down lasts, and heals. Once that
// is lifted, the permits that were in use before it are in use again.
func TestHealDuringACoolDown(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		for _, reopen := range []time.Duration{0, 5 * time.Second} {
			inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
				w.granted(1)
				w.at(time.Second)
				w.granted(3)
				require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Hour), Reopen(reopen)))
				require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "rate", 5).Err())
				require.NoError(t, w.l.Admin().Heal(w.ctx))
				w.settled(5)
				w.rejected(1, time.Hour-time.Second)
				must(w.l.Admin().LiftCoolDown(w.ctx))(t)
				w.granted(1)
				w.rejected(1, 59*time.Second)
			}, inFormat(format))
		}
	}
}

// TestCoolDownModel begins, ends and lifts cool-downs, by two clients and in both formats. While one is in
// force nothing is granted. Otherwise the permits of each client are those of the exact log of its grants,
// whatever happened before. Only a re-opening gives less, until it is over or lifted.
func TestCoolDownModel(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		late := time.Duration(0)
		if format == wire.FormatLc0I {
			late = time.Millisecond // of a grant in more than 32 steps of a re-opening
		}
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			rounds := 0
			round := func(rt *rapid.T) {
				rounds++
				a, b := w.another(inFormat(format)), w.another(inFormat(format))
				defer a.client.Close()
				defer b.client.Close()
				worlds := []*world{a, b}
				interval := rapid.SampledFrom([]time.Duration{10 * time.Millisecond, time.Second, time.Minute, 31 * 24 * time.Hour}).Draw(rt, "interval")
				rate := Rate{Type: PerClient, Permits: rapid.Int64Range(1, 100).Draw(rt, "rate"), Interval: interval}
				name := fmt.Sprint(w.l.Name(), "#", rapid.StringMatching(`[a-z]{8}`).Draw(rt, "name"), rounds) // so that a failed round leaves nothing to the next
				models := []*model{{rate: rate.Permits, interval: interval}, {rate: rate.Permits, interval: interval}}
				for _, w := range worlds {
					w.l = w.client.RateLimiter(name)
				}
				require.NoError(rt, a.l.SetRate(w.ctx, rate))
				var until, reopened time.Duration
				for range rapid.IntRange(1, 60).Draw(rt, "steps") {
					i := rapid.IntRange(0, 1).Draw(rt, "client")
					w, m := worlds[i], models[i]
					now := w.elapsed()
					switch rapid.SampledFrom([]string{"try", "try", "try", "sleep", "sleep", "cool", "lift", "delete"}).Draw(rt, "do") {
					case "try":
						n := rapid.Int64Range(1, rate.Permits).Draw(rt, "permits")
						left := must(w.l.AvailablePermits(w.ctx))(rt)
						r := must(w.l.Allow(w.ctx, n))(rt)
						switch {
						case now < until:
							require.False(rt, r.Granted)
							require.Zero(rt, left)
							require.Equal(rt, until-now, r.Wait)
							require.Zero(rt, r.Available)
							continue
						case now < reopened:
							require.LessOrEqual(rt, left, m.available(now))
							require.True(rt, !r.Granted || m.acquire(now, n), "too early")
						default:
							require.LessOrEqual(rt, left, m.available(now), "left of %v", m.grants)
							require.GreaterOrEqual(rt, left, m.available(now-late), "left of %v", m.grants)
							if r.Granted { // a call that is granted looks no further
								require.True(rt, m.acquire(now, n), "too early")
								require.LessOrEqual(rt, r.Available, m.available(now))
							} else if m.available(now) >= n {
								require.LessOrEqual(rt, r.Wait, late, "%+v", r)
							} else {
								require.GreaterOrEqual(rt, r.Wait, m.wait(now, n))
								require.LessOrEqual(rt, r.Wait, m.wait(now, n)+late)
								require.GreaterOrEqual(rt, r.Available, m.available(now-late))
							}
						}
					case "sleep":
						time.Sleep(time.Duration(rapid.Int64Range(0, int64(interval/time.Millisecond)).Draw(rt, "ms")) * time.Millisecond)
					case "cool":
						d := now + time.Duration(rapid.Int64Range(1, 2*int64(interval/time.Millisecond)).Draw(rt, "for"))*time.Millisecond
						over := time.Duration(rapid.Int64Range(0, 1).Draw(rt, "reopens")*rapid.Int64Range(0, int64(interval/time.Millisecond)).Draw(rt, "over")) * time.Millisecond
						require.NoError(rt, w.l.CoolDown(w.ctx, w.epoch.Add(d), Reopen(over)))
						if d >= until {
							until, reopened = d, max(reopened, d+over)
						}
					case "lift":
						must(w.l.Admin().LiftCoolDown(w.ctx))(rt)
						until, reopened = 0, 0
					case "delete":
						must(w.l.Admin().Delete(w.ctx))(rt)
						require.NoError(rt, w.l.SetRate(w.ctx, rate))
						m.grants, until, reopened = nil, 0, 0
					}
				}
				for _, w := range worlds {
					must(w.l.Admin().Delete(w.ctx))(rt)
				}
			}
			proptest.Until(t, func() bool { return rounds >= 300 }, round) // rapid stops after some hours, which pass here
		})
	}
}

// closedToRedisson checks that value and the members add up to the rate, and that in a cool-down nothing is left, nothing
// expires before its end, and no block after that of its re-opening. That is all that Redisson goes by.
func (w *world) closedToRedisson(t require.TestingT) {
	hash := w.rdb.HGetAll(w.ctx, w.l.redis.Keys.Hash).Val()
	field := func(name string) int64 {
		n, _ := strconv.ParseInt(hash[name], 10, 64)
		return n
	}
	value, err := w.rdb.Get(w.ctx, w.valueKey()).Int64()
	if err != nil {
		require.LessOrEqual(t, field("coolDown"), time.Now().UnixMilli(), "no value in a cool-down")
		return
	}
	till, used := field("coolDown"), int64(0)
	cools := till > time.Now().UnixMilli()
	for _, z := range w.rdb.ZRangeWithScores(w.ctx, w.permitsKey(), 0, -1).Val() {
		raw := z.Member.(string)
		m := must(wire.ParseMember([]byte(raw)))(t)
		used += int64(m.Permits)
		expires := int64(z.Score) + field("interval")
		require.False(t, cools && expires < till, "%d permits expire %d ms before the end", m.Permits, till-expires)
		late := expires - max(till, field("reopenUntil"))
		require.False(t, cools && strings.Contains(raw[1:10], "~c") && late > 0, "%d permits of a block expire %d ms after the end", m.Permits, late)
	}
	require.False(t, cools && value > 0, "%d are left", value)
	require.Equal(t, field("rate"), value+used, "value %d and %d in use", value, used)
}

// TestCoolDownAndWhatIsGivenBack settles, cancels and releases grants, begins reservations and gives them back, and changes the
// rate, in every order with cool-downs that begin, grow, re-open and are lifted. Whatever is given back in a cool-down is free
// when it ends, for Redisson as well, and no sooner. No permit is lost, and none comes back twice.
func TestCoolDownAndWhatIsGivenBack(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	for _, typ := range []RateType{Overall, PerClient} {
		for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
			t.Run(fmt.Sprint(typ, format), func(t *testing.T) {
				inWorld(t, Rate{}, func(t *testing.T, w *world) {
					rounds := 0
					round := func(rt *rapid.T) {
						rounds++
						w := w.another(inFormat(format))
						defer w.client.Close()
						intervals := []time.Duration{400 * time.Millisecond, time.Second, 3 * time.Second}
						rate := Rate{Type: typ, Permits: rapid.Int64Range(2, 12).Draw(rt, "rate"), Interval: rapid.SampledFrom(intervals).Draw(rt, "interval")}
						w.l = w.client.RateLimiter(fmt.Sprint(w.l.Name(), "#", rapid.StringMatching(`[a-z]{8}`).Draw(rt, "name"), rounds))
						require.NoError(rt, w.l.SetRate(w.ctx, rate))
						var (
							grants   []*Grant
							log      model // of a rate that does not change
							same     = true
							reserved = permit.Reservation{Type: permit.Type(typ)}
						)
						log.rate, log.interval = rate.Permits, rate.Interval
						reserve := func(want int64) {
							if want > 0 && reserved.Held == 0 {
								reserved.ID = w.client.redis.NewID()
							}
							reserved.Want, reserved.Ahead = want, want > 0
							a, err := w.l.redis.Reserve(w.ctx, reserved)
							if !errors.Is(err, ErrPermitsExceedRate) {
								require.NoError(rt, err)
								reserved.Held = a.Held
							}
						}
						for range rapid.IntRange(1, 40).Draw(rt, "steps") {
							switch rapid.SampledFrom([]string{"acquire", "acquire", "settle", "settle", "cool", "cool", "lift", "sleep", "sleep", "reserve", "leave", "release", "rate"}).Draw(rt, "do") {
							case "acquire":
								n := rapid.Int64Range(1, rate.Permits).Draw(rt, "permits")
								g, ok, err := w.l.TryAcquireGrant(w.ctx, n, 0)
								require.NoError(rt, err)
								if until := must(w.l.Admin().CoolDownUntil(w.ctx))(rt); ok {
									require.Zero(rt, until, "granted in a cool-down")
									grants = append(grants, g)
									if same && reserved.ID == (permit.ID{}) {
										require.True(rt, log.acquire(w.elapsed(), n), "too early: %v", log.grants)
									}
								}
							case "settle":
								if len(grants) > 0 {
									i := rapid.IntRange(0, len(grants)-1).Draw(rt, "grant")
									require.NoError(rt, grants[i].Settle(w.ctx, rapid.Int64Range(0, grants[i].Permits()).Draw(rt, "actual")))
									grants, same = slices.Delete(grants, i, i+1), false
								}
							case "cool":
								d := time.Duration(rapid.Int64Range(1, 2*rate.Interval.Milliseconds()).Draw(rt, "for")) * time.Millisecond
								over := time.Duration(rapid.Int64Range(0, 1).Draw(rt, "reopens")*rapid.Int64Range(1, rate.Interval.Milliseconds()).Draw(rt, "over")) * time.Millisecond
								require.NoError(rt, w.l.CoolDown(w.ctx, time.Now().Add(d), Reopen(over)))
							case "lift":
								must(w.l.Admin().LiftCoolDown(w.ctx))(rt)
							case "sleep":
								time.Sleep(time.Duration(rapid.Int64Range(0, rate.Interval.Milliseconds()).Draw(rt, "ms")) * time.Millisecond)
							case "reserve":
								reserve(rate.Permits)
							case "leave":
								reserve(0)
							case "release":
								require.NoError(rt, w.l.Release(w.ctx, 1))
								same = false
							case "rate":
								if rapid.Bool().Draw(rt, "another") {
									rate.Permits = rapid.Int64Range(2, 12).Draw(rt, "rate")
								}
								rate.Interval = rapid.SampledFrom(intervals).Draw(rt, "interval")
								var opts []RateOption
								if rapid.IntRange(0, 3).Draw(rt, "keeps") > 0 {
									opts = append(opts, KeepState())
								}
								require.NoError(rt, w.l.SetRate(w.ctx, rate, opts...))
								same = false
							}
							w.closedToRedisson(rt)
							if until := must(w.l.Admin().CoolDownUntil(w.ctx))(rt); !until.IsZero() {
								require.Zero(rt, must(w.l.AvailablePermits(w.ctx))(rt))
							}
						}
						reserve(0)
						if until := must(w.l.Admin().CoolDownUntil(w.ctx))(rt); !until.IsZero() {
							time.Sleep(time.Until(until) - time.Millisecond)
							w.closedToRedisson(rt)
							require.False(rt, w.try(1).Granted)
							w.closedToRedisson(rt)
							time.Sleep(time.Millisecond)
						}
						time.Sleep(2 * intervals[2])
						require.Equal(rt, rate.Permits, must(w.l.AvailablePermits(w.ctx))(rt))
						require.True(rt, w.try(rate.Permits).Granted)
						r := w.try(1)
						require.False(rt, r.Granted)
						require.Equal(rt, rate.Interval, r.Wait)
						w.settled(rate.Permits)
						must(w.l.Admin().Delete(w.ctx))(rt)
					}
					proptest.Until(t, func() bool { return rounds >= redistest.Cases(50, 500) }, round)
				})
			})
		}
	}
}

// TestIntervalInACoolDown checks that what is in use when a cool-down begins counts for one interval of the rate that is in force, whichever
// came between, and whether the cool-down is lifted or not.
func TestIntervalInACoolDown(t *testing.T) {
	for _, intervals := range [][]int{{104}, {1200}, {30}, {104, 60}, {1200, 60}, {30, 60}, {30, 104}, {104, 30}, {61, 1200, 61}} {
		for _, coolDown := range []int{60, 70} {
			for lifted := -1; lifted <= len(intervals); lifted++ { // before which of them, or not at all
				t.Run(fmt.Sprintf("%v, %d s, lifted %d", intervals, coolDown, lifted), func(t *testing.T) {
					inWorld(t, overall(100, time.Minute), func(t *testing.T, w *world) {
						lift := func(i int) {
							if i == lifted {
								require.True(t, must(w.l.Admin().LiftCoolDown(w.ctx))(t))
							}
						}
						w.granted(90)
						w.at(time.Second)
						require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Duration(coolDown)*time.Second)))
						free := 0
						for i, s := range intervals {
							lift(i)
							w.at(time.Duration(i+2) * time.Second)
							require.NoError(t, w.l.SetRate(w.ctx, overall(100, time.Duration(s)*time.Second), KeepState()))
							free = s
						}
						lift(len(intervals))
						if lifted < 0 {
							free = max(free, coolDown)
							if coolDown > intervals[len(intervals)-1] {
								w.at(time.Duration(coolDown)*time.Second - time.Millisecond)
								w.rejected(1, time.Millisecond)
							}
						}
						w.at(time.Duration(free)*time.Second - time.Millisecond)
						w.rejected(100, time.Millisecond)
						w.at(time.Duration(free) * time.Second)
						w.granted(100)
					})
				})
			}
		}
	}
}

package ratelimiter

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
)

// another returns the same limiter in another process, with an id of its own.
func (w *world) another(opts ...Option) *world {
	w.t.Helper()
	peer := newWorld(w.t, redistest.Peer(w.t, w.rdb), opts...)
	peer.l, peer.epoch = peer.client.RateLimiter(w.l.Name()), w.epoch
	return peer
}

// coolDownEnds are the ways in which a cool-down ends ahead of time.
var coolDownEnds = map[string]func(w *world, r Rate){
	"lifted": func(w *world, r Rate) {
		ok, err := w.l.LiftCoolDown(w.ctx)
		require.NoError(w.t, err)
		require.True(w.t, ok)
	},
	"deleted and set": func(w *world, r Rate) {
		_, err := w.l.Delete(w.ctx)
		require.NoError(w.t, err)
		require.NoError(w.t, w.l.SetRate(w.ctx, r))
	},
	"expired and set": func(w *world, r Rate) {
		require.NoError(w.t, w.rdb.Del(w.ctx, w.l.redis.Keys.Hash).Err())
		ok, err := w.l.TrySetRate(w.ctx, r)
		require.NoError(w.t, err)
		require.True(w.t, ok)
	},
	"of another type meanwhile": func(w *world, r Rate) {
		require.NoError(w.t, w.l.SetRate(w.ctx, overall(3, r.Interval)))
		_, err := w.l.LiftCoolDown(w.ctx)
		require.NoError(w.t, err)
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
						other := w.another(WithMemberFormat(format))
						defer other.client.Close()
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
					}, WithMemberFormat(format))
				})
			}
		}
	}
}

// TestLiftOfALongInterval checks that what is left of a month's quota is free at once.
func TestLiftOfALongInterval(t *testing.T) {
	const day = 24 * time.Hour
	for _, members := range []int64{10, 500} { // of 500 more than one call reads, but no more than it moves
		inWorld(t, overall(12*members, 31*day), func(t *testing.T, w *world) {
			for i := range 10 {
				w.at(time.Duration(i) * day)
				for j := range members {
					w.put(w.elapsed()+time.Duration(j)*time.Second, grant(1))
				}
			}
			w.setValue(2 * members)
			w.at(30 * day)
			require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(31*day+12*time.Hour)))
			w.rejected(1, 36*time.Hour)
			w.at(30*day + time.Hour)
			ok, err := w.l.LiftCoolDown(w.ctx)
			require.NoError(t, err)
			require.True(t, ok)
			w.available(2 * members)
			w.granted(2 * members)
			w.rejected(1, 23*time.Hour)
			w.at(31 * day)
			w.granted(1)
			w.rejected(1, time.Second)
			w.at(31*day + time.Duration(members)*time.Second)
			w.granted(members - 1)
			w.rejected(1, day-time.Duration(members)*time.Second)
		})
	}
}

// TestLiftOfALargeSet checks that grants which are too many to be moved one by one come back at most a 128th of
// an interval late, and never early.
func TestLiftOfALargeSet(t *testing.T) {
	const rate, interval = 5000, 1280 * time.Second
	inWorld(t, overall(rate, interval), func(t *testing.T, w *world) {
		w.at(interval)
		for i := range 4000 {
			w.put(time.Duration(i)*interval/4000+time.Millisecond, grant(1))
		}
		w.setValue(1000)
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(366*24*time.Hour)))
		w.at(interval + time.Millisecond)
		ok, err := w.l.LiftCoolDown(w.ctx)
		require.NoError(t, err)
		require.True(t, ok)
		for at := interval + 2*time.Millisecond; at < 2*interval; at += 7 * time.Second {
			w.at(at)
			back := int64((at - interval - time.Millisecond) * 4000 / interval)
			n, err := w.l.AvailablePermits(w.ctx)
			require.NoError(t, err)
			require.LessOrEqual(t, n, 1000+back+1, "too early, at %v", at)
			require.GreaterOrEqual(t, n, 1000+back-4000/128-1, "too late, at %v", at)
		}
		w.at(2*interval + time.Millisecond)
		w.granted(rate)
		w.settled(rate)
	})
}

// A caller that waits in another process asks again within its recheck.
func TestLiftWakesOtherProcesses(t *testing.T) {
	inWorld(t, Rate{Type: PerClient, Permits: 10, Interval: time.Second}, func(t *testing.T, w *world) {
		other := w.another()
		defer other.client.Close()
		require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Hour)))
		done := make(chan error)
		go func() { done <- other.l.Acquire(w.ctx, 10) }()
		w.at(10*time.Second + 500*time.Millisecond)
		_, err := w.l.LiftCoolDown(w.ctx)
		require.NoError(t, err)
		require.NoError(t, <-done)
		require.Equal(t, 11*time.Second, w.elapsed())
	})
}

// The remains of a cool-down that was lifted do not outlast the one that comes after it.
func TestCoolDownAfterALift(t *testing.T) {
	for _, reopen := range []time.Duration{0, 2 * time.Hour} {
		inWorld(t, Rate{Type: PerClient, Permits: 10, Interval: time.Second}, func(t *testing.T, w *world) {
			other := w.another()
			defer other.client.Close()
			require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Hour)))
			other.rejected(1, time.Hour)
			_, err := w.l.LiftCoolDown(w.ctx)
			require.NoError(t, err)
			require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Minute), Reopen(reopen)))
			other.rejected(1, time.Minute)
			w.at(time.Minute)
			other.available(10)
			other.granted(10)
			other.rejected(1, time.Second)
			other.settled(10)
			if reopen == 0 {
				w.granted(10)
			}
		})
	}
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
						defer other.client.Close()
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
						_, err := w.l.LiftCoolDown(w.ctx)
						require.NoError(t, err)
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

// TestRatesOfOneInstantDuringACoolDown raises the rate several times by the same number within a millisecond. What each
// rate has more is free when the cool-down is lifted.
func TestRatesOfOneInstantDuringACoolDown(t *testing.T) {
	for name, format := range map[string]wire.Format{"Bc0I": wire.FormatBc0I, "Lc0I": wire.FormatLc0I} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
				other := w.another(WithMemberFormat(format))
				defer other.client.Close()
				l := other.l
				require.NoError(t, l.CoolDown(w.ctx, w.epoch.Add(time.Minute)))
				require.NoError(t, l.SetRate(w.ctx, overall(1, time.Second)))
				for n := int64(2); n <= 5; n++ {
					require.NoError(t, l.SetRate(w.ctx, overall(n, time.Second), KeepState()))
				}
				used, _ := w.used()
				require.Equal(t, int64(5), w.value()+used)
				_, err := l.LiftCoolDown(w.ctx)
				require.NoError(t, err)
				w.granted(5)
			})
		})
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
				_, err := w.l.LiftCoolDown(w.ctx)
				require.NoError(t, err)
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
				require.NoError(t, w.l.Heal(w.ctx))
				w.settled(5)
				w.rejected(1, time.Hour-time.Second)
				_, err := w.l.LiftCoolDown(w.ctx)
				require.NoError(t, err)
				w.granted(1)
				w.rejected(1, 59*time.Second)
			}, WithMemberFormat(format))
		}
	}
}

// TestVoidBlocksAreLiftedTogether checks that a block which is no longer ahead of the clock is lifted with those that
// are: behind what these become, later calls would not find it.
func TestVoidBlocksAreLiftedTogether(t *testing.T) {
	rate := Rate{Type: PerClient, Permits: 10, Interval: time.Second}
	inWorld(t, rate, func(t *testing.T, w *world) {
		for i := range 8 {
			w.at(time.Duration(i) * time.Millisecond)
			w.granted(1)
		}
		w.at(50 * time.Millisecond)
		w.rejected(5, 952*time.Millisecond) // the next check is an interval later
		w.at(100 * time.Millisecond)
		require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(1098*time.Millisecond), Reopen(561*time.Millisecond)))
		other := w.another()
		defer other.client.Close()
		_, err := other.l.Delete(w.ctx)
		require.NoError(t, err)
		require.NoError(t, other.l.SetRate(w.ctx, rate))
		w.granted(1)
		w.granted(1)
		w.rejected(1, 900*time.Millisecond)
	})
}

// TestVoidBlocksBehindAGrant lifts what is left of a cool-down although the oldest grant alone tells the wait.
func TestVoidBlocksBehindAGrant(t *testing.T) {
	rate := Rate{Type: PerClient, Permits: 10, Interval: time.Second}
	inWorld(t, rate, func(t *testing.T, w *world) {
		w.at(500 * time.Millisecond)
		w.granted(1)
		w.at(600 * time.Millisecond)
		w.rejected(10, 900*time.Millisecond) // the next check is an interval later
		require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(1100*time.Millisecond), Reopen(time.Second)))
		other := w.another()
		defer other.client.Close()
		_, err := other.l.Delete(w.ctx)
		require.NoError(t, err)
		require.NoError(t, other.l.SetRate(w.ctx, rate))
		w.at(1480 * time.Millisecond)
		w.granted(5) // four blocks have expired, the grant comes next, and then five blocks
		w.granted(4)
		w.rejected(1, 20*time.Millisecond)
	})
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
				a, b := w.another(WithMemberFormat(format)), w.another(WithMemberFormat(format))
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
						left, err := w.l.AvailablePermits(w.ctx)
						require.NoError(rt, err)
						r, err := w.l.Allow(w.ctx, n)
						require.NoError(rt, err)
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
						_, err := w.l.LiftCoolDown(w.ctx)
						require.NoError(rt, err)
						until, reopened = 0, 0
					case "delete":
						_, err := w.l.Delete(w.ctx)
						require.NoError(rt, err)
						require.NoError(rt, w.l.SetRate(w.ctx, rate))
						m.grants, until, reopened = nil, 0, 0
					}
				}
				for _, w := range worlds {
					_, err := w.l.Delete(w.ctx)
					require.NoError(rt, err)
				}
			}
			for rounds < 300 { // rapid would stop after some hours, which pass here
				check(t, round)
			}
		})
	}
}

// Blocks written by earlier versions do not hold the instants of their grants; they hold all permits as of the
// instant at which they were made.
func TestBlocksOfTheFirstVersion(t *testing.T) {
	block := func(w *world, n uint32) []byte {
		b := binary.LittleEndian.AppendUint32([]byte("\x10~c~"), n)
		ms := binary.BigEndian.AppendUint64(nil, uint64(w.epoch.UnixMilli()))
		return binary.LittleEndian.AppendUint32(append(append(b, ms[2:]...), 0, 0, 0), n)
	}
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		until := w.epoch.Add(time.Hour)
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "coolDown", until.UnixMilli()).Err())
		w.put(time.Hour-time.Second, block(w, 10))
		w.setValue(0)
		w.at(500 * time.Millisecond)
		w.rejected(1, time.Hour-500*time.Millisecond)
		w.rdb.HDel(w.ctx, w.l.redis.Keys.Hash, "coolDown") // lifted by another client
		w.rejected(1, 500*time.Millisecond)
		w.at(time.Second)
		w.granted(10)
		w.settled(10)
	})
}

// A grant of a peer whose random bytes look like a block of the 20-byte format stays a grant.
func TestRandomBytesAreNoBlock(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		random := append([]byte("\x08\x00\x00\x00\x00\x00\x00\x00~c"), 0x01, 0x80, 1, 2, 3, 4)
		w.put(0, binary.LittleEndian.AppendUint32(random, 10))
		w.setValue(0)
		w.at(400 * time.Millisecond)
		w.rejected(1, 600*time.Millisecond)
		w.rejected(10, 600*time.Millisecond)
		w.at(time.Second)
		w.granted(10)
		for range 100_000 {
			require.NotEqual(t, byte('~'), redisson.RandomID()[0])
		}
	})
}

// TestPeersLiftIsLearnt checks that what an outage policy knows of a cool-down ends with the first reply that
// says so.
func TestPeersLiftIsLearnt(t *testing.T) {
	for name, learns := range map[string]func(w *world){
		"a grant":        func(w *world) { w.granted(1) },
		"a shorter wait": func(w *world) { w.rejected(10, time.Second) },
		"a list": func(w *world) {
			r, err := w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 10}, Demand{w.client.RateLimiter(w.l.Name() + "2"), 1})
			require.NoError(w.t, err)
			require.False(w.t, r.Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				peer := w.another()
				defer peer.client.Close()
				l := w.l.OnOutage(FailOpen())
				require.NoError(t, w.client.RateLimiter(w.l.Name()+"2").SetRate(w.ctx, overall(10, time.Second)))
				require.NoError(t, l.CoolDown(w.ctx, w.epoch.Add(time.Hour)))
				w.at(time.Second)
				w.rejected(1, time.Hour-time.Second)
				_, err := peer.l.LiftCoolDown(w.ctx)
				require.NoError(t, err)
				if name != "a grant" {
					peer.granted(1)
				}
				learns(w)
				goesAway(w, cutOff(w, refusedDial))
				begin := time.Now()
				require.NoError(t, l.Acquire(w.ctx, 1))
				require.LessOrEqual(t, time.Since(begin), time.Second)
			})
		})
	}
	t.Run("not one that Redis was not told", func(t *testing.T) {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			l := w.l.OnOutage(FailOpen())
			l.handle.NoteCoolDown(w.epoch.Add(time.Hour))
			w.granted(1)
			goesAway(w, cutOff(w, refusedDial))
			r, err := l.Allow(w.ctx, 1)
			require.NoError(t, err)
			require.False(t, r.Granted)
			require.Greater(t, r.Wait, 59*time.Minute)
		})
	})
}

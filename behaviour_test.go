// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// These are the rows of docs/compatibility.md that concern one call. Each test is a state or an operation for
// which Redisson's own script returns something else, and fails if we return that.

// Redisson fails forever with "attempt to perform arithmetic on a nil value" (issues 4680, 2987).
func TestNothingInUseMeansEverythingIsFree(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for i, v := range []any{0, 3, -7, "garbage", "2.5", "nan"} {
			require.NoError(t, w.rdb.Del(w.ctx, w.permitsKey()).Err())
			w.setValue(v)
			w.available(10)
			sent := count(w.rdb)
			w.granted(10)
			if i > 0 { // the first call may send the texts of both scripts
				require.LessOrEqual(t, sent.sent.Load(), int64(4), "found, healed and asked again")
			}
			require.Zero(t, w.value())
			w.rejected(1, time.Second)
		}
	})
}

// After a lost reply the call is sent again and returns what the first one was granted.
func TestReplayReturnsWhatWasGranted(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		send := func(id permit.ID, permits, n int64, b permit.Batch) permit.Reply {
			b.ID, b.Runs = id, []permit.Run{{Permits: permits, Count: n}}
			return w.ask(b)
		}
		first, replay := permit.Batch{}, permit.Batch{Replay: true}
		for _, again := range []permit.Batch{replay, {Replay: true, Check: permit.Checked}} {
			require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second)))
			id := redisson.RandomID()
			require.EqualValues(t, 3, send(id, 3, 4, first).Granted[0]) // 3 of 4 requests: 9 permits
			for range 5 {
				r := send(id, 3, 4, again)
				require.EqualValues(t, 3, r.Granted[0])
				require.Equal(t, time.Second, r.Wait)
				require.EqualValues(t, 1, r.Available)
			}
			require.EqualValues(t, 1, w.value())
			used, members := w.used()
			require.EqualValues(t, 9, used)
			require.Equal(t, 1, members)
		}
		// Also if nothing marks it as a replay, as with a proxy that sends again.
		require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second)))
		id := redisson.RandomID()
		begin := time.Now()
		for range 5 {
			require.EqualValues(t, 1, send(id, 4, 1, first).Granted[0])
			time.Sleep(10 * time.Millisecond)
		}
		require.EqualValues(t, 6, w.value())
		z := w.rdb.ZRangeWithScores(w.ctx, w.permitsKey(), 0, -1).Val()
		require.Len(t, z, 1)
		require.EqualValues(t, begin.UnixMilli(), z[0].Score, "granted when it first ran")
	})
}

// Redisson allows a second full burst.
func TestEvictedValueIsRebuilt(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(7)
		w.at(400 * time.Millisecond)
		require.NoError(t, w.rdb.Del(w.ctx, w.valueKey()).Err())
		w.available(3)
		w.rejected(4, 600*time.Millisecond)
		w.granted(3)
		w.at(time.Second)
		w.granted(7)
		w.rejected(1, 400*time.Millisecond)
	})
}

// In Redisson five lost replies turn 10/s into 5/s for good.
func TestLostPermitsComeBack(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		w.setValue(2) // five permits are lost
		w.available(7)
		w.granted(7)
		require.Zero(t, w.value())
		w.rejected(1, time.Second)
		// Also if waiting for the permits in use would be enough.
		require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second)))
		w.at(time.Second) // an interval after the last check
		w.granted(3)
		w.setValue(0)
		w.granted(1)
		require.EqualValues(t, 6, w.value())
		w.granted(6)
		// A check is made once an interval, so a second loss within it waits for the next one.
		w.setValue(-3)
		w.rejected(3, time.Second)
		w.at(2*time.Second + time.Millisecond)
		w.granted(10)
	})
	// The set changes while it is counted, of which one call reads only so many members.
	t.Run("counting starts over", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			const step = 1000
			w.fill(0, 3*step)
			_ = must(w.l.Peek(w.ctx, 1))(t) // the client knows the rate
			w.setValue(7000 - 5)
			one := func(state redisson.HealState) (redisson.HealState, bool) {
				next, done, err := w.l.redis.HealStep(w.ctx, permit.Overall, permit.Checked, step, state)
				require.NoError(t, err)
				return next, done
			}
			members := w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val()
			for name, gone := range map[string]string{
				"the newest counted": members[len(members)-1],
				"the oldest counted": members[len(members)-step],
				"one between":        members[len(members)-7],
			} {
				first, done := one(nil)
				require.False(t, done)
				require.NoError(t, w.rdb.ZRem(w.ctx, w.permitsKey(), gone).Err())
				again, done := one(first)
				require.False(t, done)
				require.Nil(t, again, name)
				w.put(0, []byte(gone))
			}
			// Members that are added above or removed below the cursor are counted right.
			first, _ := one(nil)
			w.put(time.Second, grant(9))
			require.NoError(t, w.rdb.ZRem(w.ctx, w.permitsKey(), members[0], members[1]).Err())
			next, done := one(first)
			require.False(t, done)
			next, done = one(next)
			require.False(t, done, "the new one lies ahead of the clock, and is marked")
			_, done = one(next)
			require.True(t, done)
			used, _ := w.used()
			require.EqualValues(t, 3000-2+9-(-5-2+9), used, "what is too much")
			w.settled(10_000)
		})
	})
}

// In Redisson the wait is that of the oldest member, whatever n is.
func TestWaitUntilAllPermitsAreFree(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for i := range 10 {
			w.at(time.Duration(i) * 50 * time.Millisecond)
			w.granted(1)
		}
		for n := int64(1); n <= 10; n++ {
			w.rejected(n, 550*time.Millisecond+time.Duration(n-1)*50*time.Millisecond)
		}
		sent := count(w.rdb)
		require.True(t, must(w.l.TryAcquire(w.ctx, 10, time.Minute))(t))
		require.Equal(t, 1450*time.Millisecond, w.elapsed())
		require.LessOrEqual(t, sent.sent.Load(), int64(3))
	}, WithRecheck(time.Minute))
	t.Run("walks on over more members than one call reads", func(t *testing.T) {
		inWorld(t, overall(3000, time.Minute), func(t *testing.T, w *world) {
			for i := range 3 {
				w.at(time.Duration(i) * time.Second)
				w.fill(w.elapsed(), 1000)
			}
			w.setValue(0)
			w.rejected(1, 58*time.Second)
			w.rejected(1000, 58*time.Second)
			w.rejected(1001, 59*time.Second)
			w.rejected(2500, 60*time.Second)
			w.rejected(3000, 60*time.Second)
			r := w.ask(permit.Batch{Runs: []permit.Run{{Permits: 2500, Count: 1}}})
			require.EqualValues(t, permit.On, r.Next)
			require.EqualValues(t, 512, r.Cursor.Members, "a call walks no further")
		})
	})
}

// Redisson reclaims everything at once, which blocks Redis for 85 ms at 100,000 members.
func TestReclaimIsBounded(t *testing.T) {
	inWorld(t, overall(4000, time.Second), func(t *testing.T, w *world) {
		w.fill(0, 4000)
		w.setValue(0)
		w.at(time.Second / 2)
		w.rejected(1, time.Second/2) // after that no check is due, which would reclaim more
		w.at(time.Second)
		w.available(4000)
		card := func() int64 { return w.rdb.ZCard(w.ctx, w.permitsKey()).Val() }
		w.granted(1) // needs one; 64 are reclaimed at a time
		require.EqualValues(t, 4000-64+1, card())
		require.EqualValues(t, 63, w.value())
		w.granted(1) // needs none
		require.EqualValues(t, 4000-64-64+2, card())
		w.available(3998)
		w.granted(3998) // needs all: several calls for one request
		require.Zero(t, w.value())
		w.rejected(1, time.Second)
	})
}

// In Redisson the permits come back a second time when their member expires (issues 7329, 7342).
func TestReleaseTakesTheNewestGrants(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(4)
		w.at(300 * time.Millisecond)
		w.granted(4)
		require.NoError(t, w.l.Release(w.ctx, 6))
		w.available(8)
		used, members := w.used()
		require.EqualValues(t, 2, used)
		require.Equal(t, 1, members)
		w.granted(8)
		w.at(time.Second)
		w.available(2) // the two of the first grant, and not four
		w.granted(2)
		w.rejected(1, 300*time.Millisecond)
		w.at(1300 * time.Millisecond)
		w.granted(8)
		// A release of more than is in use gives back what is in use.
		require.NoError(t, w.l.Release(w.ctx, 1000))
		w.available(10)
		require.EqualValues(t, 10, w.value())
		require.NoError(t, w.l.Release(w.ctx, 1))
		require.EqualValues(t, 10, w.value())
	})
	t.Run("large", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			w.fill(0, 5000)
			w.setValue(5000)
			require.NoError(t, w.l.Release(w.ctx, 4321))
			w.available(9321)
			used, members := w.used()
			require.EqualValues(t, 679, used)
			require.Equal(t, 679, members)
		})
	})
}

// TestRateLoweredUnseen checks that a client which meets a lower rate, set by somebody else, drops none of its grants, so that a
// raise within the interval frees none.
func TestRateLoweredUnseen(t *testing.T) {
	for _, typ := range []RateType{Overall, PerClient} {
		t.Run(typ.String(), func(t *testing.T) {
			six := Rate{Permits: 6, Interval: time.Second, Type: typ}
			inWorld(t, six, func(t *testing.T, w *world) {
				w.granted(6)
				w.at(100 * time.Millisecond)
				require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", 1).Err())
				w.rejected(1, 900*time.Millisecond)
				w.at(200 * time.Millisecond)
				require.True(t, must(w.l.UpdateRate(w.ctx, six, KeepState()))(t))
				w.rejected(1, 800*time.Millisecond)
				w.at(time.Second)
				w.granted(6)
				w.rejected(1, time.Second)
			})
		})
	}
}

// TestRateLoweredBeforeAClientBegan has the first call of a client be after the rate was lowered as a peer does it, which leaves the members: it
// drops none of the grants in use, which a higher rate would grant once more.
func TestRateLoweredBeforeAClientBegan(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, l *RateLimiter){
		"Allow":       func(ctx context.Context, l *RateLimiter) { _, _ = l.Allow(ctx, 1) },
		"AllowAtMost": func(ctx context.Context, l *RateLimiter) { _, _, _ = l.AllowAtMost(ctx, 3) },
		"TryAcquire":  func(ctx context.Context, l *RateLimiter) { _, _ = l.TryAcquire(ctx, 1, 50*time.Millisecond) },
	} {
		for _, raise := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", raised by a peer: ", raise), func(t *testing.T) {
				inWorld(t, overall(9, time.Second), func(t *testing.T, w *world) {
					w.granted(9)
					require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", 3).Err())
					l := w.another().l
					call(w.ctx, l)
					if raise {
						require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", 9).Err())
					} else {
						require.NoError(t, l.SetRate(w.ctx, overall(9, time.Second), KeepState()))
					}
					got, _, err := l.AllowAtMost(w.ctx, 9)
					require.NoError(t, err)
					require.Zero(t, got)
				})
			})
		}
	}
}

// TestRateRaisedForOtherClients checks that a client finds at once what a higher rate of another client has more, although it has just looked
// for lost permits.
func TestRateRaisedForOtherClients(t *testing.T) {
	for _, opts := range [][]RateOption{nil, {KeepState()}} {
		five := Rate{Permits: 5, Interval: time.Second, Type: PerClient}
		inWorld(t, five, func(t *testing.T, w *world) {
			w.granted(5)
			w.at(100 * time.Millisecond)
			w.rejected(1, 900*time.Millisecond) // which looks for lost permits
			require.NoError(t, w.another().l.SetRate(w.ctx, Rate{Permits: 8, Interval: time.Second, Type: PerClient}, opts...))
			w.granted(3)
			w.rejected(1, 900*time.Millisecond)
		})
	}
}

// TestRateRaisedAndLoweredUnseen has a client miss that the rate is raised and lowered, to any rate and not only below the one it knows: its
// checks drop none of the grants in use, which a higher rate would grant once more.
func TestRateRaisedAndLoweredUnseen(t *testing.T) {
	for _, typ := range []RateType{Overall, PerClient} {
		for lowered := range int64(20) {
			t.Run(fmt.Sprint(typ, " to ", lowered+1), func(t *testing.T) {
				rate := func(n int64) Rate { return Rate{Permits: n, Interval: time.Second, Type: typ} }
				inWorld(t, rate(6), func(t *testing.T, w *world) {
					_ = w.try(6)
					w.at(time.Second)
					other := w.another(WithClientID(w.client.ID())).l
					require.NoError(t, other.SetRate(w.ctx, rate(20), KeepState()))
					granted := max(6, min(19, 20-lowered/2))
					require.True(t, must(other.Allow(w.ctx, granted))(t).Granted)
					w.at(1100 * time.Millisecond)
					require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", lowered+1).Err())
					for range 3 {
						if r, err := w.l.Allow(w.ctx, 1); err == nil && r.Granted {
							granted++
						}
					}
					w.at(1200 * time.Millisecond)
					require.NoError(t, other.SetRate(w.ctx, rate(20), KeepState()))
					n, _, err := w.l.AllowAtMost(w.ctx, 20)
					require.NoError(t, err)
					require.LessOrEqual(t, granted+n, int64(20))
				})
			})
		}
	}
}

// Redisson 4.4.0 leaves all members, and each one that expires frees a permit that the lower rate does not
// have: up to the old rate within one interval.
func TestKeepStateWithALowerRate(t *testing.T) {
	inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
		for i := range 50 {
			w.at(time.Duration(i) * 10 * time.Millisecond)
			w.granted(2)
		}
		require.True(t, must(w.l.UpdateRate(w.ctx, overall(5, time.Second), KeepState()))(t))
		w.holds(w.l, 5, 100)
		w.available(0)
		w.rejected(1, 980*time.Millisecond) // until 4 of the last 5 are left
		for w.elapsed() < 1400*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
			r := w.try(1)
			require.False(t, r.Granted, "at %v", w.elapsed())
		}
		w.at(1500 * time.Millisecond)
		w.granted(5)
		w.rejected(1, time.Second)
	})
	t.Run("a grant is cancelled", func(t *testing.T) {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			first := must(w.l.AcquireGrant(w.ctx, 4))(t)
			w.at(100 * time.Millisecond)
			second := must(w.l.AcquireGrant(w.ctx, 4))(t)
			require.NoError(t, w.l.SetRate(w.ctx, overall(6, time.Second), KeepState()))
			w.available(0)
			require.NoError(t, first.Cancel(w.ctx))
			w.available(2) // 4 are in use still
			require.NoError(t, second.Settle(w.ctx, 1))
			w.available(5)
		})
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			grant := must(w.l.AcquireGrant(w.ctx, 4))(t)
			require.NoError(t, w.l.SetRate(w.ctx, overall(3, time.Second), KeepState()))
			w.available(0)
			require.NoError(t, grant.Cancel(w.ctx))
			w.granted(3)
		})
	})
	t.Run("what is given back frees nothing that the rate lacks", func(t *testing.T) {
		for how, give := range map[string]func(*world, *Grant) error{
			"Cancel":  func(w *world, g *Grant) error { return g.Cancel(w.ctx) },
			"Settle":  func(w *world, g *Grant) error { return g.Settle(w.ctx, 2) },
			"Release": func(w *world, _ *Grant) error { return w.l.Release(w.ctx, 5) },
		} {
			for _, to := range []int64{3, 5, 7} {
				inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
					w.granted(5)
					w.at(100 * time.Millisecond)
					grant := must(w.l.AcquireGrant(w.ctx, 5))(t)
					require.NoError(t, w.l.SetRate(w.ctx, overall(to, time.Second), KeepState()))
					require.NoError(t, give(w, grant))
					left := int64(5) // are in use
					if how == "Settle" {
						left = 7
					}
					w.holds(w.l, to, left)
					w.available(max(0, to-left))
				})
			}
		}
	})
	t.Run("by another client, and raised again", func(t *testing.T) {
		rate := Rate{Type: PerClient, Permits: 12, Interval: time.Hour}
		inWorld(t, rate, func(t *testing.T, w *world) {
			other := must(New(w.rdb))(t)
			defer other.Close()
			w.granted(12)
			for _, n := range []int64{2, 12} {
				rate.Permits = n
				require.NoError(t, other.RateLimiter(w.l.Name()).SetRate(w.ctx, rate, KeepState()))
				w.rejected(1, time.Hour)
			}
			w.holds(w.l, 12, 12)
		})
	})
	t.Run("and raised again", func(t *testing.T) { // Redisson frees what the lower rate had no room for
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			w.granted(4)
			w.at(100 * time.Millisecond)
			w.granted(4)
			for _, n := range []int64{6, 5, 5} {
				require.NoError(t, w.l.SetRate(w.ctx, overall(n, time.Second), KeepState()))
				w.holds(w.l, n, 8)
			}
			require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second), KeepState()))
			w.holds(w.l, 10, 8)
			w.rejected(3, time.Second-100*time.Millisecond)
			w.granted(2)
			w.at(1100 * time.Millisecond)
			w.granted(8)
		})
	})
	t.Run("of more grants than one call adds up", func(t *testing.T) { // the rest stays, and no permit comes back before it has expired
		inWorld(t, overall(516, time.Second), func(t *testing.T, w *world) {
			w.fill(0, 516)
			w.setValue(0)
			require.NoError(t, w.l.SetRate(w.ctx, overall(3, time.Second), KeepState()))
			w.holds(w.l, 3, 516)
			w.rejected(1, time.Second)
			w.at(time.Second)
			w.granted(3)
			w.rejected(1, time.Second)
		})
	})
	t.Run("permits are owed", func(t *testing.T) { // to a reservation, or by a grant that was settled to more
		for _, members := range []int{2, 600} {
			inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
				w.fill(0, members)
				w.setValue(1000 - members - 1400)
				w.put(0, grant(1400))
				require.NoError(t, w.l.SetRate(w.ctx, overall(900, time.Second), KeepState()))
				w.holds(w.l, 900, int64(members)+1400)
			})
		}
	})
}

// These are the rows of docs/compatibility.md about arguments and settings.

// Redisson writes, drops the TTL, and returns 15 at a rate of 10.
func TestAvailablePermitsOnlyReads(t *testing.T) {
	inWorld(t, Rate{Permits: 10, Interval: time.Second, KeepAlive: time.Hour}, func(t *testing.T, w *world) {
		w.available(10)
		require.EqualValues(t, -1, w.value(), "created by a read")
		w.granted(4)
		w.at(time.Second)
		w.available(10)
		require.EqualValues(t, 6, w.value())
		require.Positive(t, w.rdb.PTTL(w.ctx, w.valueKey()).Val())
		w.setValue(15)
		w.available(10)
		w.granted(1)
		w.setValue(-20)
		w.available(9) // the number that the next acquire corrects it to
		w.at(time.Second + 500*time.Millisecond)
		w.granted(9)
	})
	t.Run("large", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			w.fill(0, 2500)
			w.fill(30*time.Second, 3500)
			w.setValue(4000)
			w.available(4000)
			w.at(time.Minute)
			w.available(6500)
			w.at(2 * time.Minute)
			w.available(10_000)
		})
	})
}

// In Redisson tryAcquire(0), (−5) and (2³²+1) corrupt the state.
func TestPermitsOutOfRange(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		sent := count(w.rdb)
		for _, n := range []int64{0, -5, math.MinInt64, 1 << 32, 1<<32 + 1, math.MaxInt64} {
			_, err := w.l.Allow(w.ctx, n)
			require.ErrorIs(t, err, ErrInvalidArgument)
			_, err = w.l.TryAcquire(w.ctx, n, time.Second)
			require.ErrorIs(t, err, ErrInvalidArgument)
			require.ErrorIs(t, w.l.Acquire(w.ctx, n), ErrInvalidArgument)
			_, err = w.l.Peek(w.ctx, n)
			require.ErrorIs(t, err, ErrInvalidArgument)
			require.ErrorIs(t, w.l.Release(w.ctx, n), ErrInvalidArgument)
		}
		require.Zero(t, sent.sent.Load())
		for _, n := range []int64{11, 1<<32 - 1} {
			_, err := w.l.TryAcquire(w.ctx, n, time.Hour)
			require.ErrorIs(t, err, ErrPermitsExceedRate)
			require.ErrorContains(t, err, "rate is 10")
			_, err = w.l.Peek(w.ctx, n)
			require.ErrorIs(t, err, ErrPermitsExceedRate)
		}
		require.Zero(t, w.elapsed())
		require.EqualValues(t, 7, w.value())
	})
}

// Redisson accepts a rate of 0 or less, and fails in DECRBY from 1e17 on.
func TestRatesOutOfRange(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		sent := count(w.rdb)
		for _, r := range []Rate{
			{Permits: 0, Interval: time.Second},
			{Permits: -1, Interval: time.Second},
			{Permits: 1 << 32, Interval: time.Second},
			{Permits: 1e17, Interval: time.Second},
			{Permits: 1},
			{Permits: 1, Interval: -time.Second},
			{Permits: 1, Interval: time.Millisecond - 1},
			{Permits: 1, Interval: time.Second + time.Microsecond},
			{Permits: 1, Interval: time.Second, KeepAlive: -time.Second},
			{Permits: 1, Interval: time.Second, KeepAlive: time.Second - time.Millisecond},
			{Permits: 1, Interval: time.Second, KeepAlive: time.Minute + time.Nanosecond},
			{Type: 2, Permits: 1, Interval: time.Second},
			{Type: -1, Permits: 1, Interval: time.Second},
		} {
			_, err := w.l.TrySetRate(w.ctx, r)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", r)
			require.ErrorIs(t, w.l.SetRate(w.ctx, r), ErrInvalidArgument)
			_, err = w.l.UpdateRate(w.ctx, r)
			require.ErrorIs(t, err, ErrInvalidArgument)
		}
		require.Zero(t, sent.sent.Load())
		require.NoError(t, w.l.SetRate(w.ctx, Rate{Permits: 1<<32 - 1, Interval: time.Millisecond, KeepAlive: time.Hour}))
		w.granted(1<<32 - 1)
		w.rejected(1<<32-1, time.Millisecond)
		w.at(time.Millisecond)
		w.granted(1<<32 - 2)
		w.granted(1)
	})
	t.Run("written by others", func(t *testing.T) {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			for _, h := range [][3]string{{"0", "1000", "0"}, {"-5", "1000", "0"}, {"10", "0", "0"}, {"10", "1.5", "0"},
				{"ten", "1000", "0"}, {"inf", "1000", "0"}, {"1e300", "1000", "0"}, {"10", "1000", "2"}, {"10", "1000", "x"}, {"9223372036854775807", "1000", "0"}, {"10", "9223372036854775807", "0"}} {
				require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", h[0], "interval", h[1], "type", h[2]).Err())
				_, err := w.l.Allow(w.ctx, 1)
				require.ErrorIs(t, err, ErrMalformed, "%v", h)
				if h[2] == "0" { // a rate of Long.MAX_VALUE is a positive whole number
					require.ErrorContains(t, err, "is not a whole number from 1 to 2^53", "%v", h)
				}
				_, err = w.l.Rate(w.ctx)
				require.ErrorIs(t, err, ErrMalformed, "%v", h)
				_, err = w.l.TryAcquire(w.ctx, 1, time.Hour)
				require.ErrorIs(t, err, ErrMalformed, "%v", h)
				require.EqualValues(t, -1, w.value())
			}
		})
	})
}

// Redisson leaves the keys of the other type.
func TestSetRateDeletesBothTypes(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		exists := func(typ RateType) int64 {
			return w.rdb.Exists(w.ctx, w.l.redis.Keys.Value[typ], w.l.redis.Keys.Permits[typ]).Val()
		}
		w.granted(10)
		require.EqualValues(t, 2, exists(Overall))
		require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 10, Interval: time.Second}))
		require.Zero(t, exists(Overall))
		w.granted(10)
		require.EqualValues(t, 2, exists(PerClient))
		require.True(t, must(w.l.UpdateRate(w.ctx, overall(10, time.Second), KeepState()))(t))
		require.Zero(t, exists(PerClient))
		w.granted(10)
	})
	// The permits of another client have keys that cannot be named; they adapt after its rate has changed.
	t.Run("other clients", func(t *testing.T) {
		inWorld(t, Rate{Type: PerClient, Permits: 100, Interval: time.Second}, func(t *testing.T, w *world) {
			peer := w.another()
			peer.granted(60)
			require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 20, Interval: time.Second}))
			peer.available(0) // 40 left of 100, 60 in use: over 20
			peer.rejected(1, time.Second)
			peer.at(time.Second)
			peer.granted(20)
			peer.rejected(1, time.Second)
			require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 50, Interval: time.Second}))
			peer.at(2*time.Second + time.Millisecond)
			peer.granted(50)
		})
	})
}

// These are the rows of docs/compatibility.md about clocks, waiters and clients.

// In Redisson a client whose clock is 60 s fast makes the others wait for 61 s.
func TestScoreAheadOfTheClock(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for range 5 {
			w.put(60*time.Second, grant(2))
		}
		w.setValue(0)
		r := w.try(4)
		require.False(t, r.Granted)
		require.Equal(t, time.Second, r.Wait)
		require.Equal(t, 60*time.Second, r.ClockSkew)
		// The scores stay, so that a fast Java peer does not find its own grants expired.
		newest := w.rdb.ZRevRangeWithScores(w.ctx, w.permitsKey(), 0, -1).Val()
		require.Len(t, newest, 5)
		for _, z := range newest {
			require.EqualValues(t, w.epoch.Add(60*time.Second).UnixMilli(), z.Score)
			require.EqualValues(t, 2, must(wire.ParseMember([]byte(z.Member.(string))))(t).Permits)
		}
		w.at(500 * time.Millisecond)
		w.rejected(4, 500*time.Millisecond)
		require.True(t, must(w.l.TryAcquire(w.ctx, 10, time.Minute))(t))
		require.Equal(t, time.Second, w.elapsed())
		used, _ := w.used()
		require.EqualValues(t, 10, used)
	})
	// All four layouts can be marked, even if two members are the same except for their ids.
	t.Run("layouts", func(t *testing.T) {
		inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
			for _, m := range redistest.JavaMembers(7) {
				w.put(5*time.Second, m)
			}
			w.put(5*time.Second, grant(7))
			w.setValue(100 - 35)
			w.rejected(100, time.Second)
			used, members := w.used()
			require.EqualValues(t, 35, used)
			require.Equal(t, 5, members)
			w.at(time.Second)
			w.granted(100)
		})
	})
}

// The default clock is that of Redis, whatever the clock of this process shows. In a bubble with a real server
// it shows the year 2000.
func TestClockIsThatOfRedis(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		w := newWorld(t, rdb)
		theirs := newClient(t, rdb)
		l := theirs.RateLimiter(w.l.Name())
		require.NoError(t, l.SetRate(w.ctx, overall(10, time.Hour)))
		r := must(l.Allow(w.ctx, 1))(t)
		now := rdb.Time(w.ctx).Val()
		require.InDelta(t, now.UnixMilli(), r.Time.UnixMilli(), 60_000)
		require.Greater(t, r.Time.Year(), time.Now().Year())
		z := rdb.ZRangeWithScores(w.ctx, w.permitsKey(), 0, -1).Val()
		require.EqualValues(t, r.Time.UnixMilli(), z[0].Score)
		r = w.try(10) // by the clock of the process, as with WithClientClock
		require.False(t, r.Granted)
		require.Equal(t, time.Hour, r.Wait)
		require.Greater(t, r.ClockSkew, 20*365*24*time.Hour)
	})
}

// In Redisson release, setRate and delete wake nobody.
func TestLocalWaitersWakeAtOnce(t *testing.T) {
	type outcome struct {
		ok  bool
		err error
		at  time.Duration
	}
	for name, c := range map[string]struct {
		change func(w *world) error
		want   error
	}{
		"release":    {change: func(w *world) error { return w.l.Release(w.ctx, 10) }},
		"setRate":    {change: func(w *world) error { return w.l.SetRate(w.ctx, overall(20, time.Hour)) }},
		"updateRate": {change: func(w *world) error { _, err := w.l.UpdateRate(w.ctx, overall(20, time.Hour), KeepState()); return err }},
		"delete":     {change: func(w *world) error { _, err := w.l.Admin().Delete(w.ctx); return err }, want: ErrNotInitialized},
		"close":      {change: func(w *world) error { return w.client.Close() }, want: ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
				w.granted(10)
				done := make(chan outcome)
				ask := func(f func() (bool, error)) {
					ok, err := f()
					done <- outcome{ok, err, w.elapsed()}
				}
				// A list waits for the limiter that has the longest wait, and hears of the other one all the same.
				other := w.client.RateLimiter(w.l.Name() + "longer")
				require.NoError(t, other.SetRate(w.ctx, overall(1, 10*time.Hour)))
				require.NoError(t, other.Acquire(w.ctx, 1))
				if c.want != nil {
					go ask(func() (bool, error) {
						r, err := w.client.TryAcquireAll(w.ctx, time.Minute, Demand{w.l, 10}, Demand{other, 1})
						return r.Granted, err
					})
				}
				w.at(time.Second)
				go ask(func() (bool, error) { return w.client.RateLimiter(w.l.Name()).TryAcquire(w.ctx, 10, time.Minute) })
				w.at(3 * time.Second)
				require.NoError(t, c.change(w))
				got := <-done
				require.Equal(t, 3*time.Second, got.at)
				if c.want != nil {
					require.ErrorIs(t, got.err, c.want)
					list := <-done
					require.Equal(t, 3*time.Second, list.at)
					require.ErrorIs(t, list.err, c.want)
					return
				}
				require.NoError(t, got.err)
				require.True(t, got.ok)
			}, WithRecheck(time.Hour))
		})
	}
}

// Alibaba Cloud's proxy rejects scripts that keep key names in locals (issues 2754, 3325, 3900).
func TestScriptsNameTheirKeys(t *testing.T) {
	for _, s := range allScripts() {
		require.NoError(t, redistest.LiteralKeys(s.Src), s.Name)
		require.NotContains(t, s.Src, "struct.", s.Name)
		require.NotContains(t, s.Src, "unpack(", s.Name)
	}
	inWorld(t, Rate{Type: PerClient, Permits: 10, Interval: time.Second}, func(t *testing.T, w *world) {
		peer := newWorld(t, w.rdb) // it has not set the rate and does not know the type
		peer.l = peer.client.RateLimiter(w.l.Name())
		w.load()
		sent := count(w.rdb)
		peer.granted(4)
		require.EqualValues(t, 2, sent.sent.Load(), "told the type, then sent with the right keys")
		peer.granted(4)
		require.EqualValues(t, 3, sent.sent.Load(), "the type is remembered")
		w.granted(4)
		require.EqualValues(t, 4, sent.sent.Load(), "who sets the rate knows the type")
	})
}

// In Redisson the keys of a client that is gone live forever.
func TestClientKeysExpire(t *testing.T) {
	perClient := func(interval time.Duration) Rate { return Rate{Type: PerClient, Permits: 2, Interval: interval} }
	live := func(w *world, want time.Duration) {
		w.t.Helper()
		w.granted(1)
		for _, key := range keysOf(w.l, w.typ())[1:] {
			require.InDelta(w.t, want, w.rdb.PTTL(w.ctx, key).Val(), float64(30*time.Second))
		}
		require.Equal(w.t, noTTL, w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val(), "the limiter itself stays")
	}
	inWorld(t, perClient(25*time.Minute), func(t *testing.T, w *world) {
		live(w, time.Hour)
		if redistest.TTLsAreVirtual() {
			w.at(20 * time.Minute)
			live(w, 40*time.Minute)
			w.at(45 * time.Minute) // past half: refreshed
			live(w, time.Hour)
			w.at(3 * time.Hour)
			require.EqualValues(t, -1, w.value())
			w.granted(2)
			w.rejected(1, 25*time.Minute)
		}
	})
	for _, c := range []struct {
		rate Rate
		want time.Duration
		opts []Option
	}{
		{perClient(3 * time.Hour), 6 * time.Hour, nil},
		{perClient(time.Second), time.Minute, []Option{WithClientKeyTTL(time.Minute)}},
		{perClient(time.Second), noTTL, []Option{WithClientKeyTTL(0)}},
		{overall(2, time.Second), noTTL, nil},
	} {
		inWorld(t, c.rate, func(t *testing.T, w *world) { live(w, c.want) }, c.opts...)
	}
	t.Run("id stable over restarts", func(t *testing.T) {
		inWorld(t, perClient(time.Minute), func(t *testing.T, w *world) {
			w.granted(2)
			again := newWorld(t, w.rdb, WithClientID("orders-1"))
			again.l = again.client.RateLimiter(w.l.Name())
			again.rejected(1, time.Minute)
			other := newWorld(t, w.rdb, WithClientID("orders-2"))
			other.l = other.client.RateLimiter(w.l.Name())
			other.granted(2)
		}, WithClientID("orders-1"))
	})
}

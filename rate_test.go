// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestRateTypeText(t *testing.T) {
	for typ, text := range map[RateType]string{Overall: "OVERALL", PerClient: "PER_CLIENT"} {
		require.Equal(t, text, typ.String())
		b := must(json.Marshal(map[string]RateType{"type": typ}))(t)
		require.JSONEq(t, `{"type":"`+text+`"}`, string(b))
		var back map[string]RateType
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, typ, back["type"])
	}
	_, err := RateType(7).MarshalText()
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.Equal(t, "RateType(7)", RateType(7).String())
	typ := PerClient
	require.ErrorIs(t, typ.UnmarshalText([]byte("overall")), ErrInvalidArgument)
	require.Equal(t, PerClient, typ)
	require.Equal(t, "PER_CLIENT 5/10s keep-alive 1m0s",
		Rate{Type: PerClient, Permits: 5, Interval: 10 * time.Second, KeepAlive: time.Minute}.String())
}

func TestTrySetRate(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		first := Rate{Type: Overall, Permits: 5, Interval: 10 * time.Second}
		require.True(t, must(w.l.TrySetRate(w.ctx, first))(t))
		require.Equal(t, map[string]string{"rate": "5", "interval": "10000", "keepAliveTime": "0", "type": "0"},
			w.rdb.HGetAll(w.ctx, w.l.redis.Keys.Hash).Val())
		ok := must(w.l.TrySetRate(w.ctx, Rate{Type: PerClient, Permits: 9, Interval: time.Second, KeepAlive: time.Minute}))(t)
		require.False(t, ok)
		require.Equal(t, first, must(w.l.Rate(w.ctx))(t))
		require.Equal(t, noTTL, w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val())

		// This hash was made by Redisson 3.37 or older, to which Redisson's own trySetRate would add
		// keepAliveTime even though it returns false.
		require.NoError(t, w.rdb.HDel(w.ctx, w.l.redis.Keys.Hash, "keepAliveTime").Err())
		ok = must(w.l.TrySetRate(w.ctx, Rate{Type: PerClient, Permits: 9, Interval: time.Second, KeepAlive: time.Minute}))(t)
		require.False(t, ok)
		require.False(t, w.rdb.HExists(w.ctx, w.l.redis.Keys.Hash, "keepAliveTime").Val())
		require.Equal(t, first, must(w.l.Rate(w.ctx))(t))

		// Half a hash is completed.
		require.NoError(t, w.rdb.HDel(w.ctx, w.l.redis.Keys.Hash, "type", "rate").Err())
		ok = must(w.l.TrySetRate(w.ctx, Rate{Type: Overall, Permits: 7, Interval: time.Second, KeepAlive: time.Minute}))(t)
		require.True(t, ok)
		require.Equal(t, Rate{Permits: 7, Interval: 10 * time.Second, KeepAlive: time.Minute}, must(w.l.Rate(w.ctx))(t))
		require.InDelta(t, time.Minute, w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val(), float64(30*time.Second))
	})
}

func TestSetRateAndUpdateRate(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		require.False(t, must(w.l.UpdateRate(w.ctx, overall(5, time.Second)))(t))
		require.False(t, must(w.l.Admin().Exists(w.ctx))(t))
		_, err := w.l.Rate(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		_, err = w.l.Allow(w.ctx, 1)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, w.l.Name())
		_, err = w.l.Peek(w.ctx, 1)
		require.ErrorIs(t, err, ErrNotInitialized)
		_, err = w.l.AvailablePermits(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorIs(t, w.l.Release(w.ctx, 1), ErrNotInitialized)

		require.NoError(t, w.l.SetRate(w.ctx, overall(5, time.Second), KeepState()), "also when there is none")
		w.available(5)
		w.granted(5)
		require.True(t, must(w.l.UpdateRate(w.ctx, overall(5, time.Second)))(t))
		w.granted(5)
		w.at(600 * time.Millisecond)
		require.NoError(t, w.l.SetRate(w.ctx, overall(8, time.Second), KeepState()))
		w.available(3)
		w.granted(3)
		require.NoError(t, w.l.SetRate(w.ctx, overall(8, 600*time.Millisecond), KeepState()))
		w.available(5) // the five are older than the new interval
		require.EqualValues(t, 5, w.value())
	})
}

// By the TTL rule each acquire sets a keep-alive on all three keys; without one, the TTL of the hash is copied
// to the others.
func TestTTLRule(t *testing.T) {
	ttls := func(w *world) (d [3]time.Duration) {
		for i, k := range keysOf(w.l, w.typ()) {
			d[i] = w.rdb.PTTL(w.ctx, k).Val()
		}
		return d
	}
	near := func(t *testing.T, want time.Duration, got [3]time.Duration) {
		t.Helper()
		for _, d := range got {
			require.InDelta(t, want, d, float64(time.Minute))
		}
	}
	for _, typ := range []RateType{Overall, PerClient} {
		inWorld(t, Rate{Type: typ, Permits: 2, Interval: time.Second, KeepAlive: time.Hour}, func(t *testing.T, w *world) {
			require.InDelta(t, time.Hour, ttls(w)[0], float64(time.Minute))
			require.NoError(t, w.rdb.PExpire(w.ctx, w.l.redis.Keys.Hash, time.Minute).Err())
			w.granted(2)
			near(t, time.Hour, ttls(w))
			for _, k := range keysOf(w.l, typ) {
				require.NoError(t, w.rdb.PExpire(w.ctx, k, time.Minute).Err())
			}
			w.rejected(1, time.Second)
			near(t, time.Hour, ttls(w))
		})
		inWorld(t, Rate{Type: typ, Permits: 2, Interval: time.Second}, func(t *testing.T, w *world) {
			require.True(t, must(w.l.Admin().Expire(w.ctx, 20*time.Minute))(t))
			w.granted(1)
			near(t, 20*time.Minute, ttls(w))
			w.granted(1)
			w.rejected(1, time.Second)
			near(t, 20*time.Minute, ttls(w))
		})
	}
	inWorld(t, Rate{Permits: 5, Interval: time.Second}, func(t *testing.T, w *world) {
		w.granted(2)
		require.NoError(t, w.l.SetRate(w.ctx, Rate{Permits: 9, Interval: time.Second, KeepAlive: time.Hour}, KeepState()))
		near(t, time.Hour, ttls(w))
		require.NoError(t, w.l.SetRate(w.ctx, Rate{Permits: 9, Interval: time.Second}, KeepState()))
		near(t, time.Hour, ttls(w)) // as in Redisson, a rate without keep-alive does not clear an older TTL
		require.NoError(t, w.l.Release(w.ctx, 1))
		near(t, time.Hour, ttls(w))
	})
}

// TestHashInItsLastMillisecond makes each call on a limiter whose hash expires within a millisecond: its PTTL is 0, which
// is not the lack of a TTL. No call leaves permits behind that never expire, and a cool-down lasts.
func TestHashInItsLastMillisecond(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	calls := map[string]func(w *world, other *RateLimiter) error{
		"Try":      func(w *world, _ *RateLimiter) error { _, err := w.l.Allow(w.ctx, 1); return err },
		"rejected": func(w *world, _ *RateLimiter) error { _, err := w.l.Allow(w.ctx, 10); return err },
		"Release":  func(w *world, _ *RateLimiter) error { return w.l.Release(w.ctx, 1) },
		"TryAcquireAll": func(w *world, other *RateLimiter) error {
			_, err := w.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}, Demand{other, 1})
			return err
		},
		"UpdateRate": func(w *world, _ *RateLimiter) error {
			ok, err := w.l.UpdateRate(w.ctx, Rate{Type: w.typ(), Permits: 12, Interval: time.Minute}, KeepState())
			if !ok && err == nil {
				return ErrNotInitialized
			}
			return err
		},
		"reserve": func(w *world, _ *RateLimiter) error {
			_, err := w.l.redis.Reserve(w.ctx, permit.Reservation{Type: permit.Type(w.typ()), ID: w.client.redis.NewID(), Want: 2})
			return err
		},
		"Heal, value lost": func(w *world, _ *RateLimiter) error {
			require.NoError(w.t, w.rdb.Del(w.ctx, w.valueKey()).Err())
			require.NoError(w.t, w.rdb.PExpire(w.ctx, w.permitsKey(), time.Millisecond).Err())
			return w.l.Admin().Heal(w.ctx)
		},
		"CoolDown":              func(w *world, _ *RateLimiter) error { return w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)) },
		"CoolDown, a longer is": func(w *world, _ *RateLimiter) error { return w.l.CoolDown(w.ctx, time.Now().Add(time.Second)) },
	}
	for name, call := range calls {
		for _, typ := range []RateType{Overall, PerClient} {
			t.Run(fmt.Sprint(name, "/", typ), func(t *testing.T) {
				rate := Rate{Type: typ, Permits: 10, Interval: time.Minute}
				inWorld(t, rate, func(t *testing.T, w *world) {
					other := w.client.RateLimiter("{" + w.l.Name() + "}2")
					keys, met := keysOf(w.l, typ), 0
					for range redistest.Cases(60, 3000) {
						require.NoError(t, w.l.SetRate(w.ctx, rate))
						require.NoError(t, other.SetRate(w.ctx, rate))
						w.put(w.elapsed(), grant(2))
						w.setValue(8)
						if strings.HasSuffix(name, "longer is") {
							require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)))
						}
						for _, k := range keys[1:] {
							require.NoError(t, w.rdb.Persist(w.ctx, k).Err())
						}
						require.NoError(t, w.rdb.PExpire(w.ctx, keys[0], time.Millisecond).Err())
						time.Sleep(600 * time.Microsecond) // of a real server it is by chance
						err := call(w, other)
						if errors.Is(err, ErrNotInitialized) {
							continue
						}
						require.NoError(t, err)
						met++
						least := time.Duration(-2)
						if strings.HasPrefix(name, "CoolDown") {
							least = time.Minute - 10*time.Second // of a real server
						}
						for _, k := range keys {
							left := w.rdb.PTTL(w.ctx, k).Val()
							require.NotEqual(t, time.Duration(-1), left, "%s has no TTL", k)
							require.GreaterOrEqual(t, left, least, k)
						}
						require.NoError(t, w.rdb.Del(w.ctx, keys...).Err())
						if redistest.TTLsAreVirtual() {
							break // every further one is the same
						}
					}
					require.NotZero(t, met)
				})
			})
		}
	}
}

func TestExpireFamily(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		_, err := w.l.Admin().TTL(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, w.l.Name())
		require.False(t, must(w.l.Admin().Expire(w.ctx, time.Hour))(t), "nothing to expire")
		_, err = w.l.Admin().ExpireTime(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.False(t, must(w.l.Admin().ClearExpire(w.ctx))(t))
		require.False(t, must(w.l.Admin().Delete(w.ctx))(t))

		require.NoError(t, w.l.SetRate(w.ctx, overall(3, time.Second)))
		w.granted(1)
		require.Zero(t, must(w.l.Admin().TTL(w.ctx))(t), "it does not expire")
		require.Zero(t, must(w.l.Admin().ExpireTime(w.ctx))(t))
		require.NoError(t, w.rdb.PExpire(w.ctx, w.l.Name(), time.Hour).Err())
		require.InDelta(t, time.Hour, must(w.l.Admin().TTL(w.ctx))(t), float64(time.Minute))
		require.NoError(t, w.rdb.Persist(w.ctx, w.l.Name()).Err())
		for i, c := range []struct {
			ttl  time.Duration
			cond ExpireCondition
			took bool
			left time.Duration
		}{
			{time.Hour, IfSet(), false, noTTL},
			{time.Hour, IfGreater(), false, noTTL}, // no TTL counts as the longest
			{2 * time.Hour, IfLess(), true, 2 * time.Hour},
			{time.Hour, IfNotSet(), false, 2 * time.Hour},
			{time.Hour, IfGreater(), false, 2 * time.Hour},
			{3 * time.Hour, IfLess(), false, 2 * time.Hour},
			{3 * time.Hour, IfGreater(), true, 3 * time.Hour},
			{time.Hour, IfSet(), true, time.Hour},
			{30 * time.Minute, ExpireCondition{}, true, 30 * time.Minute},
		} {
			require.Equal(t, c.took, must(w.l.Admin().Expire(w.ctx, c.ttl, c.cond))(t), "%d", i)
			for _, k := range keysOf(w.l, Overall) {
				got := w.rdb.PTTL(w.ctx, k).Val()
				if c.left == noTTL {
					require.Equal(t, noTTL, got, "%d %s", i, k)
				} else {
					require.InDelta(t, c.left, got, float64(time.Minute), "%d %s", i, k)
				}
			}
		}
		require.True(t, must(w.l.Admin().ClearExpire(w.ctx))(t))
		require.True(t, must(w.l.Admin().Expire(w.ctx, time.Minute, IfNotSet()))(t))

		now := w.rdb.Time(w.ctx).Val() // TTLs follow the clock of Redis
		require.True(t, must(w.l.Admin().ExpireAt(w.ctx, now.Add(2*time.Hour), IfGreater()))(t))
		at := must(w.l.Admin().ExpireTime(w.ctx))(t)
		require.InDelta(t, now.Add(2*time.Hour).UnixMilli(), at.UnixMilli(), 60_000)
		require.InDelta(t, 2*time.Hour, must(w.l.Admin().TTL(w.ctx))(t), float64(time.Minute))

		sent := count(w.rdb)
		for _, d := range []time.Duration{0, -time.Second, time.Millisecond - 1, time.Second + 1} {
			_, err = w.l.Admin().Expire(w.ctx, d)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", d)
		}
		_, err = w.l.Admin().ExpireAt(w.ctx, time.Time{})
		require.ErrorIs(t, err, ErrInvalidArgument)
		_, err = w.l.Admin().Expire(w.ctx, time.Hour, IfSet(), IfLess())
		require.ErrorIs(t, err, ErrInvalidArgument)
		require.Zero(t, sent.sent.Load())

		require.True(t, must(w.l.Admin().ExpireAt(w.ctx, now.Add(-time.Hour)))(t))
		require.False(t, must(w.l.Admin().Exists(w.ctx))(t))
	})
}

// TestExpireIsNoticedByTheNextCall checks that a key that Redis has lost gets the TTL of the limiter with the next grant, if that
// was set by this client, which until then knew that there is none.
func TestExpireIsNoticedByTheNextCall(t *testing.T) {
	inWorld(t, overall(5, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.granted(1)
		require.True(t, must(w.l.Admin().Expire(w.ctx, time.Hour))(t))
		keys := keysOf(w.l, Overall)
		require.NoError(t, w.rdb.Del(w.ctx, keys[2]).Err())
		w.granted(1)
		for _, k := range keys {
			require.InDelta(t, time.Hour, w.rdb.PTTL(w.ctx, k).Val(), float64(time.Minute), k)
		}
	})
}

func TestDeleteRemovesAllThatCanBeNamed(t *testing.T) {
	for _, typ := range []RateType{Overall, PerClient} {
		inWorld(t, Rate{Type: typ, Permits: 3, Interval: time.Second}, func(t *testing.T, w *world) {
			w.granted(3)
			require.True(t, must(w.l.Admin().Exists(w.ctx))(t))
			require.True(t, must(w.l.Admin().Delete(w.ctx))(t))
			require.Zero(t, w.rdb.Exists(w.ctx, keysAll(w.l, Overall)...).Val())
			require.Empty(t, must(w.rdb.Keys(w.ctx, "*"+w.l.Name()+"*").Result())(t))
		})
	}
}

// With PER_CLIENT each client has the whole rate and does not see the permits of others.
func TestPerClient(t *testing.T) {
	inWorld(t, Rate{Type: PerClient, Permits: 3, Interval: time.Second}, func(t *testing.T, w *world) {
		peer := w.another()
		require.NotEqual(t, w.client.ID(), peer.client.ID())
		require.Len(t, w.client.ID(), 36)
		w.granted(3)
		peer.available(3)
		peer.granted(2)
		w.rejected(1, time.Second)
		require.NoError(t, peer.l.Release(w.ctx, 2))
		peer.available(3)
		w.available(0)
		require.EqualValues(t, 1, w.rdb.Exists(w.ctx, "{"+w.l.Name()+"}:value:"+w.client.ID()).Val())
		require.EqualValues(t, 1, w.rdb.Exists(w.ctx, "{"+w.l.Name()+"}:permits:"+w.client.ID()).Val())
	})
}

// A release renews the keep-alive, and the value that it creates does not outlive the hash.
func TestReleaseAppliesTheTTLRule(t *testing.T) {
	for r, want := range map[Rate]time.Duration{
		{Permits: 5, Interval: time.Second, KeepAlive: time.Hour}:                    time.Hour,
		{Permits: 5, Interval: time.Second}:                                          20 * time.Minute,
		{Type: PerClient, Permits: 5, Interval: time.Second}:                         20 * time.Minute,
		{Type: PerClient, Permits: 5, Interval: time.Minute}:                         20 * time.Minute,
		{Type: PerClient, Permits: 5, Interval: time.Hour, KeepAlive: 2 * time.Hour}: 2 * time.Hour,
	} {
		inWorld(t, r, func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.PExpire(w.ctx, w.l.redis.Keys.Hash, 20*time.Minute).Err())
			require.NoError(t, w.l.Release(w.ctx, 1))
			require.InDelta(t, want, w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val(), float64(time.Minute))
			require.InDelta(t, want, w.rdb.PTTL(w.ctx, w.valueKey()).Val(), float64(time.Minute))
		})
	}
	inWorld(t, Rate{Type: PerClient, Permits: 5, Interval: time.Second}, func(t *testing.T, w *world) {
		require.NoError(t, w.l.Release(w.ctx, 1))
		require.InDelta(t, time.Hour, w.rdb.PTTL(w.ctx, w.valueKey()).Val(), float64(time.Minute))
	})
}

// TestRateOfALargeHash checks that Rate and Inspect read the fields of a limiter and not whatever else is in its hash.
func TestRateOfALargeHash(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	w := newWorld(t, s.Client(t))
	r := Rate{Type: PerClient, Permits: 7, Interval: time.Minute, KeepAlive: time.Hour, MinGap: time.Second}
	require.NoError(t, w.l.SetRate(w.ctx, r))
	for i := range 200 {
		fields := map[string]string{}
		for j := range 1000 {
			fields[fmt.Sprint("field ", i, " ", j)] = "x"
		}
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, fields).Err())
	}
	m := &cpuMeter{t: t, admin: s.Client(t)}
	begin := m.used()
	require.Equal(t, r, must(w.l.Rate(w.ctx))(t))
	state := must(w.l.Admin().Inspect(w.ctx))(t)
	require.Equal(t, r, state.Rate)
	require.Less(t, m.used()-begin, 10*time.Millisecond)
}

// TestExpireAtFarAway checks that an instant which milliseconds cannot count is rejected and deletes nothing, and that
// every instant in the past deletes the limiter, however long ago it is.
func TestExpireAtFarAway(t *testing.T) {
	inWorld(t, overall(3, time.Second), func(t *testing.T, w *world) {
		sent := count(w.rdb)
		for _, at := range []time.Time{
			time.Unix(1<<63-62135596801, 999_999_999), // the last time.Time
			time.Unix(math.MaxInt64, 0),
			time.UnixMilli(math.MaxInt64),
			time.UnixMilli(1<<53 + 1),
		} {
			ok, err := w.l.Admin().ExpireAt(w.ctx, at)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", at)
			require.False(t, ok)
		}
		require.Zero(t, sent.sent.Load())
		require.True(t, must(w.l.Admin().Exists(w.ctx))(t))
		for _, at := range []time.Time{time.Unix(0, 0), time.UnixMilli(-1), time.UnixMilli(math.MinInt64), time.Date(-300_000_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
			require.NoError(t, w.l.SetRate(w.ctx, overall(3, time.Second)))
			ok, err := w.l.Admin().ExpireAt(w.ctx, at)
			require.NoError(t, err, "%v", at)
			require.True(t, ok)
			require.False(t, must(w.l.Admin().Exists(w.ctx))(t), "%v", at)
		}
	})
}

// TestTTLLongerThanADuration checks the operations of limiters that expire later than a time.Duration can tell, such as
// at the end of the year 9999, or as late as Redis allows, which Java's new Date(Long.MAX_VALUE) is.
func TestTTLLongerThanADuration(t *testing.T) {
	redistest.NeedReal(t)
	longest := time.Duration(math.MaxInt64).Truncate(time.Millisecond)
	for _, typ := range []RateType{Overall, PerClient} {
		for _, at := range []int64{253_402_300_799_000, 1 << 53, math.MaxInt64} {
			inWorld(t, Rate{Type: typ, Permits: 3, Interval: time.Hour}, func(t *testing.T, w *world) {
				require.NoError(t, w.rdb.Do(w.ctx, "PEXPIREAT", w.l.redis.Keys.Hash, at).Err())
				require.Equal(t, longest, must(w.l.Admin().TTL(w.ctx))(t))
				expires := must(w.l.Admin().ExpireTime(w.ctx))(t)
				require.False(t, expires.IsZero())
				require.GreaterOrEqual(t, expires.UnixMilli(), min(at, 1<<53))

				w.granted(2)
				other := w.l.client.RateLimiter(w.l.Name() + "-other")
				defer other.Admin().Delete(w.ctx)
				require.NoError(t, other.SetRate(w.ctx, Rate{Type: typ, Permits: 3, Interval: time.Hour}))
				require.True(t, must(w.l.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}, Demand{other, 1}))(t).Granted)
				w.rejected(1, time.Hour)
				require.NoError(t, w.l.Release(w.ctx, 1))
				require.EqualValues(t, 1, w.value())
				require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: typ, Permits: 4, Interval: time.Hour}, KeepState()))
				w.granted(1)
				require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)))
				require.True(t, must(w.l.Admin().LiftCoolDown(w.ctx))(t))
				w.granted(1)
				for _, key := range keysOf(w.l, typ) {
					require.Greater(t, must(w.rdb.Do(w.ctx, "PTTL", key).Int64())(t), int64(200_000_000_000_000), key)
				}
				must(w.l.Admin().ClearExpire(w.ctx))(t)
			})
		}
	}
}

// TestLongerIntervalOfAnotherClient checks that the permits in use of a PER_CLIENT client stay so for the new interval if another
// client makes that longer and keeps the state, although its keys had a TTL that was enough for the old one.
func TestLongerIntervalOfAnotherClient(t *testing.T) {
	needVirtualTTLs(t)
	for name, c := range map[string]struct{ from, to Rate }{
		"a longer KeepAlive": {Rate{Interval: time.Second, KeepAlive: 2 * time.Second}, Rate{Interval: 10 * time.Second, KeepAlive: time.Minute}},
		"no KeepAlive":       {Rate{Interval: time.Second}, Rate{Interval: 10 * time.Second}},
		"a higher rate":      {Rate{Interval: time.Second, KeepAlive: 2 * time.Second}, Rate{Permits: 2, Interval: 10 * time.Second, KeepAlive: time.Minute}},
		"in a cool-down":     {Rate{Interval: time.Second, KeepAlive: 2 * time.Second}, Rate{Interval: 10 * time.Second, KeepAlive: time.Minute}},
	} {
		for _, update := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/update ", update), func(t *testing.T) {
				more := c.to.Permits
				c.from.Type, c.from.Permits, c.to.Type, c.to.Permits = PerClient, 5, PerClient, 5+more
				inWorld(t, c.from, func(t *testing.T, w *world) {
					other := w.another(WithClientKeyTTL(time.Second))
					other.granted(5)
					other.rejected(1, time.Second)
					w.at(900 * time.Millisecond)
					if name == "in a cool-down" {
						require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(5*time.Second)))
					}
					if update {
						require.True(t, must(w.l.UpdateRate(w.ctx, c.to, KeepState()))(t))
					} else {
						require.NoError(t, w.l.SetRate(w.ctx, c.to, KeepState()))
					}
					w.at(9 * time.Second)
					if more > 0 {
						other.granted(more)
					}
					other.rejected(1, time.Second)
					w.at(10 * time.Second)
					other.granted(5)
					other.settled(5 + more)
				})
			})
		}
	}
}

// TestClearExpireByAnotherClient checks that the permits in use of a PER_CLIENT client outlive a TTL that another
// client has cleared. ClearExpire cannot name the keys of other clients, so whatever such a client does next renews
// their TTL, or removes it if its keys live forever.
func TestClearExpireByAnotherClient(t *testing.T) {
	for name, keys := range map[string]struct {
		ttl, want time.Duration
	}{"forever": {0, noTTL}, "an hour": {time.Hour, time.Hour}} {
		for how, next := range map[string]func(w *world, l *RateLimiter){
			"Allow": func(w *world, l *RateLimiter) {
				require.True(w.t, must(l.Allow(w.ctx, 1))(w.t).Granted)
			},
			"a rejection": func(w *world, l *RateLimiter) {
				require.False(w.t, must(l.Allow(w.ctx, 5))(w.t).Granted)
			},
			"TryAcquireAll": func(w *world, l *RateLimiter) {
				other := l.client.RateLimiter(w.l.Name() + "#")
				require.NoError(w.t, other.SetRate(w.ctx, overall(5, time.Minute)))
				require.True(w.t, must(l.client.TryAcquireAll(w.ctx, 0, Demand{other, 1}, Demand{l, 1}))(w.t).Granted)
			},
			"Release": func(w *world, l *RateLimiter) { require.NoError(w.t, l.Release(w.ctx, 1)) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				inWorld(t, Rate{Type: PerClient, Permits: 5, Interval: time.Minute}, func(t *testing.T, w *world) {
					peer := newWorld(t, w.rdb, WithClientKeyTTL(keys.ttl))
					defer peer.client.Close()
					peer.l = peer.client.RateLimiter(w.l.Name())
					must(w.l.Admin().Expire(w.ctx, 10*time.Second))(t)
					peer.granted(2)
					must(w.l.Admin().ClearExpire(w.ctx))(t)
					next(w, peer.l)
					for _, key := range keysOf(peer.l, PerClient)[1:] {
						require.InDelta(t, keys.want, w.rdb.PTTL(w.ctx, key).Val(), float64(9*time.Second), key)
					}
					if redistest.TTLsAreVirtual() {
						before := must(peer.l.AvailablePermits(w.ctx))(t)
						w.at(30 * time.Second)
						peer.available(before)
					}
				})
			})
		}
	}
}

func paced(permits int64, interval, gap time.Duration) Rate {
	return Rate{Permits: permits, Interval: interval, MinGap: gap}
}

func TestMinGap(t *testing.T) {
	t.Run("permits leave one by one", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 50*time.Millisecond), func(t *testing.T, w *world) {
			for i := range 45 {
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.Equal(t, time.Duration(i)*50*time.Millisecond, w.elapsed(), i)
			}
		})
	})
	t.Run("a grant of n takes n gaps", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 10*time.Millisecond), func(t *testing.T, w *world) {
			w.granted(5)
			w.rejected(1, 50*time.Millisecond)
			w.at(49 * time.Millisecond)
			w.rejected(3, time.Millisecond)
			w.at(50 * time.Millisecond)
			w.granted(15)
			w.rejected(5, 950*time.Millisecond) // the window binds, not the gap
			w.at(time.Second)
			w.granted(5)
		})
	})
	// Nobody knows when a grant was made whose score is ahead of the clock. It keeps its gap from when it is first seen.
	t.Run("a score ahead of the clock stops it for one gap", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 50*time.Millisecond), func(t *testing.T, w *world) {
			w.put(time.Hour, grant(2))
			w.setValue(18)
			w.rejected(1, 100*time.Millisecond)
			w.at(100 * time.Millisecond)
			w.granted(1)
			w.rejected(1, 50*time.Millisecond)
			w.at(150 * time.Millisecond)
			w.granted(1)
		})
	})
	for _, step := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 5 * time.Second, time.Hour} {
		t.Run(fmt.Sprint("the clock is put back by ", step), func(t *testing.T) {
			inWorld(t, paced(20, 10*time.Second, time.Second), func(t *testing.T, w *world) {
				putBack := func() { // the scores are as much further ahead
					for _, z := range w.rdb.ZRangeByScoreWithScores(w.ctx, w.permitsKey(), &redis.ZRangeBy{Min: "1", Max: "+inf"}).Val() {
						require.NoError(t, w.rdb.ZIncrBy(w.ctx, w.permitsKey(), float64(step.Milliseconds()), z.Member.(string)).Err())
					}
				}
				w.granted(1)
				putBack()
				require.Equal(t, time.Second, must(w.l.Peek(w.ctx, 1))(t).Wait)
				r := w.try(1)
				require.False(t, r.Granted)
				require.Equal(t, time.Second, r.Wait)
				require.Equal(t, step, r.ClockSkew)
				w.at(400 * time.Millisecond)
				list := []Demand{{Limiter: w.l, Permits: 1}, {Limiter: w.others(overall(5, time.Second))[0], Permits: 1}}
				all := must(w.client.TryAcquireAll(w.ctx, 0, list...))(t)
				require.False(t, all.Granted)
				require.Equal(t, 600*time.Millisecond, all.Wait)
				for i := range 12 { // also where the clock passes what was ahead of it
					require.NoError(t, w.l.Acquire(w.ctx, 1))
					require.Equal(t, time.Duration(1+i)*time.Second, w.elapsed(), i)
				}
				putBack()
				require.True(t, must(w.client.TryAcquireAll(w.ctx, time.Minute, list...))(t).Granted)
				require.Equal(t, 13*time.Second, w.elapsed())
			})
		})
	}
	t.Run("set, changed, taken away", func(t *testing.T) {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			r := paced(20, time.Second, 50*time.Millisecond)
			require.True(t, must(w.l.TrySetRate(w.ctx, r))(t))
			got := must(w.l.Rate(w.ctx))(t)
			require.Equal(t, r, got)
			require.Equal(t, "OVERALL 20/1s gap 50ms", got.String())
			w.granted(1)
			w.rejected(1, 50*time.Millisecond)
			r.MinGap = 0
			require.NoError(t, w.l.SetRate(w.ctx, r))
			w.granted(20)
			require.Equal(t, r, must(w.l.Rate(w.ctx))(t))
			for _, gap := range []time.Duration{-1, time.Microsecond, time.Second + time.Millisecond} {
				r.MinGap = gap
				require.ErrorIs(t, w.l.SetRate(w.ctx, r), ErrInvalidArgument)
			}
		})
	})
}

// TestRateLoweredOverALargeSetUnderLoad lowers the rate of a limiter with more members than one call reads, while
// another process takes every permit that it gets. No window may hold a grant that the new rate does not have room
// for: not before the calls that settle the permits in use, not between them, and not if they are never made.
func TestRateLoweredOverALargeSetUnderLoad(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	const used, interval = 1200, 12 * time.Second
	for name, c := range map[string]struct {
		value int64 // that the limiter has before, of a rate of value + used
		lost  bool
		rate  int64
		fails bool // the caller is gone before it has settled the permits in use
		twice bool // two do it at the same time
	}{
		"lowered":                        {rate: 100},
		"lowered, and some are free":     {value: 500, rate: 100},
		"lowered, and the value is lost": {lost: true, rate: 100},
		"lowered, and nobody settles it": {value: 500, rate: 100, fails: true},
		"lowered by two at once":         {value: 500, rate: 100, twice: true},
		"raised":                         {value: 10, rate: 1250},
		"raised, and nobody settles it":  {value: 10, rate: 1250, fails: true},
		"the same, and nobody settles":   {value: 100, rate: 1300, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(c.value+used, interval), func(t *testing.T, w *world) {
				var log grantlog.Ledger
				for i := range used { // one every 10 ms, the oldest of which have expired already
					at := -interval - time.Second + time.Duration(i)*10*time.Millisecond
					w.put(at, grant(1))
					log.Add(grantlog.At(w.epoch.Add(at), 1))
				}
				w.setValue(c.value)
				if c.lost {
					require.NoError(t, w.rdb.Del(w.ctx, w.valueKey()).Err())
				}
				peer := w.another()
				_, err := peer.l.Peek(w.ctx, 1)
				require.NoError(t, err)

				ctx, cancel := context.WithCancel(w.ctx)
				hold(w, 50*time.Millisecond)
				var updating sync.WaitGroup
				defer updating.Wait()
				defer cancel()
				updating.Go(func() { err = w.l.SetRate(ctx, overall(c.rate, interval), KeepState()) })
				if c.twice {
					second := newWorld(t, redistest.Peer(t, w.rdb))
					defer second.client.Close()
					hold(second, 70*time.Millisecond)
					l := second.client.RateLimiter(w.l.Name())
					updating.Go(func() { _ = l.SetRate(ctx, overall(c.rate, interval), KeepState()) })
				}
				time.Sleep(time.Millisecond) // the first script has run
				if c.fails {
					cancel()
				}
				for begin := w.elapsed(); w.elapsed() < begin+interval; {
					if peer.try(1).Granted {
						log.Add(grantlog.At(time.Now(), 1))
						require.LessOrEqual(t, log.Told().After(time.Now().Add(-interval)).Permits(), c.rate, "permits in the window at %v", w.elapsed())
					}
					if time.Sleep(5 * time.Millisecond); w.elapsed() > begin+time.Second {
						time.Sleep(25 * time.Millisecond)
					}
				}
				if updating.Wait(); c.fails {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.NoError(t, err)
				}
				time.Sleep(interval)
				peer.granted(c.rate)
				w.settled(c.rate)
			})
		})
	}
}

// TestErrorsOfParseRate checks that the error about a text says what is accepted, and quotes no more than the beginning of a long one.
func TestErrorsOfParseRate(t *testing.T) {
	for text, want := range map[string]string{
		"1/1ns":             "Rate.Interval 1ns is not a positive number of microseconds",
		"1/1500ns":          "Rate.Interval 1.5µs is not a positive number of microseconds",
		"1/-1ms":            "Rate.Interval -1ms is not a positive number of microseconds",
		"1/0s":              "Rate.Interval 0s is not a positive number of microseconds",
		"0/s":               "Rate.Permits 0 is not in 1..4294967295",
		"PER_CLIENT 1/1us":  "Rate.Interval 1µs is not a whole number of milliseconds",
		"ten/s":             `the rate "ten/s" does not begin with a number of permits, as 10/s does`,
		"OVERALL 1/s gap x": `the gap of the rate "OVERALL 1/s gap x" is no duration`,
	} {
		_, err := ParseRate(text)
		require.ErrorIs(t, err, ErrInvalidArgument, text)
		require.ErrorContains(t, err, want)
	}
	long := strings.Repeat("ö", 50_000)
	for _, text := range []string{long, "1/" + long, long + "/s", "1/s " + long, long + " 1/s", "OVERALL 1/s " + long, "OVERALL 1/s gap " + long, "OVERALL 1/s keep-alive " + long, "OVERALL 1/s " + strings.Repeat(" \x00", 50_000)} {
		_, err := ParseRate(text)
		require.ErrorIs(t, err, ErrInvalidArgument)
		require.Less(t, len(err.Error()), 400, text[:20])
		require.Contains(t, err.Error(), "…")
		require.NotContains(t, err.Error(), `\xc3`, "half a letter")
	}
}

// FuzzParseRate checks that a rate that is parsed is valid, and that String is its inverse.
func FuzzParseRate(f *testing.F) {
	for text, want := range map[string]Rate{
		"10/s": PerSecond(10), "10/m": PerMinute(10), "3/h": PerHour(3), "1/500ms": Every(500 * time.Millisecond), "100/1m30s": overall(100, 90*time.Second),
		"10/min": PerMinute(10), "10/sec": PerSecond(10), "5/10min": overall(5, 10*time.Minute), "5/1.5h": overall(5, 90*time.Minute), "100/d": overall(100, 24*time.Hour), "100/7day": overall(100, 7*24*time.Hour), "3/hour": PerHour(3),
		"1/5µs": Every(5 * time.Microsecond), "7/us": overall(7, time.Microsecond), "7/1001500us": overall(7, 1001500*time.Microsecond), // for package limit
		"PER_CLIENT 5/10s keep-alive 1h0m0s gap 1s": {Type: PerClient, Permits: 5, Interval: 10 * time.Second, KeepAlive: time.Hour, MinGap: time.Second},
		"OVERALL 5/10s gap 1s":                      {Permits: 5, Interval: 10 * time.Second, MinGap: time.Second},
	} {
		got, err := ParseRate(text)
		require.NoError(f, err, text)
		require.Equal(f, want, got, text)
		f.Add(text)
	}
	for _, text := range []string{"", "10", "/s", "10/", "10/10", "0/s", "10/0s", "10/1ns", "10/1500ns", "5000000000/s", "10/-1us", "PER_CLIENT 10/1us", "OVERALL 10/1us gap 1us", " 10/s", "10/s ", "x 10/s", "10/s gap 1s", "OVERALL 5/10s gap", "OVERALL 5/10s gap 0s",
		"OVERALL 5/10s gap 11s", "OVERALL 5/10s gap 1s keep-alive 1h", "1e3/s", "99999999999999999999/s", "10/-s", "10/h0.5m", "10/s1h", "10/s/s", "10 per second", "10/1d12h", "10/2days", "10/106752d", "10/99999999999999999999d", "10/1.5day", "10/d1", "10/-1d", "10/0day"} {
		_, err := ParseRate(text)
		require.ErrorIs(f, err, ErrInvalidArgument, text)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRate(text)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidArgument)
			require.Zero(t, r)
			return
		}
		if r.Interval%time.Millisecond == 0 {
			require.NoError(t, r.validate())
		} else {
			require.ErrorIs(t, r.validate(), ErrInvalidArgument)
			require.Zero(t, r.Interval%time.Microsecond)
		}
		again, err := ParseRate(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

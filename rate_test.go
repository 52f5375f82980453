package ratelimiter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestRateTypeText(t *testing.T) {
	for typ, text := range map[RateType]string{Overall: "OVERALL", PerClient: "PER_CLIENT"} {
		require.Equal(t, text, typ.String())
		b, err := json.Marshal(map[string]RateType{"type": typ})
		require.NoError(t, err)
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
		ok, err := w.l.TrySetRate(w.ctx, first)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, map[string]string{"rate": "5", "interval": "10000", "keepAliveTime": "0", "type": "0"},
			w.rdb.HGetAll(w.ctx, w.l.redis.Keys.Hash).Val())
		ok, err = w.l.TrySetRate(w.ctx, Rate{Type: PerClient, Permits: 9, Interval: time.Second, KeepAlive: time.Minute})
		require.NoError(t, err)
		require.False(t, ok)
		got, err := w.l.Rate(w.ctx)
		require.NoError(t, err)
		require.Equal(t, first, got)
		require.Equal(t, noTTL, w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val())

		// This hash was made by Redisson 3.37 or older, to which Redisson's own trySetRate would add
		// keepAliveTime even though it returns false.
		require.NoError(t, w.rdb.HDel(w.ctx, w.l.redis.Keys.Hash, "keepAliveTime").Err())
		ok, err = w.l.TrySetRate(w.ctx, Rate{Type: PerClient, Permits: 9, Interval: time.Second, KeepAlive: time.Minute})
		require.NoError(t, err)
		require.False(t, ok)
		require.False(t, w.rdb.HExists(w.ctx, w.l.redis.Keys.Hash, "keepAliveTime").Val())
		got, err = w.l.Rate(w.ctx)
		require.NoError(t, err)
		require.Equal(t, first, got)

		// Half a hash is completed.
		require.NoError(t, w.rdb.HDel(w.ctx, w.l.redis.Keys.Hash, "type", "rate").Err())
		ok, err = w.l.TrySetRate(w.ctx, Rate{Type: Overall, Permits: 7, Interval: time.Second, KeepAlive: time.Minute})
		require.NoError(t, err)
		require.True(t, ok)
		got, err = w.l.Rate(w.ctx)
		require.NoError(t, err)
		require.Equal(t, Rate{Permits: 7, Interval: 10 * time.Second, KeepAlive: time.Minute}, got)
		require.InDelta(t, time.Minute, w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val(), float64(time.Second))
	})
}

func TestSetRateAndUpdateRate(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		ok, err := w.l.UpdateRate(w.ctx, overall(5, time.Second))
		require.NoError(t, err)
		require.False(t, ok)
		exists, err := w.l.Exists(w.ctx)
		require.NoError(t, err)
		require.False(t, exists)
		_, err = w.l.Rate(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		_, err = w.l.Allow(w.ctx, 1)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, w.l.Name())
		_, err = w.l.AvailablePermits(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorIs(t, w.l.Release(w.ctx, 1), ErrNotInitialized)

		require.NoError(t, w.l.SetRate(w.ctx, overall(5, time.Second), KeepState()), "also when there is none")
		w.available(5)
		w.granted(5)
		ok, err = w.l.UpdateRate(w.ctx, overall(5, time.Second))
		require.NoError(t, err)
		require.True(t, ok)
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
			require.InDelta(t, want, d, float64(2*time.Second))
		}
	}
	for _, typ := range []RateType{Overall, PerClient} {
		inWorld(t, Rate{Type: typ, Permits: 2, Interval: time.Second, KeepAlive: time.Hour}, func(t *testing.T, w *world) {
			require.InDelta(t, time.Hour, ttls(w)[0], float64(2*time.Second))
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
			ok, err := w.l.Expire(w.ctx, 20*time.Minute)
			require.NoError(t, err)
			require.True(t, ok)
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
			return w.l.Heal(w.ctx)
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
		_, err := w.l.TTL(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, w.l.Name())
		ok, err := w.l.Expire(w.ctx, time.Hour)
		require.NoError(t, err)
		require.False(t, ok, "nothing to expire")
		_, err = w.l.ExpireTime(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		ok, err = w.l.ClearExpire(w.ctx)
		require.NoError(t, err)
		require.False(t, ok)
		ok, err = w.l.Delete(w.ctx)
		require.NoError(t, err)
		require.False(t, ok)

		require.NoError(t, w.l.SetRate(w.ctx, overall(3, time.Second)))
		w.granted(1)
		ttl, err := w.l.TTL(w.ctx)
		require.NoError(t, err)
		require.Zero(t, ttl, "it does not expire")
		at, err := w.l.ExpireTime(w.ctx)
		require.NoError(t, err)
		require.Zero(t, at)
		require.NoError(t, w.rdb.PExpire(w.ctx, w.l.Name(), time.Hour).Err())
		ttl, err = w.l.TTL(w.ctx)
		require.NoError(t, err)
		require.InDelta(t, time.Hour, ttl, float64(time.Second))
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
			ok, err := w.l.Expire(w.ctx, c.ttl, c.cond)
			require.NoError(t, err)
			require.Equal(t, c.took, ok, "%d", i)
			for _, k := range keysOf(w.l, Overall) {
				got := w.rdb.PTTL(w.ctx, k).Val()
				if c.left == noTTL {
					require.Equal(t, noTTL, got, "%d %s", i, k)
				} else {
					require.InDelta(t, c.left, got, float64(time.Second), "%d %s", i, k)
				}
			}
		}
		ok, err = w.l.ClearExpire(w.ctx)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = w.l.Expire(w.ctx, time.Minute, IfNotSet())
		require.NoError(t, err)
		require.True(t, ok)

		now := w.rdb.Time(w.ctx).Val() // TTLs follow the clock of Redis
		ok, err = w.l.ExpireAt(w.ctx, now.Add(2*time.Hour), IfGreater())
		require.NoError(t, err)
		require.True(t, ok)
		at, err = w.l.ExpireTime(w.ctx)
		require.NoError(t, err)
		require.InDelta(t, now.Add(2*time.Hour).UnixMilli(), at.UnixMilli(), 20)
		ttl, err = w.l.TTL(w.ctx)
		require.NoError(t, err)
		require.InDelta(t, 2*time.Hour, ttl, float64(time.Second))

		sent := count(w.rdb)
		for _, d := range []time.Duration{0, -time.Second, time.Millisecond - 1, time.Second + 1} {
			_, err = w.l.Expire(w.ctx, d)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", d)
		}
		_, err = w.l.ExpireAt(w.ctx, time.Time{})
		require.ErrorIs(t, err, ErrInvalidArgument)
		_, err = w.l.Expire(w.ctx, time.Hour, IfSet(), IfLess())
		require.ErrorIs(t, err, ErrInvalidArgument)
		require.Zero(t, sent.sent.Load())

		ok, err = w.l.ExpireAt(w.ctx, now.Add(-time.Hour))
		require.NoError(t, err)
		require.True(t, ok)
		exists, err := w.l.Exists(w.ctx)
		require.NoError(t, err)
		require.False(t, exists)
	})
}

func TestDeleteRemovesAllThatCanBeNamed(t *testing.T) {
	for _, typ := range []RateType{Overall, PerClient} {
		inWorld(t, Rate{Type: typ, Permits: 3, Interval: time.Second}, func(t *testing.T, w *world) {
			w.granted(3)
			exists, err := w.l.Exists(w.ctx)
			require.NoError(t, err)
			require.True(t, exists)
			ok, err := w.l.Delete(w.ctx)
			require.NoError(t, err)
			require.True(t, ok)
			require.Zero(t, w.rdb.Exists(w.ctx, keysAll(w.l, Overall)...).Val())
			keys, err := w.rdb.Keys(w.ctx, "*"+w.l.Name()+"*").Result()
			require.NoError(t, err)
			require.Empty(t, keys)
		})
	}
}

// With PER_CLIENT each client has the whole rate and does not see the permits of others.
func TestPerClient(t *testing.T) {
	inWorld(t, Rate{Type: PerClient, Permits: 3, Interval: time.Second}, func(t *testing.T, w *world) {
		peer := newWorld(t, redistest.Peer(t, w.rdb))
		peer.l = peer.client.RateLimiter(w.l.Name())
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
			require.InDelta(t, want, w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val(), float64(2*time.Second))
			require.InDelta(t, want, w.rdb.PTTL(w.ctx, w.valueKey()).Val(), float64(2*time.Second))
		})
	}
	inWorld(t, Rate{Type: PerClient, Permits: 5, Interval: time.Second}, func(t *testing.T, w *world) {
		require.NoError(t, w.l.Release(w.ctx, 1))
		require.InDelta(t, time.Hour, w.rdb.PTTL(w.ctx, w.valueKey()).Val(), float64(2*time.Second))
	})
}

// TestRateOfALargeHash checks that Rate and Inspect read the fields of a limiter and not whatever else is in its hash.
func TestRateOfALargeHash(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	w := newWorld(t, s.Client(t))
	r := Rate{Type: PerClient, Permits: 7, Interval: time.Minute, KeepAlive: time.Hour, MinGap: time.Second}
	require.NoError(t, w.l.SetRate(w.ctx, r))
	fill := "for i = 1, 200000 do redis.call('HSET', KEYS[1], 'field ' .. i, 'x') end return 0"
	require.NoError(t, w.rdb.Eval(w.ctx, fill, []string{w.l.redis.Keys.Hash}).Err())
	m := &cpuMeter{t: t, admin: s.Client(t)}
	begin := m.used()
	got, err := w.l.Rate(w.ctx)
	require.NoError(t, err)
	require.Equal(t, r, got)
	state, err := w.l.Inspect(w.ctx)
	require.NoError(t, err)
	require.Equal(t, r, state.Rate)
	require.Len(t, state.Fields, 5)
	require.Less(t, m.used()-begin, 10*time.Millisecond)
}

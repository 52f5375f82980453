package ratelimiter

import (
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// These are the rows of docs/compatibility.md about clocks, waiters and clients; see behaviour_state_test.go.

// In Redisson a client whose clock is 60 s fast makes the others wait for 61 s.
func TestRow13_ScoreInTheFuture(t *testing.T) {
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
			m, err := wire.ParseMember([]byte(z.Member.(string)))
			require.NoError(t, err)
			require.EqualValues(t, 2, m.Permits)
		}
		w.at(500 * time.Millisecond)
		w.rejected(4, 500*time.Millisecond)
		ok, err := w.l.TryAcquire(w.ctx, 10, time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
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
func TestRow13_ClockOfRedis(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		w := newWorld(t, rdb)
		theirs := newClient(t, rdb)
		l := theirs.RateLimiter(w.l.Name())
		require.NoError(t, l.SetRate(w.ctx, overall(10, time.Hour)))
		r, err := l.Allow(w.ctx, 1)
		require.NoError(t, err)
		now := rdb.Time(w.ctx).Val()
		require.InDelta(t, now.UnixMilli(), r.Time.UnixMilli(), 5000)
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
func TestRow14_LocalWaitersWakeAtOnce(t *testing.T) {
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
		"delete":     {change: func(w *world) error { _, err := w.l.Delete(w.ctx); return err }, want: ErrNotInitialized},
		"close":      {change: func(w *world) error { return w.client.Close() }, want: ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
				w.granted(10)
				done := make(chan outcome)
				go func() {
					ok, err := w.client.RateLimiter(w.l.Name()).TryAcquire(w.ctx, 10, time.Minute)
					done <- outcome{ok, err, w.elapsed()}
				}()
				w.at(3 * time.Second)
				require.NoError(t, c.change(w))
				got := <-done
				require.Equal(t, 3*time.Second, got.at)
				if c.want != nil {
					require.ErrorIs(t, got.err, c.want)
					return
				}
				require.NoError(t, got.err)
				require.True(t, got.ok)
			}, WithRecheck(time.Hour))
		})
	}
	t.Run("elsewhere", func(t *testing.T) {
		inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
			w.granted(10)
			peer := newWorld(t, w.rdb)
			peer.l = peer.client.RateLimiter(w.l.Name())
			go func() {
				w.at(3500 * time.Millisecond)
				_ = peer.l.Release(peer.ctx, 1)
			}()
			ok, err := w.l.TryAcquire(w.ctx, 1, time.Minute)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, 4*time.Second, w.elapsed()) // when it asks again, a second after the last time
		})
	})
}

// Alibaba Cloud's proxy rejects scripts that keep key names in locals (issues 2754, 3325, 3900).
func TestRow15_TypeIsToldNotGuessed(t *testing.T) {
	for _, s := range allScripts() {
		for i, line := range strings.Split(strings.ReplaceAll(s.Src, "redis.pcall(", "redis.call("), "\n") {
			_, rest, ok := strings.Cut(line, "redis.call(")
			for ok {
				args := rest
				cmd, _, _ := strings.Cut(args, ",")
				if cmd = strings.Trim(cmd, "' )"); cmd != "TIME" {
					require.Regexp(t, `^'[A-Z]+', KEYS\[\d+\]`, args, "%s:%d", s.Name, i+1)
				}
				_, rest, ok = strings.Cut(rest, "redis.call(")
			}
		}
		require.NotContains(t, s.Src, "struct.", s.Name)
		require.NotContains(t, s.Src, "unpack(", s.Name)
	}
	inWorld(t, Rate{Type: PerClient, Permits: 10, Interval: time.Second}, func(t *testing.T, w *world) {
		peer := newWorld(t, w.rdb) // it has not set the rate and does not know the type
		peer.l = peer.client.RateLimiter(w.l.Name())
		for _, s := range allScripts() { // the first call may be a check, which another script makes
			require.NoError(t, w.rdb.ScriptLoad(w.ctx, s.Src).Err())
		}
		sent := count(w.rdb)
		peer.granted(4)
		require.EqualValues(t, 2, sent.sent.Load(), "told the type, then sent with the right keys")
		peer.granted(4)
		require.EqualValues(t, 3, sent.sent.Load(), "the type is remembered")
		w.granted(4)
		require.EqualValues(t, 4, sent.sent.Load(), "who sets the rate knows the type")
	})
	t.Run("type changes under a waiting caller", func(t *testing.T) {
		inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
			w.granted(1)
			peer := newWorld(t, w.rdb)
			set := make(chan error)
			go func() {
				time.Sleep(10 * time.Second)
				set <- peer.client.RateLimiter(w.l.Name()).SetRate(w.ctx, Rate{Type: PerClient, Permits: 1, Interval: time.Minute})
			}()
			require.NoError(t, w.l.Acquire(w.ctx, 1))
			require.NoError(t, <-set)
			require.LessOrEqual(t, w.elapsed(), 11*time.Second)
			r, err := w.l.Rate(w.ctx)
			require.NoError(t, err)
			require.Equal(t, PerClient, r.Type)
			require.EqualValues(t, 0, w.value())
			n, err := w.l.AvailablePermits(w.ctx)
			require.NoError(t, err)
			require.Zero(t, n)
			require.NoError(t, w.l.Release(w.ctx, 1))
			w.available(1)
		})
	})
}

// In Redisson the keys of a client that is gone live forever.
func TestRow17_ClientKeysExpire(t *testing.T) {
	perClient := func(interval time.Duration) Rate { return Rate{Type: PerClient, Permits: 2, Interval: interval} }
	ttls := func(w *world) []time.Duration {
		return []time.Duration{w.rdb.PTTL(w.ctx, w.valueKey()).Val(), w.rdb.PTTL(w.ctx, w.permitsKey()).Val(),
			w.rdb.PTTL(w.ctx, w.l.redis.Keys.Hash).Val()}
	}
	near := func(t *testing.T, want time.Duration, got []time.Duration) {
		t.Helper()
		require.InDelta(t, want, got[0], float64(5*time.Second))
		require.InDelta(t, want, got[1], float64(5*time.Second))
		require.Equal(t, noTTL, got[2], "the limiter itself stays")
	}
	inWorld(t, perClient(25*time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		near(t, time.Hour, ttls(w))
		if redistest.TTLsAreVirtual() {
			w.at(20 * time.Minute)
			w.granted(1)
			near(t, 40*time.Minute, ttls(w)[:3])
			w.at(45 * time.Minute) // past half: refreshed
			w.granted(1)
			near(t, time.Hour, ttls(w))
			w.at(3 * time.Hour)
			require.EqualValues(t, -1, w.value())
			w.granted(2)
			w.rejected(1, 25*time.Minute)
		}
	})
	inWorld(t, perClient(3*time.Hour), func(t *testing.T, w *world) {
		w.granted(1)
		near(t, 6*time.Hour, ttls(w))
	})
	inWorld(t, perClient(time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		near(t, time.Minute, ttls(w))
	}, WithClientKeyTTL(time.Minute))
	inWorld(t, perClient(time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		require.Equal(t, []time.Duration{noTTL, noTTL, noTTL}, ttls(w))
	}, WithClientKeyTTL(0))
	inWorld(t, overall(2, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		require.Equal(t, []time.Duration{noTTL, noTTL, noTTL}, ttls(w))
	})
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

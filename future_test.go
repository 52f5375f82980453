package ratelimiter

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// ahead puts n grants of one permit each into the set, d ahead of the clock of Redis and a millisecond apart.
func (w *world) ahead(d time.Duration, n int) {
	w.t.Helper()
	at, zs := w.rdb.Time(w.ctx).Val().Add(d), make([]redis.Z, n)
	if !redistest.TTLsAreVirtual() && w.client.cfg.clientClock {
		at = time.Now().Add(d)
	}
	for i := range zs {
		zs[i] = redis.Z{Score: float64(at.UnixMilli() + int64(i)), Member: grant(1)}
	}
	require.NoError(w.t, w.rdb.ZAdd(w.ctx, w.permitsKey(), zs...).Err())
}

// marks returns the members of the set that are marks.
func (w *world) marks() []string {
	return slices.DeleteFunc(w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val(), func(m string) bool { return !strings.HasPrefix(m, "\x10~t~") })
}

// marked returns how many members of the set are marks.
func (w *world) marked() int { return len(w.marks()) }

// TestThousandsOfScoresInTheFuture checks that the permits that peers with fast clocks took are back one interval after
// the first rejection, however many members they are.
func TestThousandsOfScoresInTheFuture(t *testing.T) {
	n := 5000
	if redistest.TTLsAreVirtual() {
		n = 1000 // on miniredis thousands take long
	}
	t.Run("one peer", func(t *testing.T) {
		inWorld(t, overall(int64(n), time.Second), func(t *testing.T, w *world) {
			w.ahead(time.Minute, n)
			w.setValue(0)
			w.rejected(1, time.Second)
			require.Equal(t, n, w.marked())
			ok, err := w.l.TryAcquire(w.ctx, int64(n), time.Hour)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, time.Second, w.elapsed())
			w.rejected(1, time.Second)
			w.settled(int64(n))
		})
	})
	t.Run("small requests", func(t *testing.T) {
		inWorld(t, overall(int64(n), time.Second), func(t *testing.T, w *world) {
			w.ahead(time.Minute, n)
			w.setValue(0)
			w.rejected(1, time.Second)
			w.at(time.Second)
			for range n / 500 {
				granted, _, err := together(w.ctx, w.l, 1, 500)
				require.NoError(t, err)
				require.EqualValues(t, 500, granted)
			}
			w.rejected(1, time.Second)
			w.settled(int64(n))
		})
	})
	t.Run("two peers, the slower one later", func(t *testing.T) {
		inWorld(t, overall(2*int64(n), time.Second), func(t *testing.T, w *world) {
			w.ahead(time.Minute, n)
			w.setValue(n)
			w.rejected(2*int64(n), time.Second)
			w.at(500 * time.Millisecond)
			w.ahead(30*time.Second, n)
			w.setValue(0)
			require.False(t, w.try(1).Granted)
			require.GreaterOrEqual(t, w.marked(), 2*n*97/100, "the calls after one rejection look at 32 places")
			for w.marked() < 2*n && w.elapsed() < 540*time.Millisecond { // and those of a later one at others
				time.Sleep(time.Millisecond)
				require.False(t, w.try(1).Granted)
			}
			require.Equal(t, 2*n, w.marked())
			ok, err := w.l.TryAcquire(w.ctx, 2*int64(n), time.Hour)
			require.NoError(t, err)
			require.True(t, ok)
			require.LessOrEqual(t, w.elapsed(), 1540*time.Millisecond)
			w.settled(2 * int64(n))
		})
	})
}

// TestScoresInTheFutureAreMarkedInBoundedCalls checks that no call takes Redis long, however many there are.
func TestScoresInTheFutureAreMarkedInBoundedCalls(t *testing.T) {
	redistest.NeedReal(t)
	const n = 50_000
	s := redistest.Start(t)
	w := newWorld(t, s.Client(t), func(c *config) { c.clientClock = false })
	require.NoError(t, w.l.SetRate(w.ctx, overall(n, 3*time.Second)))
	for i := range n / 1000 {
		w.ahead(time.Hour+time.Duration(i)*time.Second, 1000)
	}
	w.setValue(0)
	m := &cpuMeter{t: t, admin: s.Client(t)}
	w.rdb.AddHook(m)
	begin := w.rdb.Time(w.ctx).Val()
	// On a slow machine the interval of the first marks is over before the last is made, and on a very slow one that of all.
	if !w.try(n).Granted {
		require.EqualValues(t, n, int64(w.marked())+w.value(), "all are marked, or were and are free again")
		require.NoError(t, w.l.Acquire(w.ctx, n))
	}
	t.Logf("served after %v", w.rdb.Time(w.ctx).Val().Sub(begin))
	require.Greater(t, m.requireBounded(), n/192, "in calls of a bounded number of members")
}

// javaGrant returns a grant as Redisson 3.21.0 writes it.
func javaGrant(permits uint32) []byte {
	return redistest.LuaPack("BcI", 16, []byte("0123456789abcdef"), permits)
}

// TestPermitsOfAFastClockAreBackAfterAnInterval checks the instant at which the permits of a peer with a fast clock are
// back, for a process that did not check the state at that instant. The score of the grant lies 5 s ahead at first, and
// has passed when its permits are back.
func TestPermitsOfAFastClockAreBackAfterAnInterval(t *testing.T) {
	const interval = 20 * time.Second
	for name, takes := range map[string]func(w *world){
		"a try":            func(w *world) { w.at(interval); w.granted(10) },
		"a waiter":         func(w *world) { require.NoError(w.t, w.l.Acquire(w.ctx, 10)) },
		"AvailablePermits": func(w *world) { w.at(interval); w.available(10) },
		"a list": func(w *world) {
			w.at(interval)
			r, err := w.client.TryAcquireAll(w.ctx, 0, Demand{Limiter: w.l, Permits: 10})
			require.NoError(w.t, err)
			require.True(w.t, r.Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, interval), func(t *testing.T, w *world) {
				w.put(5*time.Second, javaGrant(10))
				w.setValue(0)
				other := w.otherProcess()
				defer other.Close()
				ok, err := other.RateLimiter(w.l.Name()).TryAcquire(w.ctx, 1, 0)
				require.NoError(t, err)
				require.False(t, ok)
				require.Equal(t, 1, w.marked())
				w.at(time.Second)
				w.rejected(1, interval-time.Second) // this process checks at 1 and 21 s
				takes(w)
				require.Equal(t, interval, w.elapsed())
			})
		})
	}
}

// TestPermitsTakenAheadOfAFastClock checks that a caller that takes its permits ahead of their return has them when
// the marks of a peer with a fast clock are spent, however far ahead their scores lie, and also if the clock of Redis is
// set back in the meantime.
func TestPermitsTakenAheadOfAFastClock(t *testing.T) {
	const interval = 20 * time.Second
	for _, ahead := range []time.Duration{5 * time.Second, time.Hour} {
		for _, setBack := range []bool{false, true} {
			t.Run(fmt.Sprint(ahead, ", set back ", setBack), func(t *testing.T) {
				inWorld(t, overall(10, interval), func(t *testing.T, w *world) {
					w.put(ahead, redistest.LuaPack("BcI", 16, []byte("aaaaaaaaaaaaaaaa"), 5))
					w.setValue(5)
					done := make(chan error)
					go func() { done <- w.l.Acquire(w.ctx, 10) }()
					w.at(14500 * time.Millisecond)
					w.put(14500*time.Millisecond+ahead, javaGrant(5))
					w.setValue(0)
					w.at(15 * time.Second) // at which the waiter asks
					synctest.Wait()
					require.Equal(t, 2, w.marked())
					for w.value() >= -2 { // of which one may be a tripwire
						time.Sleep(10 * time.Millisecond)
					}
					began := w.elapsed()
					require.Less(t, began, 21*time.Second, "the waiter takes them ahead")
					if !setBack {
						require.NoError(t, <-done)
						require.Equal(t, 15*time.Second+interval, w.elapsed().Truncate(time.Millisecond))
						return
					}
					for _, m := range w.marks() { // grants that are no longer known to have been seen
						require.NoError(t, w.rdb.ZRem(w.ctx, w.permitsKey(), m).Err())
						w.put(time.Hour, javaGrant(5))
					}
					require.NoError(t, <-done)
					require.LessOrEqual(t, w.elapsed(), began+interval/2+interval, "it looks twice an interval")
				})
			})
		}
	}
}

// TestACoolDownKeepsWhenAMarkIsSpent checks that a cool-down that is lifted gives the permits of a peer with a fast clock
// back an interval after they were first seen.
func TestACoolDownKeepsWhenAMarkIsSpent(t *testing.T) {
	for name, at := range map[string]time.Duration{"score ahead": 2 * time.Second, "score passed": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, 20*time.Second), func(t *testing.T, w *world) {
				w.put(5*time.Second, javaGrant(10))
				w.setValue(0)
				w.rejected(10, 20*time.Second)
				w.at(at)
				require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Hour)))
				w.at(12 * time.Second)
				_, err := w.l.LiftCoolDown(w.ctx)
				require.NoError(t, err)
				w.rejected(10, 8*time.Second)
				w.at(20 * time.Second)
				w.granted(10)
			})
		})
	}
}

// TestSpentMarksAreReclaimedInBoundedCalls checks that no call takes Redis long in which marks are reclaimed whose score
// has passed, however many there are, and that nothing but their permits comes back.
func TestSpentMarksAreReclaimedInBoundedCalls(t *testing.T) {
	redistest.NeedReal(t)
	const n = 20_000
	for name, takes := range map[string]func(w *world){
		"acquire": func(w *world) { w.granted(n) },
		"reserve": func(w *world) {
			v := permit.Reservation{ID: redisson.RandomID().Run(0), Want: n, Ahead: true}
			for calls := 1; ; calls++ {
				a, err := w.l.redis.Reserve(w.ctx, v)
				require.NoError(w.t, err)
				require.EqualValues(w.t, n, a.Held)
				if v.Held = a.Held; a.Lacking == 0 {
					require.GreaterOrEqual(w.t, calls, n/128)
					return
				}
				require.EqualValues(w.t, n-128*calls, a.Lacking)
				require.Equal(w.t, time.Millisecond, a.Wait)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			w := newWorld(t, s.Client(t), func(c *config) { c.clientClock = false })
			require.NoError(t, w.l.SetRate(w.ctx, overall(n, time.Hour)))
			now := w.rdb.Time(w.ctx).Val()
			for i := range n / 1000 {
				zs := make([]redis.Z, 1000)
				for j := range zs {
					m := slices.Concat([]byte("\x10~t~\x01\x00\x00\x00"), binary.BigEndian.AppendUint64(nil, uint64(now.Add(-time.Hour).UnixMilli()))[2:],
						[]byte{byte(i), byte(j), byte(j >> 8), 1, 0, 0, 0})
					zs[j] = redis.Z{Score: float64(now.Add(-time.Minute).UnixMilli()), Member: m}
				}
				require.NoError(t, w.rdb.ZAdd(w.ctx, w.permitsKey(), zs...).Err())
			}
			w.setValue(0)
			m := &cpuMeter{t: t, admin: s.Client(t)}
			w.rdb.AddHook(m)
			takes(w)
			used, _ := w.used()
			require.EqualValues(t, n, used)
			require.Zero(t, w.value())
			m.requireBounded()
		})
	}
}

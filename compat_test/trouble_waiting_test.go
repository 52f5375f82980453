// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// noticed bounds the time until a waiting caller of ours notices a change made by another process. With the default
// of WithRecheck that takes a second; without it the caller would wait for an hour. The rest allows for a busy
// machine.
const noticed = 15 * time.Second

// A trouble is a limiter with Java on one side and us on the other.
type trouble struct {
	testing.TB
	version version
	java    *peer
	rdb     *redis.Client
	name    string
	limiter *ratelimiter.RateLimiter
}

// eachTrouble runs f with the article's version, 4.7.0 and the newest version, concurrently: f sleeps most of the
// time.
func eachTrouble(t *testing.T, f func(t trouble)) {
	t.Helper()
	t.Parallel()
	versionsSteadily(t, func(t testing.TB, v version) { f(newTrouble(t, v)) }, oldestAndNewest)
}

func newTrouble(t testing.TB, v version) trouble {
	rdb := redistest.Client(t)
	java := fleet.peer(t, v)
	name := redistest.Key(t)
	return trouble{t, v, java, rdb, name, newGoSide(t, rdb, v, java.id).client.RateLimiter(name)}
}

// another creates a further limiter, through Java.
func (t trouble) another(permits int, interval time.Duration) trouble {
	t.Helper()
	t.name = redistest.Key(t)
	t.limiter = newGoSide(t, t.rdb, t.version, t.java.id).client.RateLimiter(t.name)
	require.True(t, t.java.truth(t, "trySetRate", t.name, overall, permits, interval))
	return t
}

func (t trouble) value() string   { return "{" + t.name + "}:value" }
func (t trouble) permits() string { return "{" + t.name + "}:permits" }

// try makes one call of ours.
func (t trouble) try(permits int64) ratelimiter.Result {
	t.Helper()
	r := redistest.Must(t.limiter.Allow(t.Context(), permits))(t)
	return r
}

// javaTries makes one call of Java's and reports whether it was granted.
func (t trouble) javaTries(permits int) bool {
	t.Helper()
	return t.java.truth(t, "tryAcquire", t.name, permits)
}

// spent takes n permits with one call of ours.
func (t trouble) spent(n int64) trouble {
	t.Helper()
	require.True(t, t.try(n).Granted)
	return t
}

// waiting makes a caller of ours wait for permits, and returns once it waits.
func (t trouble) waiting(permits int64) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { done <- t.limiter.Acquire(ctx, permits) }()
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, done, "it has to wait")
	return done
}

// javaWaiting makes a caller of Java's wait for permits, and returns once it waits.
func (t trouble) javaWaiting(permits int) *pending {
	t.Helper()
	call := t.java.begin("acquire", t.name, permits)
	time.Sleep(200 * time.Millisecond)
	require.True(t, call.running(), "it has to wait")
	return call
}

func (t trouble) within(limit time.Duration, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		require.FailNow(t, "still waiting", "after %v", limit)
		return nil
	}
}

// TestTroubleChangedByJava checks that callers of ours that wait notice what Java does to the limiter.
func TestTroubleChangedByJava(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		var waiting []func()
		for _, c := range []struct {
			waits  int64 // of 3 permits, which are used up for an hour
			change func(l trouble)
			want   error
			left   string // that Java finds afterwards
		}{
			{2, func(l trouble) { l.java.must(l, "setRate", l.name, overall, 5, time.Hour) }, nil, "3"},
			{3, func(l trouble) { l.java.must(l, "setRate", l.name, overall, 2, time.Hour) }, ratelimiter.ErrPermitsExceedRate, "2"},
			{1, func(l trouble) { l.java.must(l, "delete", l.name) }, ratelimiter.ErrNotInitialized, notInitialized},
			{1, func(l trouble) { l.java.must(l, "expire", l.name, 300*time.Millisecond) }, ratelimiter.ErrNotInitialized, notInitialized},
		} {
			l := t.another(3, time.Hour).spent(3)
			done := l.waiting(c.waits)
			c.change(l)
			waiting = append(waiting, func() {
				require.ErrorIs(t, l.within(300*time.Millisecond+noticed, done), c.want)
				require.Equal(t, c.left, javaSide{t.java}.do("availablePermits", l.name))
				if c.want == ratelimiter.ErrNotInitialized {
					require.Zero(t, t.rdb.Exists(t.Context(), l.name, l.value(), l.permits()).Val(), "our looks kept the state's TTL")
				}
			})
		}
		for _, done := range waiting {
			done()
		}
	})
}

// TestTroubleChangedByGo checks that a Java caller sleeps as long as it was told, whatever happens. When it tries again, it
// is told.
func TestTroubleChangedByGo(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		const interval = 1500 * time.Millisecond
		var waiting []func()
		began := time.Now()
		for _, c := range []struct {
			waits  int
			change func(l *ratelimiter.RateLimiter) error
			want   string // the error
		}{
			{2, func(l *ratelimiter.RateLimiter) error {
				return l.SetRate(t.Context(), ratelimiter.Rate{Permits: 5, Interval: time.Hour})
			}, ""},
			{3, func(l *ratelimiter.RateLimiter) error {
				return l.SetRate(t.Context(), ratelimiter.Rate{Permits: 2, Interval: time.Hour})
			}, "exceed defined rate"},
			{1, func(l *ratelimiter.RateLimiter) error { _, err := l.Delete(t.Context()); return err }, "not initialized"},
			{1, func(l *ratelimiter.RateLimiter) error {
				_, err := l.Expire(t.Context(), 100*time.Millisecond)
				return err
			}, "not initialized"},
		} {
			l := t.another(3, interval).spent(3)
			call := l.javaWaiting(c.waits)
			require.NoError(t, c.change(l.limiter))
			waiting = append(waiting, func() {
				_, err := call.wait(callLimit)
				if c.want != "" {
					require.ErrorContains(t, err, c.want)
					return
				}
				require.NoError(t, err)
				require.Greater(t, time.Since(began), interval-250*time.Millisecond, "nothing wakes Redisson's callers")
				require.EqualValues(t, 3, l.try(4).Available)
			})
		}
		for _, done := range waiting {
			done()
		}
	})
}

// TestTroubleClearExpireByJava checks that a limiter that was about to expire stays, and that our callers get what
// they waited for.
func TestTroubleClearExpireByJava(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		l := t.another(1, 2*time.Second)
		require.True(t, redistest.Must(l.limiter.Expire(t.Context(), time.Second))(t))
		done := l.spent(1).waiting(1)
		require.True(t, t.java.truth(t, "clearExpire", l.name))
		require.NoError(t, l.within(2*time.Second+noticed, done))
		for _, key := range []string{l.name, l.value(), l.permits()} {
			require.EqualValues(t, -1, t.rdb.PTTL(t.Context(), key).Val(), key)
		}
		require.False(t, l.javaTries(1))
	})
}

// TestTroubleMadeAnewByJava checks that our callers are served when the limiter is deleted and made anew, or get an error if
// they look between the two.
func TestTroubleMadeAnewByJava(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		l := t.another(1, time.Hour).spent(1)
		served := l.waiting(1)
		require.True(t, t.java.truth(t, "delete", l.name))
		require.True(t, t.java.truth(t, "trySetRate", l.name, overall, 2, time.Hour))
		if err := l.within(noticed, served); err != nil {
			require.ErrorIs(t, err, ratelimiter.ErrNotInitialized)
			l.spent(1)
		}
		require.EqualValues(t, 1, t.java.number(t, "availablePermits", l.name))
	})
}

// TestTroubleIdleForTwoWindows checks that permits that expired long ago come back once.
func TestTroubleIdleForTwoWindows(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		const interval = 700 * time.Millisecond
		byGo, byJava := t.another(7, interval).spent(7), t.another(7, interval)
		require.True(t, byJava.javaTries(7))
		time.Sleep(2*interval + 50*time.Millisecond)
		for _, l := range []trouble{byGo, byJava} {
			require.EqualValues(t, 7, redistest.Must(l.limiter.AvailablePermits(t.Context()))(t))
		}
		require.True(t, byGo.javaTries(7))
		require.False(t, byGo.javaTries(1))
		require.False(t, byGo.try(1).Granted)
		byJava.spent(7)
		require.False(t, byJava.try(1).Granted)
		require.False(t, byJava.javaTries(1))
		time.Sleep(2*interval + 50*time.Millisecond)
		require.EqualValues(t, 7, t.java.number(t, "availablePermits", byGo.name))
		require.EqualValues(t, 7, t.java.number(t, "availablePermits", byJava.name))
		require.Equal(t, "7", t.rdb.Get(t.Context(), byJava.value()).Val())
	})
}

// TestTroubleKeepAlive checks that an acquire by either side renews the keep-alive of the limiter. A Redisson before
// 3.38.0 knows no keep-alive: its acquires do not count, and the limiter expires although it is in use.
func TestTroubleKeepAlive(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		const keepAlive, step = 1200 * time.Millisecond, 500 * time.Millisecond
		refreshes := t.version.since("3.38.0")
		require.NoError(t, t.limiter.SetRate(t.Context(),
			ratelimiter.Rate{Permits: 100, Interval: 500 * time.Millisecond, KeepAlive: keepAlive}))
		for i := range 4 {
			if i%2 == 1 && refreshes {
				require.True(t, t.javaTries(1))
			} else {
				t.spent(1)
			}
			for _, key := range []string{t.name, t.value(), t.permits()} {
				ttl := t.rdb.PTTL(t.Context(), key).Val()
				require.LessOrEqual(t, ttl, keepAlive, key)
				require.Greater(t, ttl, keepAlive-step, "%s was not renewed", key)
			}
			time.Sleep(step)
		}
		if !refreshes {
			t.spent(1)
			time.Sleep(step)
			require.True(t, t.javaTries(1))
			require.LessOrEqual(t, t.rdb.PTTL(t.Context(), t.name).Val(), keepAlive-step)
		}
		time.Sleep(keepAlive - step + 100*time.Millisecond)
		if refreshes {
			time.Sleep(step)
		}
		_, err := t.java.call("tryAcquire", t.name, 1)
		require.ErrorContains(t, err, "RateLimiter is not initialized")
		_, err = t.limiter.Allow(t.Context(), 1)
		require.ErrorIs(t, err, ratelimiter.ErrNotInitialized)
		left := t.rdb.Exists(t.Context(), t.value(), t.permits()).Val()
		if refreshes {
			require.Zero(t, left)
			return
		}
		// Nor does a version before 3.17.3 know that the state should expire with the limiter: its reclaim drops the
		// TTL. The state that stays has another rate, but the next limiter of that name starts full all the same.
		require.EqualValues(t, 2, left)
		ok := redistest.Must(t.limiter.TrySetRate(t.Context(), ratelimiter.Rate{Permits: 3, Interval: 500 * time.Millisecond}))(t)
		require.True(t, ok)
		t.spent(3)
		require.False(t, t.javaTries(1))
	})
}

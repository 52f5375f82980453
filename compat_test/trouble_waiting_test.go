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
	versionsAbreast(t, func(t testing.TB, v version) { f(newTrouble(t, v)) }, oldestAndNewest)
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

// requireWhole checks that value and the permits in use add up to the rate.
func (t trouble) requireWhole(rate int64) {
	t.Helper()
	require.Equal(t, rate, redistest.Must(t.rdb.Get(t.Context(), t.value()).Int64())(t)+used(t, t.rdb, t.permits()))
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

// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A trouble is a limiter with a JVM on one side and us on the other.
type trouble struct {
	testing.TB
	version version
	java    *peer
	rdb     *redis.Client
	name    string
	limiter *ratelimiter.RateLimiter
}

// newTrouble makes the limiter through Java.
func newTrouble(t testing.TB, v version, permits int, interval time.Duration) trouble {
	t.Helper()
	rdb, java, name := redistest.Client(t), fleet.peer(t, v), redistest.Key(t)
	require.True(t, java.truth(t, "trySetRate", name, overall, permits, interval))
	return trouble{t, v, java, rdb, name, newGoSide(t, rdb, v, java.id).client.RateLimiter(name)}
}

func (t trouble) value() string   { return "{" + t.name + "}:value" }
func (t trouble) permits() string { return "{" + t.name + "}:permits" }

// javaTries makes one call of Java's and reports whether it was granted.
func (t trouble) javaTries(permits int) bool {
	t.Helper()
	return t.java.truth(t, "tryAcquire", t.name, permits)
}

// TestTroubleChangedByJava checks that callers of ours that wait notice what Java does to the limiter.
func TestTroubleChangedByJava(t *testing.T) {
	t.Parallel()
	versionsAbreast(t, func(t testing.TB, v version) {
		// With the default of WithRecheck they notice in a second. Without it they would wait for an hour.
		ctx, cancel := context.WithTimeout(t.Context(), callLimit)
		defer cancel()
		var waiting []func()
		for _, c := range []struct {
			waits  int64 // of 3 permits, which are used up for an hour
			change string
			args   []any
			want   error
			left   string // that Java finds afterwards
		}{
			{2, "setRate", []any{overall, 5, time.Hour}, nil, "3"},
			{3, "setRate", []any{overall, 2, time.Hour}, ratelimiter.ErrPermitsExceedRate, "2"},
			{1, "delete", nil, ratelimiter.ErrNotInitialized, notInitialized},
			{1, "expire", []any{300 * time.Millisecond}, ratelimiter.ErrNotInitialized, notInitialized},
		} {
			l, done := newTrouble(t, v, 3, time.Hour), make(chan error, 1)
			require.True(t, redistest.Must(l.limiter.Allow(ctx, 3))(t).Granted)
			go func() { done <- l.limiter.Acquire(ctx, c.waits) }()
			time.Sleep(100 * time.Millisecond)
			require.Empty(t, done, "it has to wait")
			l.java.must(t, c.change, append([]any{l.name}, c.args...)...)
			waiting = append(waiting, func() {
				require.ErrorIs(t, <-done, c.want)
				require.Equal(t, c.left, javaSide{l.java}.do("availablePermits", l.name))
				if c.want == ratelimiter.ErrNotInitialized {
					require.Zero(t, l.rdb.Exists(ctx, l.name, l.value(), l.permits()).Val(), "our looks kept the state's TTL")
				}
			})
		}
		for _, done := range waiting {
			done()
		}
	}, oldestAndNewest)
}

// SPDX-License-Identifier: Apache-2.0

package embedredis_test

import (
	"net"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func start(t *testing.T) (*embedredis.Server, *redis.Client) {
	s := redistest.Must(embedredis.Start())(t)
	t.Cleanup(s.Close)
	rdb := s.NewClient()
	t.Cleanup(func() { _ = rdb.Close() })
	return s, rdb
}

// TestServer checks that a server listens on loopback until it is closed, by the clock of the process, and has keys of its own,
// which expire without any further command, as they do not with miniredis alone.
func TestServer(t *testing.T) {
	s, rdb := start(t)
	_, other := start(t)
	ctx := t.Context()
	host, _, _ := net.SplitHostPort(s.Addr())
	require.Equal(t, "127.0.0.1", host)
	before := time.Now().Truncate(time.Microsecond)
	now := redistest.Must(rdb.Time(ctx).Result())(t)
	require.False(t, now.Before(before) || now.After(time.Now()), "%v", now)

	const ttl = 20 * time.Millisecond
	set := time.Now()
	require.NoError(t, rdb.Set(ctx, "k", "v", ttl).Err())
	if err := rdb.Get(ctx, "k").Err(); err != nil {
		require.Equal(t, redis.Nil, err)
		require.GreaterOrEqual(t, time.Since(set), ttl, "gone before its time")
	}
	require.Zero(t, other.Exists(ctx, "k").Val())
	require.Eventually(t, func() bool { return rdb.Exists(ctx, "k").Val() == 0 }, time.Minute, time.Millisecond)

	s.Close()
	s.Close()
	_, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	require.Error(t, err, "still listening")
}

func TestLimiterRuns(t *testing.T) {
	_, rdb := start(t)
	client := clienttest.New(t, rdb)
	defer client.Close()
	l := client.RateLimiter("L")
	require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 2, Interval: 50 * time.Millisecond}))
	require.NoError(t, l.Acquire(t.Context(), 2))
	require.NoError(t, l.Acquire(t.Context(), 2)) // returns only when the first two have expired
}

// TestSetTime checks that TIME is the time that was set and that keys expire by it, whatever the time of the process.
func TestSetTime(t *testing.T) {
	s, rdb := start(t)
	ctx := t.Context()
	at := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	s.SetTime(at)
	now := redistest.Must(rdb.Time(ctx).Result())(t)
	require.True(t, at.Equal(now), "%v", now)
	require.NoError(t, rdb.Set(ctx, "k", "v", time.Hour).Err())
	for _, step := range []struct {
		after time.Duration
		left  time.Duration // -2 when the key is gone
	}{
		{0, time.Hour},
		{30 * time.Minute, 30 * time.Minute},
		{20 * time.Minute, 30 * time.Minute}, // the clock is set back
		{50*time.Minute - time.Millisecond, time.Millisecond},
		{50 * time.Minute, -2},
	} {
		s.SetTime(at.Add(step.after))
		require.Equal(t, step.left, rdb.PTTL(ctx, "k").Val(), "after %v", step.after)
	}
}

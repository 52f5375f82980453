// SPDX-License-Identifier: Apache-2.0

package embedredis

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func start(t *testing.T) (*Server, *redis.Client) {
	s := redistest.Must(Start())(t)
	t.Cleanup(s.Close)
	rdb := s.NewClient()
	t.Cleanup(func() { _ = rdb.Close() })
	return s, rdb
}

func TestListensOnLoopback(t *testing.T) {
	s, _ := start(t)
	host, _, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
}

// TestTTLsRun checks that keys expire without any further command, which they do not do with miniredis alone.
func TestTTLsRun(t *testing.T) {
	_, rdb := start(t)
	ctx := context.Background()
	const ttl = 20 * time.Millisecond
	set := time.Now()
	require.NoError(t, rdb.Set(ctx, "k", "v", ttl).Err())
	if err := rdb.Get(ctx, "k").Err(); err != nil {
		require.Equal(t, redis.Nil, err)
		require.GreaterOrEqual(t, time.Since(set), ttl, "gone before its time")
	}
	require.Eventually(t, func() bool { return rdb.Exists(ctx, "k").Val() == 0 }, 5*time.Second, time.Millisecond)
}

func TestTimeIsThatOfTheProcess(t *testing.T) {
	_, rdb := start(t)
	before := time.Now().Truncate(time.Microsecond)
	now := redistest.Must(rdb.Time(context.Background()).Result())(t)
	require.False(t, now.Before(before), "%v is before %v", now, before)
	require.False(t, now.After(time.Now()))
}

func TestServersAreApart(t *testing.T) {
	ctx := context.Background()
	_, a := start(t)
	_, b := start(t)
	require.NoError(t, a.Set(ctx, "k", "v", 0).Err())
	require.Zero(t, b.Exists(ctx, "k").Val())
}

func TestLimiterRuns(t *testing.T) {
	_, rdb := start(t)
	ctx := context.Background()
	client := clienttest.New(t, rdb)
	defer func() { require.NoError(t, client.Close()) }()
	l := client.RateLimiter("L")
	redistest.Must(l.TrySetRate(ctx, ratelimiter.Rate{Permits: 2, Interval: 50 * time.Millisecond}))(t)
	for _, want := range []bool{true, true} {
		ok := redistest.Must(l.TryAcquire(ctx, 1, 0))(t)
		require.Equal(t, want, ok)
	}
	require.NoError(t, l.Acquire(ctx, 2)) // returns only when the first two have expired
}

func TestClose(t *testing.T) {
	s, rdb := start(t)
	require.NoError(t, rdb.Ping(context.Background()).Err())
	s.Close()
	s.Close()
	_, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	require.Error(t, err, "still listening")
}

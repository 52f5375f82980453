// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func TestLaneRunsOnItsOwnServer(t *testing.T) {
	NeedReal(t)
	info, err := Client(t).Info(t.Context(), "server").Result()
	require.NoError(t, err)
	assert.Equal(t, Lane() == valkeyLane, strings.Contains(info, "server_name:valkey"), info)
}

func TestUnknownLanePanics(t *testing.T) {
	t.Setenv("RATELIMITER_LANE", "memcached")
	assert.Panics(t, func() { Lane() })
}

func TestRunSleepsInVirtualTime(t *testing.T) {
	real := time.Now()
	Run(t, func(t *testing.T, rdb *redis.Client) {
		name, start := Key(t), time.Now()
		for range 60 {
			require.NoError(t, rdb.Incr(t.Context(), name).Err())
			time.Sleep(time.Minute)
		}
		assert.Equal(t, time.Hour, time.Since(start))
		assert.Equal(t, "60", rdb.Get(t.Context(), name).Val())
	})
	assert.Less(t, time.Since(real), time.Minute)
}

func TestRunTimeAndTTLsFollowTheBubble(t *testing.T) {
	if !TTLsAreVirtual() {
		t.Skip("a real server keeps real time")
	}
	Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), Key(t)
		assert.Equal(t, time.Now().UnixMilli(), rdb.Time(ctx).Val().UnixMilli())
		require.NoError(t, rdb.Set(ctx, name, 1, 10*time.Second).Err())
		time.Sleep(9999 * time.Millisecond)
		assert.Equal(t, time.Millisecond, rdb.PTTL(ctx, name).Val())
		script := redis.NewScript(`return redis.call('EXISTS', KEYS[1])`)
		assert.Equal(t, int64(1), script.Run(ctx, rdb, []string{name}).Val())
		time.Sleep(time.Millisecond)
		assert.Equal(t, int64(0), script.Run(ctx, rdb, []string{name}).Val())
		assert.Equal(t, time.Now().UnixMilli(), rdb.Time(ctx).Val().UnixMilli())
	})
}

func TestRunWithManyGoroutinesAndAPeer(t *testing.T) {
	Run(t, func(t *testing.T, rdb *redis.Client) {
		name, done := Key(t), make(chan error)
		peer := Peer(t, rdb)
		for i := range 500 {
			client := rdb
			if i%2 == 1 {
				client = peer
			}
			go func() {
				time.Sleep(time.Duration(i%7) * time.Second)
				done <- client.Incr(context.Background(), name).Err()
			}()
		}
		for range 500 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, "500", peer.Get(t.Context(), name).Val())
	})
}

func TestClientTTLsPass(t *testing.T) {
	ctx, rdb, name := t.Context(), Client(t), Key(t)
	require.NoError(t, rdb.Set(ctx, name, 1, 20*time.Millisecond).Err())
	assert.Eventually(t, func() bool { return rdb.Exists(ctx, name).Val() == 0 }, time.Minute, 5*time.Millisecond)
}

func TestKeysAreUniqueAndDeleted(t *testing.T) {
	ctx, rdb := t.Context(), Client(t)
	mine, other := Key(t), Key(t)
	require.NotEqual(t, mine, other)
	require.NoError(t, rdb.Set(ctx, other, 1, 0).Err())
	var inner string
	t.Run("inner {braces}", func(t *testing.T) {
		inner = Key(t)
		assert.Regexp(t, regexp.MustCompile(`^[-._A-Za-z0-9]+$`), inner)
		require.NoError(t, rdb.Set(ctx, inner, 1, 0).Err())
		require.NoError(t, rdb.Set(ctx, "{"+inner+"}:value", 1, 0).Err())
	})
	if Lane() != miniLane {
		assert.Equal(t, int64(0), rdb.Exists(ctx, inner, "{"+inner+"}:value").Val())
	}
	assert.Equal(t, int64(1), rdb.Exists(ctx, other).Val())
}

// TestServerDiesAndReturns kills, stops, restarts and pauses a server, outside of a bubble and within one. It keeps its address and its
// data.
func TestServerDiesAndReturns(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	addr, ctx := s.Addr(), t.Context()
	once := func(o *redis.Options) { o.MaxRetries, o.DialerRetries, o.ReadTimeout = -1, 1, 50*time.Millisecond }
	hurried, rdb := s.Client(t, once), s.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	require.NoError(t, rdb.Set(ctx, "kept", 1, 0).Err())
	for _, end := range []func(){s.Kill, s.Stop, func() {}} { // at last it restarts while it runs
		end()
		s.Restart()
		assert.Equal(t, addr, s.Addr())
		assert.Equal(t, "1", rdb.Get(ctx, "kept").Val())
	}
	s.Kill()
	require.Error(t, hurried.Ping(ctx).Err())
	Run(t, func(t *testing.T, _ *redis.Client) {
		start := time.Now()
		time.Sleep(time.Hour)
		s.Restart()
		require.NoError(t, s.Client(t).Ping(t.Context()).Err())
		assert.InDelta(t, time.Hour, time.Since(start), float64(time.Minute))
	})
	s.Pause()
	require.Error(t, hurried.Ping(ctx).Err())
	s.Resume()
	require.NoError(t, rdb.Ping(ctx).Err())
	s.Pause() // and let the cleanup end the server
}

func TestClusterServesEverySlot(t *testing.T) {
	c := StartCluster(t)
	rdb := c.Client(t)
	ctx := t.Context()
	require.Len(t, c.Nodes(), 3)
	for i := range 100 {
		name := Key(t)
		require.NoError(t, rdb.Set(ctx, name, i, 0).Err())
	}
	for _, node := range c.Nodes() {
		assert.Positive(t, node.Client(t).DBSize(ctx).Val())
	}
	c.Nodes()[1].Restart() // its slots come back from nodes.conf
	assert.Eventually(t, func() bool { return rdb.Set(ctx, "a", 1, 0).Err() == nil }, time.Minute, 20*time.Millisecond)
}

// TestLanesOfATest checks that a test is skipped in the lanes that are not its own and nowhere else, and in a long
// run nowhere at all.
func TestLanesOfATest(t *testing.T) {
	skipped := func(of func(t testing.TB)) (is bool) {
		t.Run("of", func(t *testing.T) {
			defer func() { is = t.Skipped() }()
			of(t)
		})
		return is
	}
	noRace := func(t testing.TB) { NoRace(t, "a test of this") }
	t.Setenv("RATELIMITER_LONG", "")
	assert.Equal(t, 3, Cases(3, 50))
	assert.Equal(t, UnderRace, skipped(noRace))
	assert.Equal(t, Lane() == valkeyLane || testing.Short(), skipped(NoServer))
	assert.Equal(t, Lane() == valkeyLane || testing.Short(), skipped(Repeats))
	t.Setenv("RATELIMITER_LONG", "1")
	assert.Equal(t, 50, Cases(3, 50))
	assert.False(t, skipped(noRace))
	assert.False(t, skipped(NoServer))
	assert.False(t, skipped(Repeats))
}

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestNamesStandalone(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		for _, form := range []string{"a{b%s", "{a%s", "{}x%s", "x{}{y}%s", "a}b%s", "a{b}c%s", "%s\x00\xff", "%s 漢字"} {
			l := w.client.RateLimiter(fmt.Sprintf(form, w.l.Name()))
			require.NoError(t, l.SetRate(w.ctx, overall(2, time.Second)), form)
			ok, err := l.TryAcquire(w.ctx, 2, 0)
			require.NoError(t, err)
			require.True(t, ok)
			ok, err = l.TryAcquire(w.ctx, 1, 0)
			require.NoError(t, err)
			require.False(t, ok)
			_, err = l.Delete(w.ctx)
			require.NoError(t, err)
		}
		_, err := w.client.RateLimiter("").Allow(w.ctx, 1)
		require.ErrorIs(t, err, ErrInvalidArgument)
	})
}

func TestNameMapper(t *testing.T) {
	inWorld(t, overall(2, time.Second), func(t *testing.T, w *world) {
		calls := 0
		c := newClient(t, w.rdb, WithNameMapper(func(name string) string { calls++; return strings.TrimPrefix(name, "app:") }), WithClientClock())
		l := c.RateLimiter("app:" + w.l.Name())
		require.Equal(t, "app:"+w.l.Name(), l.Name())
		require.Equal(t, w.l.redis.Keys.Hash, l.redis.Keys.Hash)
		require.Equal(t, 1, calls)
		ok, err := l.TryAcquire(w.ctx, 2, 0)
		require.NoError(t, err)
		require.True(t, ok)
		w.available(0)
	})
	c := newClient(t, redis.NewClient(&redis.Options{}), WithNameMapper(func(string) string { return "" }))
	_, err := c.RateLimiter("x").Allow(context.Background(), 1)
	require.ErrorIs(t, err, ErrInvalidArgument)
}

func TestOptionsOutOfRange(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is ever sent
	rejected := func(name string, rdb redis.UniversalClient, opts ...Option) {
		c, err := New(rdb, opts...)
		require.ErrorIs(t, err, ErrInvalidArgument, name)
		require.Nil(t, c, name)
	}
	rejected("nil redis", nil)
	rejected("a *redis.Client that is nil", (*redis.Client)(nil))
	rejected("a *redis.ClusterClient that is nil", (*redis.ClusterClient)(nil))
	rejected("a *redis.Ring that is nil", (*redis.Ring)(nil))
	for name, o := range map[string]Option{
		"empty id":          WithClientID(""),
		"nil mapper":        WithNameMapper(nil),
		"format fI":         WithMemberFormat(wire.FormatFI),
		"format unknown":    WithMemberFormat(wire.FormatUnknown),
		"client key TTL":    WithClientKeyTTL(-time.Second),
		"fine TTL":          WithClientKeyTTL(time.Second + 1),
		"recheck of zero":   WithRecheck(0),
		"fine recheck":      WithRecheck(time.Millisecond - 1),
		"cached rejections": WithCachedRejections(-1),
		"outage limit":      WithOutageLimit(-1),
		"outage policy":     WithOutagePolicy(LocalQuota(Rate{}, 0)),
		"no option":         nil,
	} {
		rejected(name, rdb, o)
	}
}

// A hundred thousand names that are used once leave nothing behind but one idle limiter in each shard.
func TestNamesLeaveNothingBehind(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "the engine is tested with it")
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		rdb.AddHook(&forger{forever: []any{int64(1)}}) // not initialised
		c := newClient(t, rdb)
		for i := range 100_000 {
			_, err := c.RateLimiter(fmt.Sprint("once", i)).Allow(context.Background(), 1)
			require.ErrorIs(t, err, ErrNotInitialized)
			c.RateLimiter(fmt.Sprint("learnt", i)).handle.LearnType(permit.PerClient)
		}
		requireIdle(t, c)
		require.NoError(t, c.Close())
	})
}

// Every operation on a real cluster of three masters.
func TestCluster(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.StartCluster(t).Client(t)
	ctx := context.Background()
	c := newClient(t, rdb)
	defer c.Close()

	for _, name := range []string{"a{b", "{a", "{}x", "x{}{y}", "a}b"} {
		_, err := c.RateLimiter(name).TrySetRate(ctx, overall(1, time.Second))
		require.ErrorIs(t, err, ErrNameNotClusterSafe, name)
		require.ErrorContains(t, err, "hashes by")
	}
	type wrapped struct{ *redis.ClusterClient }
	_, err := newClient(t, wrapped{rdb}).RateLimiter("a{b").Allow(ctx, 1)
	require.ErrorIs(t, err, ErrNameNotClusterSafe, "a client that embeds a cluster client is one")

	nodes := map[string]bool{}
	for i := range 30 {
		name := fmt.Sprint("limiter-", i)
		if i%2 == 1 {
			name = fmt.Sprintf("shop{%d}orders", i)
		}
		node, err := rdb.MasterForKey(ctx, name)
		require.NoError(t, err)
		nodes[node.Options().Addr] = true
		for _, typ := range []RateType{Overall, PerClient} {
			l := c.RateLimiter(name)
			everyOperation(t, ctx, l, typ)
		}
	}
	require.Len(t, nodes, 3, "on every node")
}

// All operations return the same with RESP2 and RESP3.
func TestBothProtocols(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		c := newClient(t, redistest.Client(t, func(o *redis.Options) { o.Protocol = protocol }))
		for _, typ := range []RateType{Overall, PerClient} {
			everyOperation(t, context.Background(), c.RateLimiter(redistest.Key(t)), typ)
		}
		require.NoError(t, c.Close())
	}
}

// A Ring sends the keys of a limiter to the shard of its name, whatever their suffixes.
func TestRing(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
		"one": redistest.Start(t).Addr(), "two": redistest.Start(t).Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := context.Background()
	c := newClient(t, rdb)
	defer c.Close()
	for i := range 20 {
		everyOperation(t, ctx, c.RateLimiter(fmt.Sprint("limiter-", i)), RateType(i%2))
	}
	everyOperation(t, ctx, c.RateLimiter("a{b"), Overall)
}

// everyOperation runs every operation once, in real time, and leaves nothing behind.
func everyOperation(t *testing.T, ctx context.Context, l *RateLimiter, typ RateType) {
	t.Helper()
	ok, err := l.TrySetRate(ctx, Rate{Type: typ, Permits: 5, Interval: time.Hour})
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = l.TryAcquire(ctx, 3, 0)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = l.TryAcquire(ctx, 3, time.Millisecond)
	if !errors.Is(err, ErrUnavailable) { // on a busy machine the reply may be later
		require.NoError(t, err)
	}
	require.False(t, ok)
	n, err := l.AvailablePermits(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.NoError(t, l.Release(ctx, 1))
	require.NoError(t, l.Acquire(ctx, 3))
	ok, err = l.UpdateRate(ctx, Rate{Type: typ, Permits: 7, Interval: time.Hour}, KeepState())
	require.NoError(t, err)
	require.True(t, ok)
	r, err := l.Allow(ctx, 3)
	require.NoError(t, err)
	require.False(t, r.Granted)
	require.EqualValues(t, 2, r.Available)
	require.Equal(t, Rate{Type: typ, Permits: 7, Interval: time.Hour}, r.Rate)
	require.NoError(t, l.SetRate(ctx, Rate{Type: typ, Permits: 7, Interval: time.Hour}))
	got, err := l.Rate(ctx)
	require.NoError(t, err)
	require.Equal(t, r.Rate, got)
	ok, err = l.Expire(ctx, time.Hour)
	require.NoError(t, err)
	require.True(t, ok)
	ttl, err := l.TTL(ctx)
	require.NoError(t, err)
	require.InDelta(t, time.Hour, ttl, float64(time.Second))
	at, err := l.ExpireTime(ctx)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), at, 5*time.Second)
	ok, err = l.ClearExpire(ctx)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = l.Exists(ctx)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = l.Delete(ctx)
	require.NoError(t, err)
	require.True(t, ok)
}

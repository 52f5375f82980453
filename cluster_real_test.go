package ratelimiter

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A shard is a node of a cluster with a connection to it.
type shard struct {
	*redis.Client
	t  *testing.T
	id string
}

func (s shard) do(args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.Do(context.Background(), args...).Err(), "%v", args)
}

// A slot moves between two nodes while it is in use, in the four steps that redis-cli and every operator take.
// No caller gets an error, and nothing is granted twice or lost.
func TestSlotMigration(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	rdb, ctx := cluster.Client(t), context.Background()
	c := newClient(t, rdb)
	defer c.Close()
	l := c.RateLimiter("moving")
	const rate = 1_000_000
	require.NoError(t, l.SetRate(ctx, overall(rate, time.Hour)))
	require.NoError(t, l.Acquire(ctx, 1))
	granted := atomic.Int64{}
	granted.Store(1)

	slot := rdb.ClusterKeySlot(ctx, l.Name()).Val()
	shards, from := make([]shard, 3), 0
	for i, node := range cluster.Nodes() {
		n := node.Client(t)
		shards[i] = shard{n, t, n.Do(ctx, "CLUSTER", "MYID").Val().(string)}
		if n.ClusterCountKeysInSlot(ctx, int(slot)).Val() > 0 {
			from = i
		}
	}

	// Three kinds of callers, all the time.
	loaded, stop := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for i := range 12 {
		callers.Go(func() {
			for loaded.Err() == nil {
				ok, err := true, error(nil)
				switch i % 3 {
				case 0:
					ok, err = l.TryAcquire(ctx, 1, 0)
				case 1:
					ok, err = l.TryAcquire(ctx, 1, time.Minute)
				default:
					err = l.Acquire(ctx, 1)
				}
				if err != nil || !ok {
					t.Error(ok, err)
					return
				}
				granted.Add(1)
			}
		})
	}
	busy := func() { // some hundred grants between two steps
		n := granted.Load()
		soon(t, "grants go on", func() bool { return granted.Load() > n+100 || t.Failed() })
	}

	for range 3 {
		to := (from + 1) % 3
		a, b := shards[from], shards[to]
		busy()
		b.do("CLUSTER", "SETSLOT", slot, "IMPORTING", a.id)
		a.do("CLUSTER", "SETSLOT", slot, "MIGRATING", b.id)
		busy() // still on the old node, though the slot is moving
		host, port, _ := strings.Cut(b.Options().Addr, ":")
		a.do("MIGRATE", host, port, "", 0, 5000, "KEYS", l.redis.Keys.Hash, l.redis.Keys.Value[Overall], l.redis.Keys.Permits[Overall])
		busy() // ASK
		b.do("CLUSTER", "SETSLOT", slot, "NODE", b.id)
		a.do("CLUSTER", "SETSLOT", slot, "NODE", b.id)
		busy() // MOVED
		from = to
	}
	stop()
	callers.Wait()
	require.NoError(t, accounts(rdb, l, rate, granted.Load()))
	t.Log(granted.Load(), "grants, three migrations")

	// A part of the cluster has no node. Its limiters wait, and those of the other parts do not notice.
	other := c.RateLimiter("elsewhere")
	require.NoError(t, other.SetRate(ctx, overall(10, time.Hour)))
	for _, s := range shards {
		s.do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	shards[from].do("CLUSTER", "DELSLOTS", slot)
	_, err := l.Allow(ctx, 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "CLUSTERDOWN")
	var re redis.Error
	require.ErrorAs(t, err, &re)
	served := make(chan error, 1)
	go func() { served <- l.Acquire(ctx, 1) }()
	require.NoError(t, other.Acquire(ctx, 1))
	require.Empty(t, served)
	shards[from].do("CLUSTER", "ADDSLOTS", slot)
	require.NoError(t, inTime(t, served))
	require.NoError(t, accounts(rdb, l, rate, granted.Load()+1))
}

// A master dies for good. Its replica is found when it has taken over, and not at go-redis' own pace, which is once a
// minute.
func TestClusterLosesAMaster(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	cluster := redistest.StartCluster(t)
	cluster.AddReplica(t, 0)
	rdb, ctx := cluster.Client(t), context.Background()
	c := newClient(t, rdb)
	defer c.Close()
	l := c.RateLimiter("{06S}failover") // slot 0, of the first master
	require.NoError(t, l.SetRate(ctx, overall(1_000_000, time.Hour)))
	require.NoError(t, l.Acquire(ctx, 1))
	require.NoError(t, rdb.Do(ctx, "WAIT", 1, 1000).Err())
	cluster.Nodes()[0].Kill()
	begin := time.Now()
	ok, err := l.TryAcquire(ctx, 1, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	t.Logf("granted %v after the kill", time.Since(begin).Round(time.Millisecond))
	require.Less(t, time.Since(begin), 45*time.Second, "go-redis looks by itself after a minute")
}

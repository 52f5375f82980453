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

// A slot that moves between two nodes while it is in use, in the four steps that redis-cli and every
// operator take. Nobody is told, and nothing is granted twice or lost.
func TestSlotMigration(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	rdb, ctx := cluster.Client(t), context.Background()
	c := New(rdb)
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
		busy() // still there, though the slot is on its way
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

	// A part of the cluster that nobody serves: its limiters wait, the others' do not notice.
	other := c.RateLimiter("elsewhere")
	require.NoError(t, other.SetRate(ctx, overall(10, time.Hour)))
	for _, s := range shards {
		s.do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	shards[from].do("CLUSTER", "DELSLOTS", slot)
	_, err := l.Try(ctx, 1)
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

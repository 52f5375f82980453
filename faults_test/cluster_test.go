// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

func dialCluster(c *redistest.Cluster) func() redis.UniversalClient {
	return func() redis.UniversalClient {
		o := &redis.ClusterOptions{}
		for _, node := range c.Nodes()[:3] {
			o.Addrs = append(o.Addrs, node.Addr())
		}
		return redis.NewClusterClient(o)
	}
}

// reshard moves the slot of a limiter around all masters, three times, while it is in use: twice with all keys of the
// limiter at once, as redis-cli does, and then one key after another, so that calls meet a slot that is half moved.
func reshard(f *fault) {
	cluster, ctx := redistest.StartCluster(f), context.Background()
	a := newFleet(f, dialCluster(cluster))
	const name = "moving"
	a.set(name, rate(ample, time.Hour))
	rdb := cluster.Client(f)
	slot := rdb.ClusterKeySlot(ctx, name).Val()
	var nodes []*redis.Client
	var ids []string
	from := 0
	for i, s := range cluster.Nodes() {
		n := admin(f, s)
		nodes, ids = append(nodes, n), append(ids, n.Do(ctx, "CLUSTER", "MYID").Val().(string))
		if n.ClusterCountKeysInSlot(ctx, int(slot)).Val() > 0 {
			from = i
		}
	}
	tried, waited := a.tries(name, 2, 0), a.waits(name, 4, 0)
	busy := func() {
		n := tried.Told().Permits() + waited.Told().Permits()
		f.soon("grants go on", func() bool { return tried.Told().Permits()+waited.Told().Permits() > n+200 })
	}
	hash, value, permits := keysOf(name)
	atOnce := 0
	for move := range 3 {
		to := (from + 1) % 3
		busy()
		do(f, nodes[to], "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
		do(f, nodes[from], "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
		busy()
		host, port, _ := strings.Cut(nodes[to].Options().Addr, ":")
		if move < 2 {
			do(f, nodes[from], "MIGRATE", host, port, "", 0, 5000, "KEYS", hash, value, permits)
		} else {
			atOnce = errs(tried)
			for _, key := range []string{hash, value, permits} {
				do(f, nodes[from], "MIGRATE", host, port, key, 0, 5000)
				time.Sleep(20 * time.Millisecond)
			}
		}
		busy()
		do(f, nodes[to], "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
		do(f, nodes[from], "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
		busy()
		from = to
	}
	a.end()
	told := tried.Told().Permits() + waited.Told().Permits()
	f.measured("three moves, %d grants, drift 0; errors to callers that do not wait: %d while keys move at once, %d one after another; to callers that wait: 0",
		told, atOnce, errs(tried)-atOnce)
	requireTyped(f, tried, false)
	require.Zero(f, atOnce)
	requireTyped(f, waited, true)
	requireNoDrift(f, rdb, name, ample, told)
}

// clusterFailover asks a replica to take over, which it does when it has everything.
func clusterFailover(f *fault) {
	cluster := redistest.StartCluster(f)
	replica := cluster.AddReplica(f, 0)
	c := newCrowd(f, dialCluster(cluster), "{06S}ample")
	do(f, admin(f, replica), "CLUSTER", "FAILOVER")
	back := masterAt(f, replica)
	first := f.grants(c.waited, back)
	time.Sleep(time.Second)
	c.end()
	f.measured("drift 0 of %d grants; first grant %v after the replica took over; errors: %d of non-blocking calls, 0 of waiting ones", c.told(), round(first), errs(c.tried))
	c.requireTyped()
	c.requireNoDrift(admin(f, replica))
	f.within("the first grant", back, first, firstGrant)
}

// clusterLoses kills a master for good.
func clusterLoses(f *fault) {
	cluster := redistest.StartCluster(f)
	master, replica := cluster.Nodes()[0], cluster.AddReplica(f, 0)
	failover(f, dialCluster(cluster), master, replica, master.Kill, func() {})
}

// clusterFreezes freezes a master.
func clusterFreezes(f *fault) {
	cluster := redistest.StartCluster(f)
	master, replica := cluster.Nodes()[0], cluster.AddReplica(f, 0)
	failover(f, dialCluster(cluster), master, replica, master.Pause, thawed(master))
}

// ringLosesAShard kills one of three shards of a ring, and starts it again with what it had.
func ringLosesAShard(f *fault) {
	var servers []*redistest.Server
	shards := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		s := redistest.Start(f, "--appendonly", "yes", "--appendfsync", "always")
		servers = append(servers, s)
		shards[name] = s.Addr()
	}
	a := newFleet(f, func() redis.UniversalClient { return redis.NewRing(&redis.RingOptions{Addrs: shards}) })
	books := map[string]*grantlog.Ledger{}
	for _, name := range []string{"o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"} {
		a.set(name, rate(scarce, time.Hour))
		books[name] = a.tries(name, 1, 5*time.Millisecond)
	}
	time.Sleep(time.Second)
	servers[0].Kill()
	time.Sleep(5 * time.Second) // the ring takes the shard out after 1.5 to 3.5 s
	servers[0].Restart()
	time.Sleep(3 * time.Second)
	a.end()
	away, held := 0, 0
	for name, b := range books {
		requireTyped(f, b, false)
		away += errs(b)
		require.EqualValues(f, scarce, b.Told().Permits(), name)
		if errs(b) > 0 {
			held++
		}
	}
	f.measured("%d of 12 limiters were on the shard: %d times ErrUnavailable; each granted %d of %d in the hour, with no second burst", held, away, scarce, scarce)
	require.Positive(f, held)
}

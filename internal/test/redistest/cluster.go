// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// slots is the number of hash slots of every Redis cluster.
const slots = 16384

// clusterTimeout bounds the time in which the nodes join, which takes a second or two of gossip.
const clusterTimeout = 30 * time.Second

// A Cluster is masters on loopback, without replicas, that belong to one test.
type Cluster struct {
	nodes []*Server
}

// StartCluster starts a cluster of three masters of the lane's kind and returns when every node reports that the cluster is complete.
// In the miniredis lane it skips t, as [NeedReal] does. It must be called outside of bubbles.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	return StartClusterOf(t, 3)
}

// StartClusterOf is StartCluster for so many masters.
func StartClusterOf(t testing.TB, masters int) *Cluster {
	t.Helper()
	c := new(Cluster)
	for range masters {
		c.nodes = append(c.nodes, Start(t,
			"--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "2000",
		))
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := c.join(ctx); err != nil {
		t.Fatalf("redistest: cluster: %v", err)
	}
	return c
}

// join assigns the slots and makes the nodes meet.
func (c *Cluster) join(ctx context.Context) error {
	for i, node := range c.nodes {
		rdb := redis.NewClient(options(node.Addr()))
		defer rdb.Close()
		low, high := i*slots/len(c.nodes), (i+1)*slots/len(c.nodes)-1
		if err := rdb.ClusterAddSlotsRange(ctx, low, high).Err(); err != nil {
			return err
		}
		// With distinct epochs the nodes need not resolve conflicts.
		if err := rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		for _, other := range c.nodes[:i] {
			host, port, err := net.SplitHostPort(other.Addr())
			if err != nil {
				return err
			}
			if err := rdb.ClusterMeet(ctx, host, port).Err(); err != nil {
				return err
			}
		}
	}
	for _, node := range c.nodes {
		if err := c.await(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// await returns when node reports that the cluster is complete.
func (c *Cluster) await(ctx context.Context, node *Server) error {
	rdb := redis.NewClient(options(node.Addr()))
	defer rdb.Close()
	for {
		info, err := rdb.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r\n", slots)) &&
			strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.nodes))) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %s says\n%s", ctx.Err(), node.Addr(), info)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// AddReplica starts a replica of the i-th master. It returns the replica when the whole cluster knows it and it has
// the master's data.
func (c *Cluster) AddReplica(t testing.TB, i int) *Server {
	t.Helper()
	replica := Start(t,
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "2000",
		"--repl-diskless-sync-delay", "0",
	)
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	master, rdb := redis.NewClient(options(c.nodes[i].Addr())), redis.NewClient(options(replica.Addr()))
	defer master.Close()
	defer rdb.Close()
	host, port, err := net.SplitHostPort(c.nodes[i].Addr())
	if err == nil {
		err = rdb.ClusterMeet(ctx, host, port).Err()
	}
	id, idErr := master.Do(ctx, "cluster", "myid").Text()
	for known, replicated := false, false; err == nil && idErr == nil && !replicated; {
		err = ctx.Err()
		known = known || rdb.ClusterReplicate(ctx, id).Err() == nil // it fails until the node has heard of the master
		info, _ := rdb.Info(ctx, "replication").Result()
		replicated = strings.Contains(info, "master_link_status:up")
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil || idErr != nil {
		t.Fatalf("redistest: replica: %v %v", err, idErr)
	}
	c.nodes = append(c.nodes, replica)
	for _, node := range c.nodes {
		if err := c.await(ctx, node); err != nil {
			t.Fatalf("redistest: replica: %v", err)
		}
	}
	return replica
}

// AddLaggingReplica starts a replica of the first master, which has slot 0, and makes it fall behind when the clients of the
// cluster know it.
func (c *Cluster) AddLaggingReplica(t testing.TB) *Server {
	t.Helper()
	replica, rdb := c.AddReplica(t, 0), c.Client(t)
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	err := rdb.Set(ctx, "{06S}written", 1, 0).Err() // a replica without data is in no list of slots
	for _, node := range c.nodes {
		for known := false; err == nil && !known; time.Sleep(20 * time.Millisecond) {
			var list []redis.ClusterSlot
			//lint:ignore SA1019 CLUSTER SHARDS is not in Redis before 7, and go-redis goes by the slots
			if list, err = node.Client(t).ClusterSlots(ctx).Result(); err == nil {
				known = slices.ContainsFunc(list, func(s redis.ClusterSlot) bool { return len(s.Nodes) > 1 })
			}
		}
	}
	if err != nil {
		t.Fatalf("redistest: replica: %v", err)
	}
	Lag(t, c.nodes[0], replica)
	return replica
}

// Lag makes a replica fall behind: from now on it replies with the data that it has, and gets no more of its master's.
func Lag(t testing.TB, master, replica *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	of, rdb := redis.NewClient(options(master.Addr())), redis.NewClient(options(replica.Addr()))
	defer of.Close()
	defer rdb.Close()
	err := rdb.ConfigSet(ctx, "masterauth", "none such").Err() // the master has no password, and rejects one
	for down := false; err == nil && !down; time.Sleep(20 * time.Millisecond) {
		if err = of.Do(ctx, "client", "kill", "type", "replica").Err(); err == nil {
			var info string
			info, err = rdb.Info(ctx, "replication").Result()
			down = strings.Contains(info, "master_link_status:down")
		}
	}
	if err != nil {
		t.Fatalf("redistest: lag: %v", err)
	}
}

// Nodes returns the three masters, in the order of their slots, and then the replicas. It is a quick way to kill the
// node that holds a key.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Client returns a cluster client, closed when t ends.
func (c *Cluster) Client(t testing.TB, opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, node := range c.nodes {
		o.Addrs = append(o.Addrs, node.Addr())
	}
	for _, opt := range opts {
		opt(o)
	}
	if o.RouteByLatency {
		return measuring(t, o)
	}
	rdb := redis.NewClusterClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// measuring returns a client that measures its nodes' latency. go-redis 9.23 starts to measure a node before it has finished
// making it, which the race detector tells: so the first dial of a node waits until the node is finished.
func measuring(t testing.TB, o *redis.ClusterOptions) *redis.ClusterClient {
	var mu sync.Mutex
	nodes := map[string]chan struct{}{}
	// ready returns a channel that is closed when the node at addr is finished, which finished says.
	ready := func(addr string, finished bool) <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		ch := nodes[addr]
		if ch == nil {
			ch = make(chan struct{})
			nodes[addr] = ch
		}
		select {
		case <-ch:
		default:
			if finished {
				close(ch)
			}
		}
		return ch
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-ready(addr, false):
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	rdb := redis.NewClusterClient(o)
	rdb.OnNewNode(func(node *redis.Client) { ready(node.Options().Addr, true) })
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

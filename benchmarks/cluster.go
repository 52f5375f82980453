// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slots = 16384 // hash slots of a cluster

	// joining bounds the time in which the nodes of a cluster get to know each other, which is a second or two.
	joining = 30 * time.Second
)

// startCluster starts a cluster of masters without replicas. It returns when each of them knows that all slots are
// served.
func startCluster(ctx context.Context, program string) (*nodes, error) {
	n := new(nodes)
	for i := range n {
		var err error
		n[i], err = startServer(program, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
		if err != nil {
			n.stop()
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, joining)
	defer cancel()
	if err := n.join(ctx); err != nil {
		n.stop()
		return nil, fmt.Errorf("the cluster does not come up: %w", err)
	}
	return n, nil
}

// join gives each node its share of the slots, and lets the nodes meet.
func (n *nodes) join(ctx context.Context) error {
	for i, node := range n {
		rdb := newClient(node.Addr(), 1)
		defer rdb.Close()
		err := errors.Join(
			rdb.ClusterAddSlotsRange(ctx, i*slots/len(n), (i+1)*slots/len(n)-1).Err(),
			rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(), // distinct, so that there is no conflict to resolve
		)
		for _, other := range n[:i] {
			host, port, _ := net.SplitHostPort(other.Addr())
			err = errors.Join(err, rdb.ClusterMeet(ctx, host, port).Err())
		}
		if err != nil {
			return err
		}
	}
	complete := []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d\r\n", slots), fmt.Sprintf("cluster_known_nodes:%d\r\n", len(n))}
	for _, node := range n {
		rdb := newClient(node.Addr(), 1)
		defer rdb.Close()
		for missing := true; missing; {
			info, err := rdb.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			missing = false
			for _, line := range complete {
				missing = missing || !strings.Contains(info, line)
			}
			if missing {
				time.Sleep(10 * time.Millisecond)
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%w; %s says\n%s", err, node.Addr(), info)
			}
		}
	}
	return nil
}

// client returns a client of the cluster, with the same options as newClient.
func (n *nodes) client(pool int) *redis.ClusterClient {
	one := clientOptions("", pool)
	o := &redis.ClusterOptions{
		PoolSize: one.PoolSize, ReadTimeout: one.ReadTimeout, DisableIdentity: one.DisableIdentity,
		MaintNotificationsConfig: one.MaintNotificationsConfig,
	}
	for _, node := range n {
		o.Addrs = append(o.Addrs, node.Addr())
	}
	return redis.NewClusterClient(o)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A clusterRow measures callers of a Redis cluster of three masters, which the row starts and stops for each
// contestant. All of it is on this machine, so that the masters share its cores with each other and with the callers:
// the time that each of them works is what counts.
type clusterRow struct {
	loadRow
}

func (r clusterRow) about() rowAbout {
	a := r.loadRow.about()
	a.metrics = append([]metric{rateMetric, p50Metric, p99Metric, askMetric}, nodeMetrics[:]...)
	return a
}

func (r clusterRow) takes(c contestant) bool {
	switch c.about().key {
	case oursKey, limitGCRAKey, redisRateKey:
		return true
	}
	return false
}

func (r clusterRow) measure(ctx context.Context, b *bench, c contestant, name string) (sample, error) {
	nodes, err := startCluster(ctx, b.options.server)
	if err != nil {
		return nil, err
	}
	defer nodes.stop()
	there, err := c.(movable).on(nodes.client(b.options.pool))
	if err != nil {
		return nil, err
	}
	defer there.close()
	j := r.job(name)
	s, err := there.open(ctx, j)
	if err != nil {
		return nil, err
	}
	// Not measured: the first calls connect, and send each node the script.
	j.duration = r.duration / 4
	first, err := s.load(ctx, j)
	if err != nil {
		return nil, err
	}
	before, err := nodes.usage(ctx, resetUsage)
	if err != nil {
		return nil, err
	}
	j.duration = r.duration
	t, err := s.load(ctx, j)
	if err != nil {
		return nil, err
	}
	after, err := nodes.usage(ctx, readUsage)
	if err != nil {
		return nil, err
	}
	sum := [2]usage{}
	for i := range nodes {
		sum[0], sum[1] = sum[0].plus(before[i]), sum[1].plus(after[i])
	}
	out := r.sample(there, t, sum[0], sum[1])
	for i, m := range nodeMetrics {
		if after[i].scriptCalls == 0 {
			return nil, fmt.Errorf("node %d of the cluster has run no script", i+1)
		}
		out[m] = after[i].asking(there.about()) * 1e6 / t.asked()
	}
	first.Granted += t.Granted
	first.Rejected += t.Rejected
	first.Failed += t.Failed
	first.Error += t.Error
	return out, r.check(ctx, there, s, first)
}

// nodes are the masters of a cluster.
type nodes [len(nodeMetrics)]*server

// usage returns what read returns for each node.
func (n *nodes) usage(ctx context.Context, read func(context.Context, *redis.Client) (usage, error)) (all [len(nodeMetrics)]usage, err error) {
	for i, node := range n {
		rdb := newClient(node.Addr(), 1)
		all[i], err = read(ctx, rdb)
		_ = rdb.Close()
		if err != nil {
			return all, fmt.Errorf("node %d of the cluster: %w", i+1, err)
		}
	}
	return all, nil
}

func (n *nodes) stop() {
	for _, node := range n {
		if node != nil {
			node.stop()
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// settled has callers settle what they acquire, to less and to more, while connections are killed, scripts are flushed and
// heal adds up the sets, which takes it several calls.
func settled(cluster bool) func(f *fault) {
	return func(f *fault) {
		const grants = 100_000
		names := []string{"{a}settled", "{b}settled", "{c}settled"}
		var rdb redis.UniversalClient
		var nodes []*redis.Client
		var dial func() redis.UniversalClient
		if cluster {
			c := redistest.StartCluster(f)
			rdb, dial = c.Client(f), dialCluster(c)
			for _, s := range c.Nodes() {
				nodes = append(nodes, admin(f, s))
			}
		} else {
			s := redistest.Start(f)
			nodes, dial = []*redis.Client{admin(f, s)}, at(s.Addr())
			rdb = nodes[0]
		}
		a := newFleet(f, dial)
		used := make([]atomic.Int64, len(names))
		var total, healed atomic.Int64
		for i, name := range names {
			a.set(name, rate(ample, time.Hour))
			a.each(16, func(c *ratelimiter.Client) {
				ctx, actual := context.Background(), rand.Int64N(7)
				g, err := c.RateLimiter(name).AcquireGrant(ctx, 3)
				if err != nil {
					f.Errorf("AcquireGrant: %v", err)
					return
				}
				for err = g.Settle(ctx, actual); err != nil; err = g.Settle(ctx, actual) {
					time.Sleep(10 * time.Millisecond)
				}
				used[i].Add(actual)
				total.Add(1)
			})
			a.running.Go(func() {
				for !a.stop.Load() {
					if a.clients[0].RateLimiter(name).Admin().Heal(context.Background()) == nil {
						healed.Add(1)
					}
				}
			})
		}
		var disturbing sync.WaitGroup
		for _, n := range nodes {
			disturbing.Go(func() {
				for i := 0; !a.stop.Load(); i++ {
					n.ScriptFlush(context.Background())
					if i%10 == 0 {
						n.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
					}
					time.Sleep(30 * time.Millisecond)
				}
			})
		}
		begin := time.Now()
		f.soon("100,000 grants are settled, or as many as there are in half a minute", func() bool {
			return total.Load() >= grants || time.Since(begin) > 30*time.Second
		})
		a.end()
		disturbing.Wait()
		require.Greater(f, total.Load(), int64(1000*len(names)), "the sets take several calls")
		for i, name := range names {
			requireNoDrift(f, rdb, name, ample, used[i].Load())
		}
		f.measured("%d grants settled, %d times healed: drift 0", total.Load(), healed.Load())
	}
}

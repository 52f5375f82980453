// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A crowd is limiters that have made a grant each, and callers that wait for a permit of the first. It measures the memory of all limiters,
// in Redis without connections and in this process, and what a waiter takes in addition. An empty Redis and an idle process are in it.
type crowd struct{ limiters, waiters int }

func (g crowd) run(b meter, at place, _ contestant) {
	ctx, j := b.Context(), job{Limiters: g.limiters, Permits: 1, Interval: time.Hour}
	s := openRedisson(b, at, j)
	client := redistest.Must(ratelimiter.New(s.rdb))(b)
	ask := func(ctx context.Context, i int) (bool, error) {
		return client.RateLimiter(j.name(i)).TryAcquire(ctx, 1, 0)
	}
	require.EqualValues(b, 1, drive(ctx, b, 64, 2000, 1, ask, untimed{}).granted())

	limiters := make([]*ratelimiter.RateLimiter, g.limiters)
	var next, granted atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for i := next.Add(1); i < int64(g.limiters); i = next.Add(1) {
				limiters[i] = client.RateLimiter(j.name(int(i)))
				if ok, err := limiters[i].TryAcquire(ctx, 1, 0); ok && err == nil {
					granted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	require.EqualValues(b, g.limiters-1, granted.Load())
	with := inProcess()
	b.ReportMetric(with, "process-B")

	waiting, stop := context.WithCancel(ctx)
	var left atomic.Int64
	for range g.waiters {
		callers.Go(func() {
			if err := client.RateLimiter(j.name(0)).Acquire(waiting, 1); errors.Is(err, context.Canceled) {
				left.Add(1)
			}
		})
	}
	time.Sleep(time.Second)
	// Of few waiters it may be less than what others gave back meanwhile.
	b.ReportMetric(max(0, inProcess()-with)/float64(g.waiters), "B/waiter")
	runtime.KeepAlive(limiters)
	stop()
	callers.Wait()
	require.EqualValues(b, g.waiters, left.Load())
	require.NoError(b, errors.Join(client.Close(), s.rdb.Close()))
	require.EqualValues(b, 3*g.limiters, at.nodes[0].DBSize(ctx).Val())
	b.ReportMetric(at.used(b), "redis-B")
}

// inProcess returns the bytes of heap and stacks in use.
func inProcess() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first empties the pools for the second
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

var usedMemory = regexp.MustCompile(`used_memory:(\d+)`)

// used returns the memory of the first node, when what connections had is free.
func (p place) used(t require.TestingT) float64 {
	time.Sleep(200 * time.Millisecond)
	text := redistest.Must(p.nodes[0].Info(context.Background(), "memory").Result())(t)
	return float64(redistest.Must(strconv.ParseInt(usedMemory.FindStringSubmatch(text)[1], 10, 64))(t))
}

// TestClusterShares counts what requests of many limiters make of calls on one server and on clusters of three and six masters: as
// many script calls, no redirection, and for each node its share of them.
func TestClusterShares(t *testing.T) {
	const limiters, requests = 5000, 20_000
	for _, masters := range []int{1, 3, 6} {
		t.Run(fmt.Sprint(masters), func(t *testing.T) {
			at := local
			if masters > 1 {
				at = clusterOf(t, masters)
			}
			at.empty(t)
			j := job{Limiters: limiters, Permits: 1e6, Interval: time.Hour}
			s := openOurs(t, at, j)
			defer s.close()
			if masters == 1 { // or calls would share a command
				client := redistest.Must(ratelimiter.New(s.rdb, ratelimiter.WithSeparateCalls()))(t)
				require.NoError(t, client.Close())
			}
			drive(t.Context(), t, 64, 1000, limiters, s.ask, untimed{})
			at.resetUsage(t)
			all := drive(t.Context(), t, 64, requests, limiters, s.ask, untimed{})
			require.EqualValues(t, requests, all.granted())
			u := at.usage(t)
			require.InDelta(t, requests, u.calls, requests*0.02, "a batch may have two requests of one limiter")
			require.InDelta(t, 1, float64(u.idlest)*float64(masters)/float64(u.calls), 0.1, "the node with the fewest has its share")
			for _, node := range at.nodes {
				stats := redistest.Must(node.Info(t.Context(), "errorstats").Result())(t)
				require.NotContains(t, stats, "MOVED")
			}
			t.Logf("%d masters: %.3f calls a request, the idlest has %.3f of its share", masters, float64(u.calls)/requests, float64(u.idlest)*float64(masters)/float64(u.calls))
		})
	}
}

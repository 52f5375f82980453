// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// inAdvance are the limiters that grant turns, of ten permits a second.
var inAdvance = map[string]Algorithm{
	"leaky queue":       LeakyQueue{per(10, time.Second), 5000},
	"smooth bursty":     SmoothBursty{PermitsPerSecond: 10, MaxBurst: time.Second},
	"smooth warming up": SmoothWarmingUp{PermitsPerSecond: 10, Warmup: time.Second},
}

// TestWaitsThatAreLeft checks that a thousand callers in two processes who leave after 200 ms close a limiter of ten permits a
// second for no longer than what Wait says: a second, and the time of the permits of one of them.
func TestWaitsThatAreLeft(t *testing.T) {
	for kind, a := range inAdvance {
		for _, n := range []int64{1, 5} {
			run := func(t *testing.T, processes [2]Limiter) {
				ctx, leave := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range 1000 {
					all.Go(func() { _ = Wait(ctx, processes[i%2], n) })
				}
				time.Sleep(200 * time.Millisecond)
				leave()
				all.Wait()
				begin, cost := time.Now(), time.Duration(n)*100*time.Millisecond
				if kind == "smooth warming up" {
					cost *= 3 // while it is cold
				}
				require.NoError(t, Wait(t.Context(), processes[0], 1))
				require.LessOrEqual(t, time.Since(begin), time.Second+cost, "%s, %d permits", kind, n)
			}
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				l := shared(t, rdb, a)
				run(t, [2]Limiter{l, twin(t, l, redistest.Peer(t, rdb))})
			})
			t.Run("local", func(t *testing.T) {
				redistest.NoServer(t)
				synctest.Test(t, func(t *testing.T) {
					l := redistest.Must(NewLocal(a))(t)
					run(t, [2]Limiter{l, l})
				})
			})
		}
	}
}

// TestWaitsAreInOrder checks that callers who wait for turns further ahead than what they reserve are served at the rate, in
// the order in which they came, and that one whose turn would come too late learns of it at once.
func TestWaitsAreInOrder(t *testing.T) {
	for kind, a := range inAdvance {
		run := func(t *testing.T, l Limiter) {
			require.NoError(t, Wait(t.Context(), l, 30)) // what comes next has to wait for it
			begin, c := time.Now(), &crowd{t: t, begin: time.Now()}
			for i := range 40 {
				c.join(i, l, 1, 1<<62)
				time.Sleep(time.Microsecond)
			}
			ok, err := WaitTimeout(t.Context(), l, 1, time.Second)
			require.NoError(t, err)
			require.False(t, ok)
			require.LessOrEqual(t, time.Since(begin), time.Millisecond, kind)
			c.all.Wait()
			require.Len(t, c.served, 40)
			for i, s := range c.served {
				require.True(t, s.ok)
				require.Equal(t, i, s.who, kind)
				if i > 10 { // warm
					require.InDelta(t, 100*time.Millisecond, s.after-c.served[i-1].after, float64(50*time.Microsecond), kind)
				}
			}
		}
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) { run(t, shared(t, rdb, a)) })
		t.Run("local", func(t *testing.T) {
			redistest.NoServer(t)
			synctest.Test(t, func(t *testing.T) { run(t, redistest.Must(NewLocal(a))(t)) })
		})
	}
}

package ratelimiter

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A granter is a hook that takes the place of Redis. It grants everything, after a moment in which requests
// come that share the next call.
type granter struct{ scriptHook }

func (granter) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		time.Sleep(100 * time.Microsecond)
		grants(cmd)
		return nil
	}
}

func (g granter) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			grants(cmd)
		}
		time.Sleep(100 * time.Microsecond)
		return nil
	}
}

// grants gives cmd the reply that all of its requests were granted: of acquire, or of acquire_rest, which a check is.
func grants(cmd redis.Cmder) {
	reply := []any{int64(0), int64(0), int64(0), int64(1 << 30), int64(1000), int64(0), int64(-1)}
	if args := cmd.Args(); args[1] == scripts.AcquireRest.Sha {
		zero := int64(0)
		reply = []any{zero, args[3+3+2], zero, zero, zero, int64(1 << 30), int64(1000), zero, zero, zero, zero, zero, zero, zero}
	}
	cmd.(dispatch.OnceCmd).SetVal(reply)
}

// On the path of a batch an acquire makes at most two allocations, and most acquires make none.
func TestBatchedAcquiresHardlyAllocate(t *testing.T) {
	redistest.NoRace(t, "it counts allocations")
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	rdb.AddHook(granter{})
	c := newClient(t, rdb)
	defer c.Close()
	const callers, each = 256, 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	work := func() {
		var wg sync.WaitGroup
		for i := range callers {
			l := c.RateLimiter("allocs")
			wg.Go(func() {
				for range each {
					ok, err := l.TryAcquire(ctx, 1, time.Duration(i%2)*time.Minute)
					if !ok || err != nil {
						t.Error(ok, err)
					}
				}
			})
		}
		wg.Wait()
	}
	work()               // fills the pools
	least := math.Inf(1) // of three: on a busy machine fewer share a batch, and a collection empties the pools
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		work()
		runtime.ReadMemStats(&after)
		an := float64(after.Mallocs-before.Mallocs) / (callers * each)
		t.Logf("%.3f allocations an acquire", an)
		least = min(least, an)
	}
	require.LessOrEqual(t, least, 2.0)
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// together has callers make calls of a script, each with a key of its own, and returns the outcome of each.
func together(rdb dispatch.Sender, s *dispatch.Script, callers, calls int) (replies [][]any, errs [][]error) {
	replies, errs = make([][]any, callers), make([][]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		cmd, _ := s.Command([]string{fmt.Sprint("key-", i)})
		wg.Go(func() {
			for range calls {
				reply, err := s.Once(context.Background(), rdb, cmd)
				replies[i], errs[i] = append(replies[i], reply), append(errs[i], err)
			}
		})
	}
	wg.Wait()
	return replies, errs
}

// TestJointsAreMeasured has calls that take Redis a millisecond each travel together: soon hardly any do, so that other clients
// do not wait for long, whether or not the TIME of the server stands still while a script runs.
func TestJointsAreMeasured(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "HELLO without arguments")
	rdb, w := redistest.Start(t).Client(t), new(watch)
	d := dispatch.Of(rdb)
	slow := dispatch.New("slow", "for _ = 1, 10000 do local t = {KEYS[1]} end return {KEYS[1]}", 1, 0)
	together(d, slow, 64, 10)
	w.keys = 1
	rdb.AddHook(w)
	_, errs := together(d, slow, 64, 5)
	for _, of := range errs {
		require.Equal(t, make([]error, 5), of)
	}
	require.Positive(t, w.joints.Load())
	require.LessOrEqual(t, w.calls.Load(), 12*w.joints.Load(), "%d calls in %d commands", w.calls.Load(), w.joints.Load())
}

// TestJointThatIsKilled ends joints with SCRIPT KILL, which Redis allows while nothing is written, so that other calls meet
// BUSY. A kill ends one call at most, since those of a joint are then made singly.
func TestJointThatIsKilled(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "HELLO without arguments")
	s := redistest.Start(t, "--lua-time-limit", "5")
	rdb := s.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	admin, w := s.Client(t), &watch{keys: 1}
	rdb.AddHook(w)
	slow := dispatch.New("slow", "local n = 0 while n < 300000 do n = n + 1 end return {KEYS[1]}", 1, 0)
	ctx, stop := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	kills := 0
	killer.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(3 * time.Millisecond)
			if admin.ScriptKill(ctx).Err() == nil {
				kills++
			}
		}
	})
	replies, errs := together(dispatch.Of(rdb), slow, 64, 10)
	stop()
	killer.Wait()
	busy, killed := 0, 0
	for i := range errs {
		for j, err := range errs[i] {
			switch {
			case err == nil:
				require.Equal(t, []any{fmt.Sprint("key-", i)}, replies[i][j])
			case redis.HasErrorPrefix(err, "BUSY"):
				require.Equal(t, retry.NotExecuted, dispatch.Classify(err))
				busy++
			default:
				require.ErrorContains(t, err, "SCRIPT KILL")
				require.Equal(t, retry.Executed, dispatch.Classify(err))
				killed++
			}
		}
	}
	require.Positive(t, w.joints.Load())
	require.Positive(t, busy)
	require.Positive(t, kills)
	require.LessOrEqual(t, killed, kills)
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
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

// A shunt is a hook that sends each command to the server of its first key, as a proxy in front of several servers does.
type shunt struct {
	redistest.Passing
	servers []*redis.Client
}

func (s shunt) process(ctx context.Context, cmd redis.Cmder) error {
	at := 0
	if args := cmd.Args(); len(args) > 3 {
		var n int
		_, _ = fmt.Sscanf(strings.Trim(fmt.Sprint(args[3]), "{"), "many-%d", &n)
		at = n % len(s.servers)
	}
	return s.servers[at].Process(ctx, cmd)
}

func (s shunt) ProcessHook(redis.ProcessHook) redis.ProcessHook { return s.process }

func (s shunt) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		for _, cmd := range cmds {
			err = errors.Join(err, s.process(ctx, cmd))
		}
		return err
	}
}

// TestServersThatLookLikeOne has several servers reply to HELLO as one does. No caller is told that a limiter has no rate
// because another server was asked, and no limiter has permits in use of which its callers were not told.
func TestServersThatLookLikeOne(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "HELLO without arguments")
	servers := []*redis.Client{redistest.Start(t).Client(t), redistest.Start(t).Client(t), redistest.Start(t).Client(t)}
	rdb, w := redistest.Start(t).Client(t), &watch{keys: 3}
	rdb.AddHook(w)
	rdb.AddHook(shunt{servers: servers})
	client := redistest.Must(ratelimiter.New(rdb))(t)
	defer client.Close()
	list := names(true)
	for _, name := range list {
		redistest.Must(client.RateLimiter(name).TrySetRate(t.Context(), ratelimiter.Rate{Permits: 1e9, Interval: time.Hour}))(t)
	}
	all := drive(t, client, list, 300*time.Millisecond, nil)
	require.Positive(t, w.joints.Load())
	for i, name := range list {
		require.Empty(t, all.errs[i])
		left := redistest.Must(servers[i%len(servers)].Get(t.Context(), valueKey(name)).Int64())(t)
		require.Equal(t, 1_000_000_000-left, all.granted[i].Load())
	}
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
		for _, err := range of {
			if short := (*retry.Shortage)(nil); !errors.As(err, &short) { // of a busy machine
				require.NoError(t, err)
			}
		}
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

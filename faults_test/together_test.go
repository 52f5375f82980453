// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A together is a hook that counts the calls of limiters that travel in a command with others.
type together struct {
	redistest.Passing
	calls atomic.Int64
}

func (t *together) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if args := cmd.Args(); len(args) > 3 {
				if keys, _ := args[2].(int); keys > 3 { // a call has three
					t.calls.Add(int64(keys / 3))
				}
			}
		}
		return next(ctx, cmds)
	}
}

// failoverTogether replaces a master while the calls of many scarce limiters travel together. All of them are used up, and
// the replica has none of that.
func failoverTogether(what func(w *watched)) func(*fault) {
	return func(f *fault) {
		const limiters = 32
		w, hook := startSentinels(f), new(together)
		a := newFleet(f, func() redis.UniversalClient {
			rdb := w.dial()
			rdb.AddHook(hook)
			return rdb
		})
		var names []string
		for i := range limiters {
			names = append(names, fmt.Sprint("many", i))
			a.set(names[i], rate(scarce, time.Hour))
		}
		rdb := admin(f, w.master)
		do(f, rdb, "WAIT", 1, 1000)
		deafen(f, rdb)
		books := map[string]*grantlog.Ledger{}
		for _, name := range names {
			require.True(f, redistest.Must(a.clients[0].RateLimiter(name).Allow(context.Background(), scarce))(f).Granted)
		}
		for _, name := range names {
			books[name] = a.tries(name, 1, 2*time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		before, begin := hook.calls.Load(), time.Now()
		what(w)
		back := masterAt(f, w.replica)
		replica, after := admin(f, w.replica), hook.calls.Load()
		left := func(most int) func() bool {
			return func() bool {
				for _, name := range names {
					if value, err := replica.Get(context.Background(), "{"+name+"}:value").Int(); err != nil || value > most {
						return false
					}
				}
				return true
			}
		}
		f.soon("the new master grants a permit of each", left(scarce-1))
		first := time.Since(back)
		f.soon("the new master grants all permits of each", left(0))
		time.Sleep(time.Second)
		a.end()
		granted, unavailable := int64(0), 0
		for _, b := range books {
			granted, unavailable = granted+b.Told().Permits(), unavailable+errs(b)
		}
		f.measured("%d limiters, %d calls together before and %d after; %d granted of %d; the replica takes writes after %v, each is served again %v later; %d calls got ErrUnavailable",
			limiters, before, hook.calls.Load()-after, limiters*scarce+granted, limiters*scarce, round(back.Sub(begin)), round(first), unavailable)
		require.Greater(f, before, int64(100))
		require.Greater(f, hook.calls.Load()-after, int64(100))
		for name, b := range books {
			requireTyped(f, b, false)
			in := inRedis(f, replica, name)
			require.Equal(f, stored{value: 0, used: scarce}, in, name)
			require.LessOrEqual(f, b.Told().Permits(), int64(scarce), name)
			require.GreaterOrEqual(f, b.Told().Permits()+int64(errs(b)), int64(scarce), "%s: granted, but not told", name)
		}
		f.within("a grant of each", back, first, firstGrant)
	}
}

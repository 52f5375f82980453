// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCallsInAJoint tests that each script replies the same and leaves the same, alone and in the middle of calls whose keys have
// wrong types, which fail.
func TestCallsInAJoint(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), redistest.Key(t)
		require.NoError(t, rdb.RPush(ctx, name, "neither a string nor a sorted set").Err())
		for kind, a := range every() {
			s, now, draw := a.model().Script, time.UnixMilli(1_700_000_000_000), proptest.Rand(t)
			c := &calls.Limiter{Clock: func() time.Time { return now }}
			of := func(keys string) (list []string) {
				for i := range s.Keys {
					list = append(list, fmt.Sprintf("{%s}:%s:%s:%d", name, kind, keys, i))
				}
				return list
			}
			wrong := slices.Repeat([]string{name}, s.Keys)
			for i := range 100 {
				now = now.Add(time.Duration(draw.IntN(400)) * time.Millisecond)
				requests := fmt.Sprint(1 + draw.IntN(3))
				if a.model().Reserves {
					requests += fmt.Sprintf(":1:%d", draw.IntN(2_000_000))
				}
				since := []int64{calls.First, calls.First, calls.First, calls.Unknown, now.UnixMicro() - 1000}[draw.IntN(5)]
				cmd := redistest.Must(c.Command(newSetting(a), of("alone"), requests, fmt.Sprintf(";abcdefgh%06d", i), since))(t)
				args := cmd[3+s.Keys:]
				want := redistest.Must(rdb.Eval(ctx, s.Src, of("alone"), args...).Slice())(t)
				raw := redistest.Must(rdb.Eval(ctx, dispatch.Joint(s.Src, s.Keys, s.Args, len(args)), slices.Concat(wrong, of("joint"), wrong),
					slices.Concat(args, args, args)...).Result())(t)
				if raw == int64(0) {
					return // a server with another Lua
				}
				list := raw.([]any)
				require.Len(t, list, 1+2+1+len(want)+2, "%s: %v", kind, list)
				require.Equal(t, append([]any{int64(len(want))}, want...), list[3:4+len(want)], "%s, step %d: %v", kind, i, args)
				for _, part := range [][]any{list[1:3], list[len(list)-2:]} {
					require.EqualValues(t, -2, part[0], kind)
					require.Contains(t, part[1], "WRONGTYPE", kind)
				}
				for i, key := range of("alone") {
					other := of("joint")[i]
					require.Equal(t, rdb.Type(ctx, key).Val(), rdb.Type(ctx, other).Val(), kind)
					require.Equal(t, rdb.Get(ctx, key).Val(), rdb.Get(ctx, other).Val(), kind)
					require.Equal(t, rdb.ZRangeWithScores(ctx, key, 0, -1).Val(), rdb.ZRangeWithScores(ctx, other, 0, -1).Val(), kind)
				}
			}
		}
	})
}

// TestWithSeparateCalls tests that no pipeline of a redis client asks whether calls may travel in one command, once a limiter or a
// Client that uses it wants its calls to be commands of their own.
func TestWithSeparateCalls(t *testing.T) {
	for name, c := range map[string]struct {
		limiter []Option
		client  []ratelimiter.Option
		asks    bool
	}{
		"by default":    {asks: true},
		"of a limiter":  {limiter: []Option{WithSeparateCalls()}},
		"of the Client": {client: []ratelimiter.Option{ratelimiter.WithSeparateCalls()}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				together := &pipelines{}
				rdb.AddHook(together)
				redistest.Must(ratelimiter.New(rdb, c.client...))(t)
				l := redistest.Must(NewShared(rdb, redistest.Key(t), GCRA{per(1000, time.Second), 1000}, c.limiter...))(t)
				var wg sync.WaitGroup
				for i := range 30 {
					wg.Go(func() {
						r, err := l.For(fmt.Sprint(i)).Allow(t.Context(), 1)
						assert.NoError(t, err)
						assert.True(t, r.Granted)
					})
				}
				wg.Wait()
				require.NotZero(t, together.sent.Load(), "no calls left together")
				require.Equal(t, c.asks, together.hellos.Load() > 0)
			})
		})
	}
}

// A pipelines counts the pipelines of script calls, and those that ask what the server is. Each command that is sent by itself takes
// a while, in which others come.
type pipelines struct {
	redistest.Passing
	sent, hellos atomic.Int64
}

func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(100 * time.Microsecond)
		return next(ctx, cmd)
	}
}

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			p.sent.Add(1)
			if cmds[len(cmds)-1].Name() == "hello" {
				p.hellos.Add(1)
			}
		}
		return next(ctx, cmds)
	}
}

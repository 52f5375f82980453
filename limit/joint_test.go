// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/proptest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCallsInAJoint tests that each script replies the same and leaves the same, alone and in the middle of calls whose keys have
// wrong types, which fail.
func TestCallsInAJoint(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), redistest.Key(t)
		require.NoError(t, rdb.RPush(ctx, name, "neither a string nor a sorted set").Err())
		for kind, a := range every() {
			s, now, draw := a.script(), time.UnixMilli(1_700_000_000_000), proptest.Rand(t)
			c := &config{clock: func() time.Time { return now }}
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
				if a.reserves() {
					requests += fmt.Sprintf(":1:%d", draw.IntN(2_000_000))
				}
				since := []int64{first, first, first, unknown, now.UnixMicro() - 1000}[draw.IntN(5)]
				cmd := redistest.Must(c.command(newSetting(a), of("alone"), requests, fmt.Sprintf(";abcdefgh%06d", i), since))(t)
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

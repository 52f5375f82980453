// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestEachKey checks that the scripts which are for all keys of a limiter miss none, by limiters of which only one key exists.
func TestEachKey(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), redistest.Key(t)
		var keys []string
		for _, suffix := range []string{"", ":v", ":p", ":v:client", ":p:client", ":ahead", ":ahead:client"} {
			keys = append(keys, "{"+name+"}"+suffix)
		}
		for i, key := range keys {
			run := func(script string, n int, args ...any) any {
				return redistest.Must(rdb.Eval(ctx, text(script), keys[:n], args...).Result())(t)
			}
			if i >= 5 { // these have a TTL of their own, and are no limiter by themselves: beside one they go if they look like it
				for _, text := range []string{"x", "ab 1700000000000 0"} {
					require.NoError(t, rdb.Set(ctx, key, text, 0).Err())
					require.EqualValues(t, 0, run("delete", 7), key)
					require.Equal(t, text, rdb.Get(ctx, key).Val())
					require.NoError(t, rdb.HSet(ctx, keys[0], "rate", 1).Err())
					require.EqualValues(t, 1, run("delete", 7), key)
					require.Equal(t, text == "x", rdb.Exists(ctx, key).Val() == 1, key)
				}
				require.NoError(t, rdb.Del(ctx, key).Err())
				require.NoError(t, rdb.RPush(ctx, key, "x").Err())
				require.NoError(t, rdb.HSet(ctx, keys[0], "rate", 1).Err())
				require.EqualValues(t, 1, run("delete", 7), key)
				require.EqualValues(t, 1, rdb.Del(ctx, key).Val(), key)
				continue
			}
			require.NoError(t, rdb.Set(ctx, key, "x", 0).Err())
			for _, cond := range []string{"", "NX", "XX", "GT", "LT"} {
				require.NoError(t, rdb.Persist(ctx, key).Err())
				if cond == "XX" || cond == "GT" {
					require.NoError(t, rdb.PExpire(ctx, key, time.Minute).Err())
				}
				require.EqualValues(t, 1, run("expire", 5, 3_600_000, "", cond), "%s %s", key, cond)
				require.InDelta(t, time.Hour, rdb.PTTL(ctx, key).Val(), float64(time.Minute), "%s %s", key, cond)
			}
			require.EqualValues(t, 1, run("clear_expire", 5), key)
			require.Negative(t, rdb.PTTL(ctx, key).Val(), key)
			require.EqualValues(t, 0, run("clear_expire", 5), key)
			require.EqualValues(t, 1, run("delete", 7), key)
			require.Zero(t, rdb.Exists(ctx, key).Val(), key)
		}
	})
}

// TestKeysThatDoNotTakeATTL checks the conditions of expire, and that the replies are the same however many keys there are.
func TestKeysThatDoNotTakeATTL(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), redistest.Key(t)
		var keys []string
		for _, suffix := range []string{"", ":v", ":p", ":v:client", ":p:client"} {
			keys = append(keys, "{"+name+"}"+suffix)
		}
		run := func(script string, n int, args ...any) any {
			return redistest.Must(rdb.Eval(ctx, text(script), keys[:n], args...).Result())(t)
		}
		const hour = 3_600_000
		require.EqualValues(t, -2, run("expire_time", 1))
		time.Sleep(999 * time.Millisecond) // so that each millisecond counts
		require.NoError(t, rdb.Set(ctx, keys[0], "x", time.Millisecond).Err())
		time.Sleep(600 * time.Microsecond) // the TTL is 0 now, which is not the lack of one; of a real server the key may be gone
		before := rdb.Time(ctx).Val().UnixMilli()
		if n := run("expire_time", 1); n != int64(-2) {
			require.GreaterOrEqual(t, n, before)
		}
		require.NoError(t, rdb.MSet(ctx, keys[0], "x", keys[1], "x").Err())
		require.EqualValues(t, -1, run("expire_time", 1))
		for cond, want := range map[string]int{"XX": 0, "GT": 0, "LT": 1, "NX": 1, "": 1} {
			require.EqualValues(t, want, run("expire", 5, hour, "", cond), "without a TTL, %s", cond)
			run("clear_expire", 5)
		}
		for cond, want := range map[string]int{"XX": 1, "GT": 1, "LT": 0, "NX": 0} {
			require.EqualValues(t, 1, run("expire", 5, hour/2, "", ""))
			require.EqualValues(t, want, run("expire", 5, hour, "", cond), "longer, %s", cond)
		}
		for cond, want := range map[string]int{"XX": 1, "GT": 0, "LT": 1, "NX": 0} {
			require.EqualValues(t, 1, run("expire", 5, hour, "", ""))
			require.EqualValues(t, want, run("expire", 5, hour/2, "", cond), "shorter, %s", cond)
		}
		require.EqualValues(t, 1, run("clear_expire", 5))
		require.EqualValues(t, 0, run("expire", 5, "", rdb.Time(ctx).Val().Add(-time.Hour).UnixMilli(), "XX"))
		require.EqualValues(t, 1, run("expire", 5, "", rdb.Time(ctx).Val().Add(-time.Hour).UnixMilli(), ""))
		require.Zero(t, rdb.Exists(ctx, keys...).Val())
	})
}

// TestInspectReadsWhatItIsTold checks that inspect reads so many members and no more, and a limiter whose type is none.
func TestInspectReadsWhatItIsTold(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, k := t.Context(), keysOf("{"+redistest.Key(t)+"}")
		require.NoError(t, k.put(ctx, rdb, state{hash: hash("type", "7"), value: "3", members: []member{{-200, java(4)}, {-100, java(3)}}}, instant))
		defer rdb.Del(ctx, k[:]...)
		reply := redistest.Must(rdb.Eval(ctx, text("inspect"), k.of("inspect"), "0", instant, 1).Slice())(t)
		require.Len(t, reply, 6)
		require.Equal(t, []any{int64(0), int64(instant)}, reply[:2])
		require.Equal(t, []any{"3", int64(2)}, reply[3:5])
		require.Equal(t, []any{java(3), at(-100)}, reply[5])
		require.Len(t, reply[2], 6)
		for i := range 62 { // of 65 fields it replies with those of a limiter alone
			require.NoError(t, rdb.HSet(ctx, k[0], fmt.Sprint("field ", i), "x").Err())
			reply = redistest.Must(rdb.Eval(ctx, text("inspect"), k.of("inspect"), "0", instant, 1).Slice())(t)
			require.Len(t, reply[2], map[bool]int{true: 2 * (4 + i), false: 6}[i < 61])
		}
		require.NoError(t, rdb.HSet(ctx, k[0], "type", "1").Err())
		require.Equal(t, []any{int64(2), int64(1)}, redistest.Must(rdb.Eval(ctx, text("inspect"), k.of("inspect"), "0", instant, 1).Slice())(t))
	})
}

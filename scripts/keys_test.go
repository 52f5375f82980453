// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestEachKey checks that the scripts which are for all keys of a limiter miss none, by limiters of which only one key exists.
func TestEachKey(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), redistest.Key(t)
		var keys []string
		for _, suffix := range []string{"", ":v", ":p", ":v:client", ":p:client", ":ahead", ":ahead:client", ":parked", ":parked:client"} {
			keys = append(keys, "{"+name+"}"+suffix)
		}
		for i, key := range keys {
			run := func(script string, n int, args ...any) any {
				return redistest.Must(rdb.Eval(ctx, text(script), keys[:n], args...).Result())(t)
			}
			if i >= 5 { // these have a TTL of their own, and are no limiter by themselves: beside one they go if they look like it
				for _, text := range []string{"x", map[bool]string{true: "ab 1700000000000 0", false: "parked 1700000000000 x"}[i < 7]} {
					require.NoError(t, rdb.Set(ctx, key, text, 0).Err())
					require.EqualValues(t, 0, run("delete", 9), key)
					require.Equal(t, text, rdb.Get(ctx, key).Val())
					require.NoError(t, rdb.HSet(ctx, keys[0], "rate", 1).Err())
					require.EqualValues(t, 1, run("delete", 9), key)
					require.Equal(t, text == "x", rdb.Exists(ctx, key).Val() == 1, key)
				}
				require.NoError(t, rdb.Del(ctx, key).Err())
				require.NoError(t, rdb.RPush(ctx, key, "x").Err())
				require.NoError(t, rdb.HSet(ctx, keys[0], "rate", 1).Err())
				require.EqualValues(t, 1, run("delete", 9), key)
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
			require.EqualValues(t, 1, run("delete", 9), key)
			require.Zero(t, rdb.Exists(ctx, key).Val(), key)
		}
	})
}

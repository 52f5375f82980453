// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What others do to a limiter, with a member for each grant.
var (
	// grantNine reclaims what has expired, and grants nine permits at an instant.
	grantNine = redis.NewScript(`
		for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2], 'LIMIT', 0, 50)) do
			redis.call('ZREM', KEYS[1], m)
			redis.call('INCRBY', KEYS[2], string.byte(m, -4))
		end
		if tonumber(redis.call('GET', KEYS[2])) >= 9 then
			redis.call('ZADD', KEYS[1], ARGV[1] - ARGV[4], '\16' .. ARGV[3] .. '\9\0\0\0')
			redis.call('INCRBY', KEYS[2], -9)
		end
		return 1`)
	// settleOne settles a grant of nine in the middle of the set to one.
	settleOne = redis.NewScript(`
		local rank = math.floor(redis.call('ZCARD', KEYS[1]) * ARGV[1])
		local m = redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')
		if #m == 2 and string.byte(m[1], -4) == 9 then
			redis.call('ZREM', KEYS[1], m[1])
			redis.call('ZADD', KEYS[1], m[2], string.sub(m[1], 1, -5) .. '\1\0\0\0')
			redis.call('INCRBY', KEYS[2], 8)
		end
		return 1`)
	fill = redis.NewScript(`
		for i = ARGV[1], ARGV[2] do
			redis.call('ZADD', KEYS[1], ARGV[3] + math.floor(i / 100), '\16' .. string.format('%016d', i) .. '\1\0\0\0')
		end
		return redis.call('INCRBY', KEYS[2], ARGV[1] - ARGV[2] - 1)`)
)

// sick returns the findings of a limiter that are more than info, but for the size of its set.
func sick(r *Report) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity == Info || f.Check == "huge-set" })
}

// TestBusy looks often at a limiter that others use all the time: it is healthy each time, and nothing is left
// out. Then permits are lost, which is found, also while others go on.
func TestBusy(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	for name, c := range map[string]struct {
		rate, interval int64
		members        int64 // that are there before
		behind         int64 // how many ms the clock is behind by which they are granted
		settles        bool
	}{
		"2,500 members":     {27_000, 3000, 0, 0, false},
		"100,000 members":   {120_000, 3_600_000, 95_000, 0, false},
		"a slow clock":      {27_000, 3000, 0, 700, false},
		"settled meanwhile": {27_000, 3000, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, ctx := redistest.Start(t, "--appendonly", "yes").Client(t), t.Context()
			keys := []string{"{busy}:permits", "{busy}:value"}
			require.NoError(t, rdb.HSet(ctx, "busy", "rate", c.rate, "interval", c.interval, "type", 0, "keepAliveTime", 0).Err())
			require.NoError(t, rdb.Set(ctx, keys[1], c.rate, 0).Err())
			for i := int64(0); i < c.members; i += 5000 {
				require.NoError(t, fill.Run(ctx, rdb, keys, i, i+4999, time.Now().Add(-time.Minute).UnixMilli()).Err())
			}
			var stop atomic.Bool
			var all sync.WaitGroup
			for i := range 2 {
				all.Go(func() {
					for n := 0; !stop.Load(); n++ {
						_ = grantNine.Run(ctx, rdb, keys, time.Now().UnixMilli(), c.interval, fmt.Sprintf("%d%015d", i, n), c.behind).Err()
						if c.settles {
							_ = settleOne.Run(ctx, rdb, keys, float64(n%9)/10).Err()
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			defer all.Wait()
			defer stop.Store(true)
			for c.members == 0 && rdb.ZCard(ctx, keys[0]).Val() < 2000 {
				time.Sleep(10 * time.Millisecond)
			}
			look := func() *Report {
				return redistest.Must((&Doctor{Survey: survey.New(rdb)}).All(ctx, survey.Query{}, 10, nil))(t)
			}
			minor := 0
			for i := range redistest.Cases(8, 30) {
				r := look()
				require.Empty(t, sick(r), "%d", i)
				require.False(t, r.Blind(), "%d: %+v", i, r.Skipped)
				minor += len(r.Skipped)
			}
			t.Logf("%d members; %d times it was narrowed down only", rdb.ZCard(ctx, keys[0]).Val(), minor)
			require.NoError(t, rdb.DecrBy(ctx, keys[1], 500).Err())
			r := look()
			require.Len(t, sick(r), 1, "%+v", r.Skipped)
			found := sick(r)[0]
			require.Equal(t, "lost", found.Check)
			if !c.settles {
				require.Contains(t, found.Found, "500 less than the rate")
			}
		})
	}
}

package survey

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestFindAmongAMillionKeys finds 100,000 limiters among 1,000,000 keys. The first page comes after one step, no
// command is slow, and what the search keeps is little. The figures of a run are printed with -v.
func TestFindAmongAMillionKeys(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	redistest.NoRace(t, "one goroutine reads")
	server := redistest.Start(t, "--enable-debug-command", "local", "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "10000")
	rdb, ctx := server.Client(t), t.Context()
	require.NoError(t, rdb.Do(ctx, "debug", "populate", 800_000, "other").Err())
	const fill = `for i = ARGV[1], ARGV[2] do
		redis.call('HSET', 'limiter' .. i, 'rate', 5, 'interval', 60000, 'type', 0)
		redis.call('SET', '{limiter' .. i .. '}:value', 4)
	end
	return 1`
	for i := range 100 {
		require.NoError(t, rdb.Eval(ctx, fill, nil, 1000*i, 1000*i+999).Err())
	}
	require.EqualValues(t, 1_000_000, rdb.DBSize(ctx).Val())
	require.NoError(t, rdb.SlowLogReset(ctx).Err())
	require.NoError(t, rdb.ConfigResetStat(ctx).Err())

	begin, steps := time.Now(), int64(0)
	n := 0
	for l, err := range New(rdb).Find(ctx, Query{Looked: &steps}) {
		require.NoError(t, err)
		require.EqualValues(t, 5, l.Available())
		if n++; n == 50 {
			break
		}
	}
	require.Equal(t, 50, n)
	require.LessOrEqual(t, steps, int64(5000), "the first page needs few steps")
	t.Logf("the first page: %v", time.Since(begin))

	var before, peak, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin, n = time.Now(), 0
	for _, err := range New(rdb).Find(ctx, Query{Remains: true}) {
		require.NoError(t, err)
		if n++; n%10_000 == 0 {
			runtime.GC()
			if runtime.ReadMemStats(&now); now.HeapAlloc > peak.HeapAlloc {
				peak = now
			}
		}
	}
	require.Equal(t, 100_000, n)
	kept := int64(peak.HeapAlloc) - int64(before.HeapAlloc)
	require.Less(t, kept, int64(64<<20))
	t.Logf("all: %v, %d KiB kept", time.Since(begin), kept>>10)

	// On a busy machine any command can be slow by the clock. A command that is slow each time is too much work.
	slow := rdb.SlowLogGet(ctx, 10_000).Val()
	t.Log(rdb.Info(ctx, "commandstats").Val())
	for _, entry := range slow {
		best := time.Hour
		for range 10 {
			args := []any{}
			for _, a := range entry.Args {
				args = append(args, a)
			}
			if strings.Contains(strings.Join(entry.Args, " "), "more arguments") {
				break
			}
			require.NoError(t, rdb.SlowLogReset(ctx).Err())
			_ = rdb.Do(ctx, args...).Err()
			if again := rdb.SlowLogGet(ctx, 10).Val(); len(again) == 0 {
				best = 0
			} else {
				best = min(best, again[0].Duration)
			}
		}
		require.Less(t, best, time.Millisecond, "%v", entry.Args)
	}
	t.Logf("%d commands above a millisecond once", len(slow))
}

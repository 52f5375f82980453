// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"runtime"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestFindAmongAMillionKeys finds 100,000 limiters among 1,000,000 keys. The first page comes after one step, no
// command is slow, and what the search keeps is little. The figures of a run are printed with -v.
func TestFindAmongAMillionKeys(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	redistest.NoRace(t, "one goroutine reads")
	server := redistest.StartLogged(t, "--enable-debug-command", "local")
	rdb, ctx := server.Client(t), t.Context()
	redistest.FillMillion(t, rdb)
	require.EqualValues(t, 1_000_000, rdb.DBSize(ctx).Val())
	require.NoError(t, rdb.SlowLogReset(ctx).Err())
	require.NoError(t, rdb.ConfigResetStat(ctx).Err())

	begin, steps := time.Now(), int64(0)
	n := 0
	for l, err := range New(rdb).Find(ctx, Query{Looked: &steps}) {
		require.NoError(t, err)
		require.EqualValues(t, 4, l.Available(), "value says so, and it is enough")
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

	t.Log(rdb.Info(ctx, "commandstats").Val())
	t.Logf("%d commands above a millisecond once", redistest.RequireQuick(t, rdb, nil))
}

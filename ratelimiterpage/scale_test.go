// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestPageAmongAMillionKeys looks at the list of 100,000 limiters among 1,000,000 keys, and at one with 1,000,000
// members. What is kept is little, and no command is slow each time. The figures of a run are printed with -v.
func TestPageAmongAMillionKeys(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	redistest.NoRace(t, "one goroutine looks")
	server := redistest.StartLogged(t, "--enable-debug-command", "local")
	rdb, ctx := server.Client(t), t.Context()
	redistest.FillMillion(t, rdb)
	const members = `local now = redis.call('TIME')[1] * 1000
	for i = ARGV[1], ARGV[2] do
		redis.call('ZADD', '{huge}:permits', now - i % 100000, struct.pack('Bc16I', 16, string.format('%016d', i), 1))
	end
	return 1`
	for i := range 1000 {
		require.NoError(t, rdb.Eval(ctx, members, nil, 1000*i, 1000*i+999).Err())
	}
	require.NoError(t, rdb.HSet(ctx, "huge", "rate", 2_000_000, "interval", 3_600_000, "type", 0).Err())
	require.NoError(t, rdb.Set(ctx, "{huge}:value", 1_000_000, 0).Err())
	require.NoError(t, rdb.SlowLogReset(ctx).Err())

	s := newSite(t, rdb)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	p := s.get("")
	first := time.Since(begin)
	require.Len(t, p.names(), rowsShown)
	t.Logf("the first page: %v", first)
	redistest.Prompt(t, first, 2*time.Second, "the first page")
	for strings.Contains(p.body, "data-looking") {
		p = s.get("")
	}
	t.Logf("all: %v", time.Since(begin))
	require.Contains(t, p.body, "of 100001")
	require.Equal(t, "huge", s.get("?sort=name").names()[0])
	begin = time.Now()
	require.Equal(t, []string{"limiter77777"}, s.get("?q=77777").names())
	s.get("?sort=used&page=1500")
	t.Logf("a filter and a page in the middle: %v", time.Since(begin))
	begin = time.Now()
	p = s.get("limiter?name=" + url.QueryEscape("huge"))
	require.Contains(t, p.body, "Only the 500 oldest and the 500 newest of 1,000,000 members were read.")
	t.Logf("the limiter with 1,000,000 members: %v", time.Since(begin))
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d KiB kept", kept>>10)
	require.Less(t, kept, int64(64<<20))

	redistest.RequireQuick(t, rdb, func(args []string) bool { // the parts of EXEC are judged each by itself
		return redistest.CutShort(args) || strings.HasPrefix(strings.ToLower(args[0]), "exec")
	})
}

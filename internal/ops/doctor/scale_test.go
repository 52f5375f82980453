// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestAMillionMembers looks at a limiter with 1,000,000 members in its set in every way that rrl does. No command takes
// Redis a millisecond each time, and little is kept. The figures of a run are printed with -v.
func TestAMillionMembers(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	redistest.NoRace(t, "one goroutine reads")
	rdb := redistest.StartLogged(t, "--appendonly", "yes").Client(t)
	ctx := t.Context()
	now := rdb.Time(ctx).Val().UnixMilli()
	const fill = `for i = ARGV[1], ARGV[2] do
		local id = string.format('%08d', i)
		redis.call('ZADD', KEYS[1], ARGV[3] + i / 1000, '\16' .. id .. id .. '\1\0\0\0')
	end
	return 1`
	for i := range 200 {
		require.NoError(t, rdb.Eval(ctx, fill, []string{"{huge}:permits"}, 5000*i, 5000*i+4999, now).Err())
	}
	require.EqualValues(t, 1_000_000, rdb.ZCard(ctx, "{huge}:permits").Val())
	require.NoError(t, rdb.HSet(ctx, "huge", "rate", 1_000_000, "interval", 3_600_000, "type", 0, "keepAliveTime", 0).Err())
	require.NoError(t, rdb.Set(ctx, "{huge}:value", 0, 0).Err())
	require.NoError(t, rdb.SlowLogReset(ctx).Err())

	s := survey.New(rdb)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	took := func(what string) {
		t.Logf("%s: %v", what, time.Since(begin).Round(100*time.Microsecond))
		begin = time.Now()
	}
	found := 0
	for l, err := range s.Find(ctx, survey.Query{}) {
		require.NoError(t, err)
		require.EqualValues(t, 1_000_000, l.Count)
		found++
	}
	require.Equal(t, 1, found)
	took("ls")
	st := redistest.Must(s.Read(ctx, "huge", ""))(t)
	require.EqualValues(t, 1_000_000, st.Count)
	redistest.Must(st.Peek(1))(t)
	took("inspect, peek, and each line of watch")
	d := &Doctor{Survey: s}
	r := redistest.Must(d.Limiter(ctx, "huge"))(t)
	took("doctor NAME")
	checks := ""
	for _, f := range r.Findings {
		checks += f.Check + " "
	}
	require.Contains(t, checks, "huge-set")
	require.Contains(t, r.Skipped[0].Why, "1000000 members is too large")
	redistest.Must(d.All(ctx, survey.Query{}, 10, nil))(t)
	took("doctor")
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20))
	t.Logf("%d KiB kept", (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)

	slow := redistest.RequireQuick(t, rdb, func(args []string) bool {
		require.False(t, strings.HasPrefix(strings.ToLower(args[0]), "eval"))
		return strings.EqualFold(args[0], "exec") // its parts are in the log by themselves
	})
	t.Logf("%d commands above a millisecond once", slow)
}

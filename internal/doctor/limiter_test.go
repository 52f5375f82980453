// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A ward is one limiter whose keys a test puts into a state.
type ward struct {
	*testing.T
	ctx  context.Context
	rdb  *redis.Client
	name string
	now  time.Time
}

func newWard(t *testing.T) *ward {
	rdb := redistest.Client(t)
	return &ward{t, t.Context(), rdb, redistest.Key(t), rdb.Time(t.Context()).Val()}
}

func (w *ward) key(suffix string) string { return redisson.Suffixed(w.name, suffix) }

// rate sets the hash of a limiter of 10 permits in a minute.
func (w *ward) rate(typ string) {
	w.Helper()
	w.hash("rate", 10, "interval", 60_000, "type", typ, "keepAliveTime", 0)
}

func (w *ward) hash(pairs ...any) {
	w.Helper()
	require.NoError(w, w.rdb.HSet(w.ctx, w.name, pairs...).Err())
}

func (w *ward) value(v any) { w.valueOf("", v) }

func (w *ward) valueOf(client string, v any) {
	w.Helper()
	require.NoError(w, w.rdb.Set(w.ctx, w.key("value")+client, v, 0).Err())
}

// grant adds a grant of the age.
func (w *ward) grant(permits uint32, age time.Duration) { w.grantOf("", permits, age) }

func (w *ward) grantOf(client string, permits uint32, age time.Duration) {
	w.Helper()
	w.member(client, redisson.Member(false, redisson.RandomID(), permits), age)
}

func (w *ward) member(client string, raw []byte, age time.Duration) {
	w.Helper()
	require.NoError(w, w.rdb.ZAdd(w.ctx, w.key("permits")+client,
		redis.Z{Score: float64(w.now.Add(-age).UnixMilli()), Member: raw}).Err())
}

// findings returns what the doctor finds above Info, and the Info findings of those checks.
func (w *ward) findings(checks ...string) []Finding {
	w.Helper()
	r := redistest.Must((&Doctor{Survey: survey.New(w.rdb)}).Limiter(w.ctx, w.name))(w)
	require.Empty(w, r.Skipped)
	var list []Finding
	for _, f := range r.Findings {
		require.NotEmpty(w, f.Means)
		require.NotEmpty(w, f.Java)
		require.NotEmpty(w, f.Go)
		require.Equal(w, w.name, f.Limiter)
		if f.Severity > Info || slices.Contains(checks, f.Check) {
			list = append(list, f)
		}
	}
	return list
}

// finds checks that there is one finding, of that check and severity, which says found.
func (w *ward) finds(check string, s Severity, found string) Finding {
	w.Helper()
	list := w.findings(check)
	require.Len(w, list, 1, "%+v", list)
	require.Equal(w, check, list[0].Check)
	require.Equal(w, s.String(), list[0].Severity.String())
	require.Contains(w, list[0].Found, found)
	return list[0]
}

// java returns a member of each layout of Redisson.
func java(permits byte) map[wire.Layout][]byte {
	tail := string([]byte{permits, 0, 0, 0})
	return map[wire.Layout][]byte{
		wire.LayoutFI:        []byte("\x01\x02\x03\x04" + tail),
		wire.LayoutLc0I:      []byte("\x08\x00\x00\x00\x00\x00\x00\x00abcdefgh" + tail),
		wire.LayoutBc0IShort: []byte("\x08abcdefgh" + tail),
		wire.LayoutBc0ILong:  []byte("\x10abcdefghabcdefgh" + tail),
	}
}

// TestHealthyLimitersAreSilent examines limiters as the package itself leaves them, in all the states that it has.
func TestHealthyLimitersAreSilent(t *testing.T) {
	w := newWard(t)
	client := clienttest.New(t, w.rdb)
	defer client.Close()
	for i, rate := range []ratelimiter.Rate{
		{Permits: 3, Interval: time.Hour},
		{Permits: 3, Interval: time.Hour, KeepAlive: time.Hour},
		{Permits: 3, Interval: time.Hour, MinGap: time.Millisecond},
		{Permits: 3, Interval: time.Hour, Type: ratelimiter.PerClient},
		{Permits: 3, Interval: 20 * time.Millisecond},
		{Permits: 5000, Interval: time.Hour},
	} {
		w.name = redistest.Key(t)
		l := client.RateLimiter(w.name)
		require.NoError(t, l.SetRate(w.ctx, rate))
		require.Empty(t, w.findings(), "%d: fresh", i)
		for range 3 {
			redistest.Must(l.TryAcquire(w.ctx, rate.Permits/3, time.Second))(t)
		}
		require.Empty(t, w.findings(), "%d: used", i)
		redistest.Must(l.Allow(w.ctx, 3))(t)
		require.Empty(t, w.findings(), "%d: rejected", i)
		require.NoError(t, l.Release(w.ctx, 1))
		require.Empty(t, w.findings(), "%d: released", i)
		require.NoError(t, l.CoolDown(w.ctx, time.Now().Add(2*time.Hour), ratelimiter.Reopen(time.Hour)))
		require.Empty(t, w.findings(), "%d: cooling down", i)
		redistest.Must(l.Allow(w.ctx, 1))(t)
		redistest.Must(l.LiftCoolDown(w.ctx))(t)
		require.Empty(t, w.findings(), "%d: lifted", i)
	}
}

// While callers wait there is a tripwire in the set, and value may be below 0.
func TestWaitingCallersAreSilent(t *testing.T) {
	w := newWard(t)
	client := clienttest.New(t, w.rdb)
	l := client.RateLimiter(w.name)
	require.NoError(t, l.SetRate(w.ctx, ratelimiter.Rate{Permits: 2, Interval: time.Hour}))
	require.NoError(t, l.Acquire(w.ctx, 2))
	go func() { _, _ = l.TryAcquire(w.ctx, 1, time.Minute) }()
	require.Eventually(t, func() bool { return w.rdb.Get(w.ctx, w.key("value")).Val() == "-1" }, time.Minute, time.Millisecond)
	require.Empty(t, w.findings())
	require.NoError(t, client.Close())
	require.Empty(t, w.findings())
}

func TestStuck(t *testing.T) {
	w := newWard(t)
	w.rate("0")
	w.value(0)
	f := w.finds("stuck", Critical, "0 of 10 permits are left and none is in use")
	require.Equal(t, "rrl heal "+w.name+" --write", f.Fix)
	require.Contains(t, f.Java, "arithmetic on a nil value")
	w.value(4)
	w.finds("stuck", Warning, "4 of 10 permits are left and none is in use")
	// What has expired comes back, and is not enough.
	w.grant(3, time.Hour)
	w.finds("stuck", Warning, "7 of 10")
	w.grant(3, 2*time.Hour)
	require.Empty(t, w.findings())
}

func TestBalance(t *testing.T) {
	w := newWard(t)
	w.rate("0")
	w.value(5)
	w.grant(3, time.Second)
	w.finds("lost", Warning, "5 left and 3 in the set are 2 permits less than the rate of 10")
	w.grant(1, time.Hour)
	w.grant(1, time.Second)
	require.Empty(t, w.findings())
	w.grant(4, 2*time.Second)
	w.finds("surplus", Warning, "5 left and 9 in the set are 4 permits more than the rate of 10")
}

func TestValue(t *testing.T) {
	w := newWard(t)
	w.rate("0")
	w.grant(3, time.Second)
	w.finds("value", Critical, "there is no value, and 3 of 10 permits are in use")
	for _, v := range []string{"099", "many", "5.0", "-0", ""} {
		w.value(v)
		w.finds("value", Critical, fmt.Sprintf("the value is %q", v))
	}
	w.value(7)
	require.Empty(t, w.findings())
}

// A large set is added up in steps.
func TestBalanceOfALargeSet(t *testing.T) {
	w := newWard(t)
	w.hash("rate", 5000, "interval", 60_000, "type", 0)
	for range 30 {
		var zs []redis.Z
		for range 100 {
			zs = append(zs, redis.Z{Score: float64(w.now.UnixMilli()), Member: redisson.Member(false, redisson.RandomID(), 1)})
		}
		require.NoError(t, w.rdb.ZAdd(w.ctx, w.key("permits"), zs...).Err())
	}
	w.value(2000)
	require.Empty(t, w.findings())
	w.value(1999)
	w.finds("lost", Warning, "1999 left and 3000 in the set are 1 permit less than the rate of 5000")
}

func TestLayouts(t *testing.T) {
	w := newWard(t)
	both := func(y, z wire.Layout) []Finding {
		w.name = redistest.Key(t)
		w.rate("0")
		members := java(1)
		members[wire.LayoutOurs] = redisson.Member(false, redisson.RandomID(), 1)
		members[wire.LayoutUnknown] = []byte("?\x01\x00\x00\x00")
		w.member("", members[y], time.Second)
		w.member("", members[z], time.Second)
		w.value(8)
		if y == z || y == wire.LayoutUnknown || z == wire.LayoutUnknown {
			w.value(9)
		}
		return w.findings()
	}
	all := []wire.Layout{wire.LayoutFI, wire.LayoutLc0I, wire.LayoutBc0IShort, wire.LayoutBc0ILong, wire.LayoutOurs}
	for i, y := range all {
		for _, z := range all[i:] {
			// Ours is read by the first and the third group of versions.
			group := map[wire.Layout]int{all[0]: 1, all[1]: 2, all[2]: 3, all[3]: 3}
			together := group[y] == group[z] || y == all[4] && group[z] != 2 || z == all[4] && group[y] != 2
			list := both(y, z)
			if together {
				require.Empty(t, list, "%s and %s", y, z)
				continue
			}
			require.Len(t, list, 1, "%s and %s", y, z)
			require.Equal(t, "layouts", list[0].Check)
			require.Contains(t, list[0].Found, y.Writers())
			require.Contains(t, list[0].Found, z.Writers())
		}
	}
	list := both(wire.LayoutUnknown, wire.LayoutFI)
	require.Contains(t, list[len(list)-1].Found, "1 of unknown")
}

func TestWriters(t *testing.T) {
	w := newWard(t)
	w.hash("rate", 10, "interval", 60_000, "type", 0)
	for _, raw := range java(1) {
		if len(raw) != 20 && len(raw) != 8 {
			w.member("", raw, time.Second)
		}
	}
	w.value(8)
	w.finds("writers", Info, "1 by Redisson 3.17.0 to 3.20; 1 by Redisson 3.21.0 and later; the hash by Redisson before 3.38.0")
	w.hash("keepAliveTime", 0)
	w.finds("writers", Info, "the hash by Redisson 3.38.0 or later, or Go")
}

func TestMalformed(t *testing.T) {
	w := newWard(t)
	for _, c := range [][2]any{{"rate", "0"}, {"rate", "many"}, {"interval", "-1"}, {"type", "7"}, {"keepAliveTime", "1.5"}} {
		w.rate("0")
		w.hash(c[0], c[1])
		w.finds("malformed", Critical, fmt.Sprintf("%s is %q", c[0], c[1]))
	}
}

func TestWrongType(t *testing.T) {
	w := newWard(t)
	w.rate("0")
	require.NoError(t, w.rdb.Set(w.ctx, w.key("permits"), "x", 0).Err())
	f := w.finds("wrong-type", Critical, `is a string, not a zset`)
	require.Contains(t, f.Found, w.key("permits"))
}

func TestSharedKeys(t *testing.T) {
	w := newWard(t)
	w.rate("0")
	require.Empty(t, w.findings())
	bare := w.name
	w.name = "{" + bare + "}"
	w.rate("0")
	w.finds("shared-keys", Critical, `the limiter "`+bare+`" has the same keys`)
	w.name = bare
	w.finds("shared-keys", Critical, `the limiter "{`+bare+`}" has the same keys`)
}

func TestClock(t *testing.T) {
	w := newWard(t)
	w.rate("0")
	w.value(8)
	w.member("", java(1)[wire.LayoutBc0ILong], -time.Minute)
	w.grant(1, time.Second)
	f := w.finds("clock", Warning, "the dates of 1 member are up to")
	require.Contains(t, f.Fix, "Redisson 3.21.0 and later")

	// A grant that comes during the sample with a date before it is that of a slow clock.
	w.name = redistest.Key(t)
	w.rate("0")
	w.value(9)
	w.grant(1, time.Second)
	s := survey.New(w.rdb)
	main := redistest.Must(s.Read(w.ctx, w.name, ""))(t)
	w.member("", java(1)[wire.LayoutBc0IShort], 3*time.Second)
	w.value(8)
	later := redistest.Must(s.Read(w.ctx, w.name, ""))(t)
	p := &patient{name: w.name, main: main, later: later}
	list := p.clock()
	require.Len(t, list, 1)
	require.Contains(t, list[0].Fix, "Redisson 3.17.0 to 3.20")
	require.Contains(t, list[0].Found, "before it")
	p.later = main
	require.Empty(t, p.clock())
}

func TestCoolDown(t *testing.T) {
	w := newWard(t)
	client := clienttest.New(t, w.rdb)
	defer client.Close()
	l := client.RateLimiter(w.name)
	require.NoError(t, l.SetRate(w.ctx, ratelimiter.Rate{Permits: 3, Interval: time.Minute}))
	require.Empty(t, w.findings("cool-down"))
	require.NoError(t, l.CoolDown(w.ctx, time.Now().Add(time.Hour), ratelimiter.Reopen(time.Minute)))
	f := w.finds("cool-down", Info, "a cool-down for another ")
	require.Contains(t, f.Found, "then re-opening until")
	require.Equal(t, "rrl lift "+w.name+" --write", f.Fix)
}

func TestSlot(t *testing.T) {
	w := newWard(t)
	w.name += "{b"
	w.rate("0")
	w.finds("slot", Info, "this Redis is no cluster")

	redistest.NeedReal(t)
	rdb := redistest.StartCluster(t).Client(t)
	require.NoError(t, rdb.HSet(w.ctx, w.name, "rate", 10, "interval", 60_000, "type", 0).Err())
	r := redistest.Must((&Doctor{Survey: survey.New(rdb)}).Limiter(w.ctx, w.name))(t)
	require.True(t, r.Sick())
	require.Equal(t, "slot", r.Findings[len(r.Findings)-1].Check)
}

// More clients than are looked at are reported, not left out in silence.
func TestManyClients(t *testing.T) {
	w := newWard(t)
	w.rate("1")
	for i := range 4 {
		w.grantOf(fmt.Sprint(":", i), 1, 0)
		w.valueOf(fmt.Sprint(":", i), 9)
	}
	r := redistest.Must((&Doctor{Survey: survey.New(w.rdb), MaxClients: 3}).Limiter(w.ctx, w.name))(t)
	require.Equal(t, "only 3 clients were looked at", r.Findings[len(r.Findings)-1].Found)
}

// TestExplanations compares the table of docs/findings.md with the explanations, or writes it with RRL_TEST_DOCS set.
func TestExplanations(t *testing.T) {
	const page, begin, end = "../../docs/findings.md", "<!-- The table is written by RRL_TEST_DOCS=write go test -run Explanations ./internal/doctor -->\n", "<!-- The end of the table. -->\n"
	doc, err := os.ReadFile(page)
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| check | means | Java | Go | fix |\n|---|---|---|---|---|\n")
	ids := Checks()
	slices.Sort(ids)
	for _, id := range ids {
		e := explanations[id]
		for _, text := range []string{e.means, e.java, e.golang, e.fix} {
			require.NotEmpty(t, text, id)
			require.Equal(t, strings.TrimSpace(text), text, id)
		}
		fmt.Fprintf(&table, "| <a id=\"%s\"></a>`%[1]s` | %s | %s | %s | %s |\n", id, e.means, e.java, e.golang, e.fix)
	}
	head, rest, ok1 := strings.Cut(string(doc), begin)
	there, tail, ok2 := strings.Cut(rest, end)
	require.True(t, ok1 && ok2, "%s has lost its table", page)
	if os.Getenv("RRL_TEST_DOCS") == "write" {
		require.NoError(t, os.WriteFile(page, []byte(head+begin+table.String()+end+tail), 0o600))
		return
	}
	require.Equal(t, table.String(), there, "RRL_TEST_DOCS=write go test -run Explanations ./internal/doctor writes it")
}

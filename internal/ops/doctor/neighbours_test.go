// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// aWrite is a command in an advice that changes something.
var aWrite = regexp.MustCompile(`redis-cli|--write`)

// redisson1 is the id of a client as Redisson draws it.
const redisson1 = "285475da-9152-4c83-822a-67ee2f116a79"

// TestNeighbours has the doctor look at the keys of other programs: it finds nothing in them and says nothing about them,
// whether it finds them by itself or is told their names. Limiters beside them are found with all that is wrong with them.
func TestNeighbours(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.Start(t, "--appendonly", "yes").Client(t)
	ctx := t.Context()
	names := redistest.Neighbours(t, rdb)
	require.GreaterOrEqual(t, rdb.DBSize(ctx).Val(), int64(200))
	all := func(most int) *Report {
		return redistest.Must((&Doctor{Survey: survey.New(rdb)}).All(ctx, survey.Query{}, most, nil))(t)
	}
	r := all(10)
	require.Empty(t, r.Findings)
	require.Empty(t, r.Skipped)
	require.Zero(t, r.Limiters)
	for _, name := range names {
		r, err := (&Doctor{Survey: survey.New(rdb)}).Limiter(ctx, name)
		if err != nil {
			require.ErrorIs(t, err, permit.ErrNotInitialized)
			require.ErrorContains(t, err, "there is no limiter")
			continue
		}
		for _, f := range append(r.Findings, Examine(Target{}, redistest.Must(survey.New(rdb).Read(ctx, name, ""))(t))...) {
			require.NotRegexp(t, aWrite, f.Fix, name)
			require.Empty(t, f.Commands, name)
			require.Less(t, f.Severity, Critical, name)
		}
	}

	// Limiters under the same names, each with something wrong, are found.
	w := &ward{t, ctx, rdb, "", rdb.Time(ctx).Val()}
	for i, c := range []struct {
		name  string
		acts  []act
		check string
	}{
		{"orders", []act{rate(0), value(0)}, "stuck"},
		{"gone", []act{value(9), grant(1, 0)}, "remains"},
		{"broken", []act{rate(0), value(9), grant(1, 0), hash("rate", "many", "interval", "often")}, "malformed"},
		{"unused", []act{rate(0), hash("rate", "many")}, "malformed"}, // its other fields are those of a limiter
		{"moved", []act{value(9), grant(1, 0), func(w *ward) { w.do(redisDo("set", w.name, "x")) }}, "wrong-type"},
		{"users", []act{rate(1), valueOf(":"+redisson1, 3), func(w *ward) { w.do(redisDo("sadd", w.key("permits:admin"), "x")) }}, "stuck"},
		{"user1", []act{rate(0)}, ""}, // a set of permissions is not of a client
		{"left", []act{grantOf(":a", 1, 0), valueOf(":a", 9)}, "remains"},
		{"java", []act{hash("rate", 10, "interval", 60_000, "type", 0), member("", java(1)[3], 0), value(8)}, "lost"},
		{"tagged", []act{rate(0), hash("team", "a"), value(8), grant(1, 0)}, "lost"}, // somebody's field, but grants
	} {
		w.name = c.name
		w.do(c.acts...)
		list := redistest.Must((&Doctor{Survey: survey.New(rdb)}).Limiter(ctx, c.name))(t).Findings
		list = slices.DeleteFunc(list, func(f Finding) bool { return f.Severity == Info })
		r := all(100)
		require.Equal(t, i+1, r.Limiters, c.name)
		mine := slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Limiter != c.name || f.Severity == Info })
		if c.check == "" {
			require.Empty(t, list)
			require.Empty(t, mine)
			continue
		}
		require.Len(t, list, 1, c.name)
		require.Len(t, mine, 1, c.name)
		require.Equal(t, c.check, list[0].Check)
		require.Equal(t, list[0].Found, mine[0].Found)
		require.Regexp(t, aWrite, list[0].Fix, c.name)
	}
}

// TestNeighboursOfALimiter has keys of other programs whose names are those that a limiter that is there has for its clients, or had
// for itself. Nothing is advised that writes them, and what the limiter itself lacks is found.
func TestNeighboursOfALimiter(t *testing.T) {
	text, number := func(key string) act { return valueOf(key, "hello") }, func(key string) act { return valueOf(key, 12) }
	ids := func(w *ward) { w.do(redisDo("zadd", w.key("permits")+":9", w.now.UnixMilli(), "user0001")) }
	inUse := []act{rate(0), value(9), grant(1, 0)}
	for name, c := range map[string]struct {
		acts  []act
		check string // empty for none
		found string
	}{
		"clients":      {[]act{rate(1), grantOf(":a", 1, 0), valueOf(":a", 9), valueOf("", "hello"), text(":profile"), number(":7"), valueOf(":8", 3), ids, number(":9")}, "", ""},
		"another type": {append(inUse[:3:3], text(":profile"), number(":7"), ids, number(":9")), "", ""},
		"the limiter gone": {[]act{grantOf(":a", 1, 0), valueOf(":a", 9), value(7), func(w *ward) { w.do(redisDo("rpush", w.key("permits"), "x")) }}, "remains",
			"find out who writes to \"{NAME}:permits\".* shows the bytes; if nobody uses it any more, .*unlink '{NAME}:value:a' '{NAME}:permits:a'"},
		"members":           {append(inUse[:3:3], member("", []byte("precious member"), 0)), "layouts", "1 of a layout that no .*find out who writes to \"{NAME}:permits\""},
		"members as of old": {append(inUse[:3:3], member("", []byte("user0001"), 0)), "layouts", "1 of a layout that no .*find out who writes to \"{NAME}:permits\""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(c.acts...)
			list := w.findings()
			if c.check == "" {
				require.Empty(t, list)
				return
			}
			require.Len(t, list, 1)
			require.Equal(t, c.check, list[0].Check)
			require.Regexp(t, strings.ReplaceAll(c.found, "NAME", regexp.QuoteMeta(w.name)), list[0].Found+list[0].Fix)
			if c.check == "layouts" {
				require.NotRegexp(t, aWrite, list[0].Fix)
			}
		})
	}
}

// TestNeighboursBesideAValue has a set of another program under the name of a client's that has a value, and one under that of a
// limiter's. It is said that nobody knows its members, and no command touches the keys.
func TestNeighboursBesideAValue(t *testing.T) {
	old := func(client string) act {
		return func(w *ward) { w.do(redisDo("zadd", w.key("permits")+client, 1, "alice", 2, "bob")) }
	}
	jobs := func(client string) act { // which are due in an hour
		return func(w *ward) {
			w.do(redisDo("zadd", w.key("permits")+client, w.now.Add(time.Hour).UnixMilli(), "job:1", w.now.Add(2*time.Hour).UnixMilli(), "job:2"))
		}
	}
	const id = ":" + redisson1
	for name, acts := range map[string][]act{
		"a client that seems dead":          {rate(1), valueOf(id, 3), old(id)},
		"a client that seems ahead":         {rate(1), valueOf(id, 3), jobs(id)},
		"a limiter that seems ahead":        {rate(0), value(3), jobs("")},
		"a client whose set expires":        {rate(1), valueOf(id, 3), jobs(id), expire("permits"+id, time.Minute)},
		"a limiter whose set expires":       {rate(0), value(3), jobs(""), expire("permits", time.Minute)},
		"a limiter whose hash expires":      {rate(0), value(3), jobs(""), expire("", time.Minute)},
		"a limiter with a short keep-alive": {rate(0), value(3), jobs(""), hash("keepAliveTime", 1000)},
		"a limiter without a type":          {rate(0), value(3), jobs(""), unset("type")},
		"a limiter without an interval":     {rate(0), value(3), old(""), unset("interval")},
		"a gap that is too long":            {rate(0), value(3), old(""), hash("minGap", 12_000)},
		"a value that is a list":            {rate(0), old(""), func(w *ward) { w.do(redisDo("rpush", w.key("value"), "x")) }},
		"a name that is a list":             {value(3), old(""), func(w *ward) { w.do(redisDo("rpush", w.name, "x")) }, valueOf(id, 9), grantOf(id, 1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			w.do(acts...)
			list := w.findings("ttl", "layouts", "dead-clients", "clock")
			require.NotEmpty(t, list)
			d := &Doctor{Survey: survey.New(w.rdb), Drift: func(*survey.State) (string, permit.Rate, Cmd) { return "another rate", permit.Rate{}, "rrl set-rate x" }}
			list = append(list, redistest.Must(d.Limiter(w.ctx, w.name))(t).Findings...)
			for _, f := range list {
				for _, c := range f.Commands {
					require.NotContains(t, string(c), w.key("permits"), f.Check)
					require.NotRegexp(t, "rrl heal|set-rate", string(c), f.Check)
				}
				for _, s := range f.Alternatives {
					require.NotRegexp(t, "unlink|persist '{|rrl heal|set-rate", fmt.Sprint(s.Commands), f.Check)
				}
			}
		})
	}
}

// TestManyNeighbours has more keys of others than limiters are looked at. The limiter among them is found.
func TestManyNeighbours(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.Start(t, "--appendonly", "yes").Client(t)
	ctx := t.Context()
	p := rdb.Pipeline()
	for i := range 20_000 {
		p.ZAdd(ctx, fmt.Sprintf("{z%d}:permits", i), redis.Z{Score: 1, Member: "x"})
		p.Set(ctx, fmt.Sprintf("{v%d}:value:1", i), "x", 0)
		p.HSet(ctx, fmt.Sprint("sensor:", i), "rate", 1, "interval", "5m", "type", "x")
	}
	_, err := p.Exec(ctx)
	require.NoError(t, err)
	client := clienttest.New(t, rdb)
	defer client.Close()
	l := client.RateLimiter("orders")
	require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 9, Interval: time.Hour, Type: ratelimiter.PerClient}))
	require.NoError(t, l.Acquire(ctx, 3))
	require.NoError(t, rdb.Set(ctx, redisson.NewKeys("orders", client.ID()).Value[permit.PerClient], 1, 0).Err())
	r := redistest.Must((&Doctor{Survey: survey.New(rdb)}).All(ctx, survey.Query{}, 10, nil))(t)
	require.Empty(t, r.Skipped)
	require.Equal(t, 1, r.Limiters)
	require.Len(t, r.Findings, 1)
	require.Equal(t, "lost", r.Findings[0].Check)
}

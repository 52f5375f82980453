// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// documented returns the rules of docs/design/protocol.md for a limiter, a connection and a cluster.
func documented(t *testing.T) (rules [3][]string) {
	t.Helper()
	text := redistest.Must(os.ReadFile("../../docs/design/protocol.md"))(t)
	_, section, ok := strings.Cut(string(text), "## What a limiter needs of an ACL")
	require.True(t, ok)
	i := -1
	indented := false
	for line := range strings.Lines(section) {
		was := indented
		if indented = strings.HasPrefix(line, "    +"); indented && !was {
			if i++; i == len(rules) {
				break
			}
		}
		if indented {
			rules[i] = append(rules[i], strings.Fields(line)...)
		}
	}
	return rules
}

// TestNeedsAreDocumented checks that the doctor asks for the commands that the documentation lists.
func TestNeedsAreDocumented(t *testing.T) {
	rules := documented(t)
	var got []string
	for _, command := range needs("a", true) {
		rule := "+" + command[0].(string)
		if rule == "+cluster" {
			rule += "|slots"
		}
		got = append(got, rule)
	}
	require.ElementsMatch(t, slices.Concat(rules[0], rules[1], rules[2]), got)
}

func TestAccess(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 7, 0, "ACL DRYRUN")
	rdb, ctx := redistest.Start(t, "--appendonly", "yes").Client(t), t.Context()
	rules := documented(t)
	user := func(keys string, without ...string) {
		args := []any{"acl", "setuser", "app", "reset", "on", ">secret", keys}
		for _, r := range slices.Concat(rules[0], rules[1]) {
			if !slices.Contains(without, r) {
				args = append(args, r)
			}
		}
		require.NoError(t, rdb.Do(ctx, args...).Err())
	}
	ask := func(name string) *Report {
		return redistest.Must((&Doctor{Survey: survey.New(rdb)}).Access(ctx, "app", name))(t)
	}
	user("~*orders*")
	require.Equal(t, &Report{Findings: []Finding{}, Skipped: []Skip{}}, ask("orders"))
	require.Empty(t, ask("").Findings)
	require.Zero(t, rdb.DBSize(ctx).Val(), "nothing is run")

	user("~*orders*", "+zadd", "+incrby")
	for _, name := range []string{"", "orders"} {
		r := ask(name)
		require.Empty(t, r.Skipped)
		require.Len(t, r.Findings, 1)
		f := r.Findings[0]
		require.Equal(t, []any{"acl", Critical, `the user "app" may not run incrby, zadd`, "redis-cli acl setuser app +incrby +zadd"}, []any{f.Check, f.Severity, f.Found, f.Fix})
		require.NotEmpty(t, f.Node)
	}
	// The keys in braces are easily forgotten.
	user("~orders*")
	require.Empty(t, ask("").Findings, "without a limiter nothing is known of keys")
	f := ask("orders").Findings
	require.Len(t, f, 1)
	require.Equal(t, `the user "app" may not access ["{orders}:value" "{orders}:permits"]`, f[0].Found)
	require.Equal(t, "redis-cli acl setuser app '~{orders}:value' '~{orders}:permits'", f[0].Fix)
	require.NoError(t, rdb.Do(ctx, "acl", "setuser", "app", "~{orders}:value", "~{orders}:permits").Err())
	require.Empty(t, ask("orders").Findings, "what it says fixes it")

	r := redistest.Must((&Doctor{Survey: survey.New(rdb)}).Access(ctx, "nobody", ""))(t)
	require.Empty(t, r.Findings)
	require.Contains(t, r.Skipped[0].Why, "nobody")
}

func TestDrift(t *testing.T) {
	w := newWard(t)
	w.do(rate(0))
	drift := ""
	d := &Doctor{Survey: survey.New(w.rdb), Drift: func(st *survey.State) (string, string) {
		require.Equal(t, w.name, st.Name)
		return drift, "fix it"
	}}
	both := func() (list []Finding) {
		one := redistest.Must(d.Limiter(w.ctx, w.name))(t)
		require.Equal(t, one.Findings, redistest.Must(d.All(w.ctx, survey.Query{Match: w.name + "*"}, 10, nil))(t).Findings)
		return one.Findings
	}
	require.Empty(t, both())
	drift = "another rate"
	list := both()
	require.Len(t, list, 1)
	require.Equal(t, []any{"drift", Warning, "fix it"}, []any{list[0].Check, list[0].Severity, list[0].Fix})
	w.do(hash("rate", "x"))
	require.Equal(t, "malformed", both()[0].Check, "which has no rate to compare")
}

// TestHotLimiter looks at the counters that an LFU policy keeps.
func TestHotLimiter(t *testing.T) {
	redistest.NeedReal(t)
	server := redistest.Start(t, "--appendonly", "yes", "--lfu-log-factor", "0")
	w := &ward{t, t.Context(), server.Client(t), "hot", time.Now()}
	w.do(rate(0))
	use := func() {
		for range 300 {
			require.NoError(t, w.rdb.HGet(w.ctx, w.name, "rate").Err())
		}
	}
	use()
	require.Empty(t, w.findings("hot-key"), "nothing is counted")
	require.NoError(t, w.rdb.ConfigSet(w.ctx, "maxmemory-policy", "allkeys-lfu").Err())
	require.NoError(t, w.rdb.Del(w.ctx, w.name).Err())
	w.do(rate(0))
	require.Empty(t, w.findings("hot-key"))
	use()
	w.finds("hot-key", Info, "the LFU counter of the hash, which every call reads, is 2")
	r := redistest.Must((&Doctor{Survey: survey.New(w.rdb)}).All(w.ctx, survey.Query{}, 10, nil))(t)
	require.Len(t, r.Findings, 1)
	require.Equal(t, "hot-key", r.Findings[0].Check)
}

// TestIdle has limiters that somebody makes for each user and that nothing deletes.
func TestIdle(t *testing.T) {
	redistest.NeedReal(t) // miniredis looks at all keys for each command
	redistest.NoRace(t, "one reader at a time")
	w := newWard(t)
	base := w.name
	set := func(n int, ttl time.Duration, used time.Duration) {
		p := w.rdb.Pipeline()
		for i := range n {
			name := fmt.Sprint(base, "user:", i)
			p.Del(w.ctx, name, "{"+name+"}:permits", "{"+name+"}:value")
			p.HSet(w.ctx, name, "rate", 10, "interval", 60_000, "type", 0, "keepAliveTime", 0)
			if ttl > 0 {
				p.PExpire(w.ctx, name, ttl)
			}
			if used > 0 {
				p.Set(w.ctx, "{"+name+"}:value", 9, 0)
				p.ZAdd(w.ctx, "{"+name+"}:permits", redis.Z{Score: float64(w.now.Add(-used).UnixMilli()), Member: "\x08abcdefgh\x01\x00\x00\x00"})
			}
		}
		redistest.Must(p.Exec(w.ctx))(t)
	}
	find := func() []Finding {
		return redistest.Must((&Doctor{Survey: survey.New(w.rdb)}).All(w.ctx, survey.Query{Match: base + "*"}, 10_000, nil))(t).Findings
	}
	set(manyIdle, 0, 25*time.Hour)
	list := find()
	require.Len(t, list, 1)
	require.Equal(t, "idle", list[0].Check)
	require.Equal(t, fmt.Sprintf(`1000 of 1000 limiters that were looked at whose names begin with %q have no TTL, and nobody has had a permit of theirs for a day or more`, base+"user:"), list[0].Found)
	require.Contains(t, list[0].Limiter, "user:")
	set(1, 0, time.Hour)
	require.Empty(t, find(), "one is used")
	set(1, time.Hour, 25*time.Hour)
	require.Empty(t, find(), "one expires")
	set(1, 0, 0)
	require.Len(t, find(), 1, "one was never used")
}

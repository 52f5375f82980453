// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A live is a Redis with limiters for the commands that look at them.
type live struct {
	*testing.T
	rdb  redis.UniversalClient
	url  string
	base string
}

func newLive(t *testing.T) *live {
	rdb := redistest.Client(t)
	if !redistest.TTLsAreVirtual() { // what the doctor says of the slow log of this server is not about this test
		require.NoError(t, rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "-1").Err())
		require.NoError(t, rdb.Do(t.Context(), "slowlog", "reset").Err())
	}
	return &live{t, rdb, "redis://" + rdb.Options().Addr, redistest.Key(t)}
}

func (l *live) run(args ...string) (code int, stdout, stderr string) {
	l.Helper()
	l.Setenv("REDIS_URL", l.url)
	var out, errs bytes.Buffer
	code = run(l.Context(), append([]string{"rrl"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// ok runs a command that is to succeed.
func (l *live) ok(args ...string) string {
	l.Helper()
	code, out, errs := l.run(args...)
	require.Equal(l, command.ExitOK, code, "%v: %s%s", args, out, errs)
	require.Empty(l, errs)
	return out
}

// limiter makes a limiter of 10 permits in a minute with three grants of 2.
func (l *live) limiter(name string, rate ratelimiter.Rate) {
	l.Helper()
	client := clienttest.New(l, l.rdb, ratelimiter.WithClientID("client-1"))
	defer client.Close()
	lim := client.RateLimiter(name)
	require.NoError(l, lim.SetRate(l.Context(), rate))
	for range 3 {
		require.NoError(l, lim.Acquire(l.Context(), 2))
	}
}

var tenAMinute = ratelimiter.Rate{Permits: 10, Interval: time.Minute}

func TestLs(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"orders", tenAMinute)
	l.limiter(l.base+"users", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: 90 * time.Minute})
	l.limiter(l.base+"full", ratelimiter.Rate{Permits: 6, Interval: time.Hour, KeepAlive: 2 * time.Hour})
	require.NoError(t, l.rdb.HSet(t.Context(), l.base+"stuck", "rate", 5, "interval", 1000, "type", 0).Err())
	require.NoError(t, l.rdb.Set(t.Context(), "{"+l.base+"stuck}:value", 0, 0).Err())
	require.NoError(t, l.rdb.HSet(t.Context(), l.base+"\x1b[31m", "rate", "x", "interval", 1000, "type", 0).Err())
	require.NoError(t, l.rdb.Set(t.Context(), "{"+l.base+"gone}:value", 0, 0).Err())

	out := l.ok("ls", "--match", l.base+"*")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 8)
	require.Regexp(t, `^5 limiters in 127\.0\.0\.1:\d+, database 0: 1 limited now, 1 stuck, 1 malformed$`, lines[7])
	require.Regexp(t, `^NAME +TYPE +RATE +USED +WAIT +COOL-DOWN +TTL +MEMBERS +NODE$`, lines[0])
	require.Regexp(t, `(?m)orders +OVERALL +10/1m +6 +0 +- +3 `, out)
	require.Regexp(t, `(?m)users +PER_CLIENT +10/1h30m +- +- +- +- `, out)
	require.Regexp(t, `(?m)full +OVERALL +6/1h +6 +59m\d\ds +1h59m +3 `, out)
	require.Regexp(t, `(?m)stuck +OVERALL +5/1s +0 +stuck `, out)
	require.Regexp(t, `(?m)\\x1b\[31m +malformed`, out)
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "gone")

	require.Contains(t, l.ok("ls", "--match", l.base+"*", "--remains"), "gone")
	out = l.ok("ls", "--match", l.base+"*", "--waiting")
	require.Contains(t, out, "full")
	require.Contains(t, out, "stuck")
	require.NotContains(t, out, "orders")
	require.Contains(t, l.ok("ls", "--match", l.base+"*", "--limit", "2"), "There are more: --limit 0 lists all")
	require.Contains(t, l.ok("ls", "--match", l.base+"nothing*"), "There are no such limiters in 127.0.0.1:")

	found := map[string]jsonLimiter{}
	for line := range strings.Lines(l.ok("ls", "--match", l.base+"*", "--json")) {
		var o jsonLimiter
		require.NoError(t, json.Unmarshal([]byte(line), &o))
		found[strings.TrimPrefix(o.Name, l.base)] = o
	}
	require.Len(t, found, 5)
	require.EqualValues(t, 4, *found["orders"].Available)
	require.Zero(t, *found["orders"].WaitMS)
	require.Nil(t, found["orders"].TTLMS)
	require.Greater(t, *found["full"].WaitMS, int64(3_500_000))
	require.Nil(t, found["users"].Available)
	require.True(t, found["stuck"].Stuck)
	require.Contains(t, found["\x1b[31m"].Problem, `rate is "x"`)

	code, _, errs := l.run("ls", "--match", l.base+"*", "--max-keys", "1", "--remains")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "the list is not complete: the search was given up after")
}

func TestLsOfANarrowTerminal(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+strings.Repeat("名", 40), tenAMinute)
	for _, width := range []int{200, 120, 80, 60, 40} {
		t.Setenv("COLUMNS", fmt.Sprint(width))
		out := l.ok("ls", "--match", l.base+"*")
		table, _, _ := strings.Cut(out, "\n\n")
		for line := range strings.Lines(table) {
			require.LessOrEqual(t, widthOf(strings.TrimSuffix(line, "\n")), width)
		}
		for _, head := range []string{"NAME", "RATE", "USED", "WAIT"} {
			require.Contains(t, out, head, "%d", width)
		}
		require.Equal(t, width >= 120, strings.Contains(out, "NODE"), "%d", width)
		require.Equal(t, width < 200, strings.Contains(out, "…"), "%d", width)
	}
}

func TestInspect(t *testing.T) {
	l := newLive(t)
	name := l.base + "a"
	l.limiter(name, tenAMinute)
	require.NoError(t, l.rdb.ZAdd(t.Context(), "{"+name+"}:permits", redis.Z{Score: 1, Member: "\x08abcdefgh\x01\x00\x00\x00"}).Err())
	out := l.ok("inspect", name, "--members")
	for _, want := range []string{
		"limiter    " + name, "rate       10 permits in any 1m, OVERALL", "available  5 of 10; one permit is granted at once",
		"rate = 10", "value      {" + name + "}:value = 4  does not expire", "4 members",
		"1 by Redisson 3.17.0 to 3.20 (Bc0I/13); 3 by Go (Bc0I/21 ours)",
		"warning    surplus: 4 left and 7 in the set are 1 permit more than the rate of 10; rrl doctor explains it",
		"GRANTED (UTC)", "1970-01-01 00:00:00.001", "08616263646566676801000000",
	} {
		require.Contains(t, out, want)
	}
	var o jsonState
	require.NoError(t, json.Unmarshal([]byte(l.ok("inspect", name, "--members", "--json")), &o))
	require.Len(t, o.Grants, 4)
	require.Equal(t, map[string]int{"Bc0I/13": 1, "Bc0I/21 ours": 3}, o.Layouts)
	require.True(t, o.Grants[3].Expired)
	require.Equal(t, "4", *o.Stored)

	name = l.base + "b"
	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	out = l.ok("inspect", name, "--clients")
	require.Contains(t, out, "each client has permits of its own")
	require.Regexp(t, `client-1 +0 +59m`, out)
	require.Contains(t, l.ok("inspect", name, "--client", "client-1"), "available  0 of 6; one permit takes 59m")
	require.NoError(t, json.Unmarshal([]byte(l.ok("inspect", name, "--clients", "--json")), &o))
	require.Equal(t, "client-1", o.Clients[0].Client)

	require.NoError(t, l.rdb.Del(t.Context(), name).Err())
	require.Contains(t, l.ok("inspect", name, "--client", "client-1"), "none: the hash is gone, and what follows is left behind")
	code, _, errs := l.run("inspect", l.base+"c")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "there is no limiter")
}

func TestPeekCommand(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	require.Equal(t, "4 permits: granted at once, 4 available\n", l.ok("peek", l.base, "4"))
	code, out, errs := l.run("peek", l.base, "5")
	require.Equal(t, command.ExitFailed, code)
	require.Empty(t, errs)
	require.Regexp(t, `^5 permits: wait \S+, because of the permits in use; 4 available\n$`, out)
	code, out, _ = l.run("peek", l.base, "5", "--json")
	require.Equal(t, command.ExitFailed, code)
	require.Regexp(t, `^\{"permits":5,"granted":false,"available":4,"wait_ms":\d+,"waits_for":"the permits in use"\}\n$`, out)
	code, _, errs = l.run("peek", l.base, "11")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "permits exceed rate")
	code, _, errs = l.run("peek", l.base, "0")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, "invalid argument")
	code, _, errs = l.run("peek", l.base, "many")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, `"many" is no number of permits`)
}

func TestDoctorCommand(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"well", tenAMinute)
	out := l.ok("doctor", l.base+"well", "--sample", "0")
	require.Contains(t, out, "3 by Go; the hash by Redisson 3.38.0 or later, or Go")
	require.True(t, strings.HasSuffix(out, "\nhealthy\n"), out)
	sick := l.base + "sick one"
	require.NoError(t, l.rdb.HSet(t.Context(), sick, "rate", 5, "interval", 1000, "type", 0).Err())
	require.NoError(t, l.rdb.Set(t.Context(), "{"+sick+"}:value", 0, 0).Err())
	code, out, errs := l.run("doctor", sick, "--sample", "0")
	require.Equal(t, exitSick, code)
	require.Empty(t, errs)
	for _, want := range []string{"CRITICAL  stuck", "0 of 5 permits are left and none is in use", "fix: rrl heal '" + sick + "' --write", "means:", "Java:", "Go:", "not healthy"} {
		require.Contains(t, out, want)
	}
	code, out, _ = l.run("doctor", sick, "--sample", "0", "--json")
	require.Equal(t, exitSick, code)
	var report struct {
		Healthy  bool
		Findings []struct{ Check, Severity, Limiter, Fix string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.False(t, report.Healthy)
	require.Equal(t, "stuck", report.Findings[0].Check)
	require.Equal(t, "critical", report.Findings[0].Severity)

	// What the finding says fixes it.
	fix := regexp.MustCompile(`'.*'|\S+`).FindAllString(report.Findings[0].Fix, -1)
	for i := range fix {
		fix[i] = strings.Trim(fix[i], "'")
	}
	l.ok(fix[1:]...)
	l.ok("doctor", sick, "--sample", "0")

	code, _, errs = l.run("doctor", l.base+"nothing", "--sample", "0")
	require.Equal(t, exitNoAccess, code)
	require.Contains(t, errs, "there is no")
	code, _, errs = l.run("doctor", "--redis", "redis://127.0.0.1:1")
	require.Equal(t, exitNoAccess, code)
	require.Regexp(t, `^rrl: the Redis at 127.0.0.1:1, database 0 does not answer: .*refused \(nothing listens there; check host and port\)\n$`, errs)
}

// TestDoctorOfAll runs where INFO is that of a server.
func TestDoctorOfAll(t *testing.T) {
	redistest.NeedReal(t)
	l := newLive(t)
	for i := range 8 {
		require.NoError(t, l.rdb.HSet(t.Context(), fmt.Sprint(l.base, i), "rate", 5, "interval", 1000, "type", 0).Err())
		require.NoError(t, l.rdb.Set(t.Context(), fmt.Sprint("{", l.base, i, "}:value"), 0, 0).Err())
	}
	code, out, errs := l.run("doctor", "--match", l.base+"*")
	require.Equal(t, exitSick, code, errs)
	require.Contains(t, out, "and 3 more; --json has all")
	require.Contains(t, out, "not healthy; 8 limiters looked at")
	for i := range 8 {
		l.ok("heal", fmt.Sprint(l.base, i), "--write")
	}
	out = l.ok("doctor", "--match", l.base+"*")
	require.Contains(t, out, "healthy; 8 limiters looked at")
}

// TestWriting checks that each command that writes shows the limiter before and after, and without --write changes nothing
// but shows the same.
func TestWriting(t *testing.T) {
	l := newLive(t)
	name := l.base
	l.limiter(name, tenAMinute)
	dump := func() string {
		ctx := t.Context()
		return fmt.Sprint(l.rdb.HGetAll(ctx, name).Val(), l.rdb.Get(ctx, "{"+name+"}:value").Val(),
			l.rdb.ZRangeWithScores(ctx, "{"+name+"}:permits", 0, -1).Val())
	}
	for _, c := range []struct {
		args  []string
		after string
	}{
		{[]string{"release", name, "--permits", "2"}, "available 6 of 10"},
		{[]string{"set-rate", name, "--permits", "7"}, "OVERALL 7/1m, expires: does not expire; available 3 of 7"},
		{[]string{"cool-down", name, "--for", "1h", "--reopen", "1m"}, "cool-down for 59m"},
		{[]string{"lift", name}, "available 3 of 7"},
		{[]string{"heal", name}, "available 3 of 7"},
		{[]string{"set-rate", name, "--interval", "1h", "--keep-alive", "2h", "--min-gap", "1ms", "--type", "overall", "--forget"}, "OVERALL 7/1h gap 1ms, expires: expires in "},
		{[]string{"delete", name}, "no limiter"},
		{[]string{"set-rate", name, "--permits", "3", "--interval", "5s", "--create"}, "OVERALL 3/5s"},
	} {
		before := dump()
		lines := strings.Split(strings.TrimSpace(l.ok(c.args...)), "\n")
		require.Len(t, lines, 3, "%v", c.args)
		require.True(t, strings.HasPrefix(lines[0], "before  "+name+": "), lines[0])
		require.True(t, strings.HasPrefix(lines[1], "after   "+name+": "), lines[1])
		require.Contains(t, lines[1], c.after, "%v", c.args)
		require.Equal(t, "nothing was changed; --write does it", lines[2])
		require.Equal(t, before, dump())
		foreseen := lines[1]

		out := l.ok(append(c.args, "--write")...)
		lines = strings.Split(strings.TrimSpace(out), "\n")
		numbers := regexp.MustCompile(`[\d.]+m?s|\d+m\d\ds|\d+h\d\dm`) // durations that run
		require.Equal(t, numbers.ReplaceAllString(foreseen, "D"), numbers.ReplaceAllString(lines[1], "D"), "%v", c.args)
		require.Len(t, lines, 2)
		require.True(t, strings.HasPrefix(lines[1], "after   "+name+": "), out)
		require.Contains(t, lines[1], c.after, "%v", c.args)
	}
	for _, line := range strings.Split(strings.TrimSpace(l.ok("heal", name, "--json", "--write")), "\n") {
		require.True(t, json.Valid([]byte(line)))
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"lift", name, "--write"}, command.ExitFailed, "there was no cool-down"},
		{[]string{"delete", name + "x", "--write"}, command.ExitFailed, "there was nothing to delete"},
		{[]string{"heal", name + "x", "--write"}, command.ExitFailed, "there is no limiter"},
		{[]string{"set-rate", name, "--write"}, command.ExitUsage, "set-rate needs at least one of"},
		{[]string{"set-rate", name + "x", "--permits", "1", "--create", "--write"}, command.ExitFailed, "--permits and --interval set a rate afresh"},
		{[]string{"set-rate", name, "--permits", "0", "--write"}, command.ExitUsage, "invalid argument"},
		{[]string{"set-rate", name, "--type", "both", "--write"}, command.ExitUsage, `--type "both" is neither`},
		{[]string{"cool-down", name, "--for", "-1s", "--write"}, command.ExitUsage, "--for is above 0"},
		{[]string{"release", name, "--write"}, command.ExitUsage, "permits"},
		{[]string{"heal"}, command.ExitUsage, "heal takes one argument, the name of a limiter"},
	} {
		code, _, errs := l.run(c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Contains(t, errs, c.want)
		require.Equal(t, 1, strings.Count(errs, "\n"))
	}
	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	code, _, errs := l.run("release", name, "--permits", "1", "--write")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, "name one with --client")
	require.Contains(t, l.ok("release", name, "--permits", "1", "--client", "client-1", "--write"), "available 1 of 6")
}

var readOnlyACL = regexp.MustCompile(`(?s)<!-- acl -->\s*(\S.*?)\n\n`)

// TestReadingNeedsOnlyTheDocumentedACL runs each command that reads as a user that may do nothing except what
// docs/rrl.md lists, and checks that the server has nothing to save afterwards.
// TestAdviceGrantsNoMore runs what the doctor advises on states that hold too much. In the window that they were found in,
// no more is granted than the rate.
func TestAdviceGrantsNoMore(t *testing.T) {
	l := newLive(t)
	client := clienttest.New(t, l.rdb, ratelimiter.WithClientID("client-1"))
	defer client.Close()
	for i, s := range []struct{ used, value int64 }{{10, 500}, {4, 11}, {4, 14}, {4, 16}, {4, 20}, {10, 10}, {10, 5}, {4, 8}} {
		for _, typ := range []ratelimiter.RateType{ratelimiter.Overall, ratelimiter.PerClient} {
			name := fmt.Sprintf("%s%d-%s", l.base, i, typ)
			limiter := client.RateLimiter(name)
			require.NoError(t, limiter.SetRate(t.Context(), ratelimiter.Rate{Type: typ, Permits: 10, Interval: time.Hour}))
			require.NoError(t, limiter.Acquire(t.Context(), s.used))
			require.NoError(t, l.rdb.Set(t.Context(), redisson.NewKeys(name, "client-1").Value[typ], s.value, 0).Err())
			code, out, _ := l.run("doctor", name, "--json", "--sample", "0")
			require.Equal(t, exitSick, code)
			var report struct {
				Findings []struct{ Check, Fix string }
			}
			require.NoError(t, json.Unmarshal([]byte(out), &report))
			require.Equal(t, "surplus", report.Findings[0].Check, out)
			advice := strings.Fields(strings.ReplaceAll(report.Findings[0].Fix, "'", ""))
			require.Equal(t, "rrl", advice[0])
			l.ok(advice[1:]...)
			l.ok("doctor", name, "--sample", "0")
			granted := s.used
			for range 40 {
				r := redistest.Must(limiter.Allow(t.Context(), 1))(t)
				if r.Granted {
					granted++
				}
			}
			require.EqualValues(t, 10, granted, "%d in use, %d left, %s", s.used, s.value, typ)
		}
	}
}

func TestReadingNeedsOnlyTheDocumentedACL(t *testing.T) {
	redistest.NeedReal(t)
	text := redistest.Must(os.ReadFile("../../docs/rrl.md"))(t)
	m := readOnlyACL.FindSubmatch(text)
	require.NotNil(t, m)
	rules := strings.Fields(string(m[1]))
	cluster := redistest.StartCluster(t)
	for _, on := range []struct {
		rdb   redis.UniversalClient
		url   string
		nodes []*redis.Client
	}{
		{url: "redis://%s@" + cluster.Nodes()[0].Addr(), rdb: cluster.Client(t), nodes: []*redis.Client{cluster.Nodes()[0].Client(t), cluster.Nodes()[1].Client(t), cluster.Nodes()[2].Client(t)}},
		{},
	} {
		if on.rdb == nil {
			s := redistest.Start(t)
			c := s.Client(t)
			on.rdb, on.url, on.nodes = c, "redis://%s@"+s.Addr(), []*redis.Client{c}
		}
		l := &live{T: t, rdb: on.rdb, url: fmt.Sprintf(on.url, "eve"), base: "base"}
		l.limiter("base-a", tenAMinute)
		l.limiter("base-b", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
		for range 12 {
			var zs []redis.Z
			for range 100 {
				zs = append(zs, redis.Z{Score: 1, Member: redisson.Member(false, redisson.RandomID(), 1)})
			}
			require.NoError(t, on.rdb.ZAdd(t.Context(), "{base-a}:permits", zs...).Err())
		}
		dirty := func() (s string) {
			for _, n := range on.nodes {
				s += regexp.MustCompile(`rdb_changes_since_last_save:\d+`).FindString(n.Info(t.Context(), "persistence").Val())
			}
			return s
		}
		for _, n := range on.nodes {
			require.NoError(t, n.Do(t.Context(), "acl", "setuser", "app", "on", ">secret", "~*", "+@all").Err())
			require.NoError(t, n.Do(t.Context(), append([]any{"acl", "setuser", "eve", "on", ">secret", "%R~*", "-@all"}, anys(rules)...)...).Err())
		}
		before := dirty()
		t.Setenv("REDIS_PASSWORD", "secret")
		rules := filepath.Join(t.TempDir(), "rules.json")
		require.NoError(t, os.WriteFile(rules, []byte(l.ok("export")), 0o600))
		for _, args := range [][]string{{"ls", "--remains"}, {"inspect", "base-a", "--members"}, {"inspect", "base-b", "--clients"}, {"peek", "base-a", "1"}, {"top", "--count", "2", "--every", "100ms"}, {"watch", "base-a", "--count", "1"}, {"export"}, {"diff", rules, "--others"}, {"doctor", "--rules", rules},
			{"doctor", "base-a", "--app-user", "app"}, {"doctor", "base-b"}, {"heal", "base-a"}, {"set-rate", "base-b", "--permits", "3"}} {
			_, out, errs := l.run(args...)
			require.Empty(t, errs, "%v", args)
			require.NotContains(t, out, "NOPERM", "%v", args)
			require.NotContains(t, out, "not looked at", "%v", args)
			require.NotEmpty(t, out)
		}
		require.Equal(t, before, dirty())

		// With less, the error says which command is rejected and where to look.
		for _, n := range on.nodes {
			require.NoError(t, n.Do(t.Context(), "acl", "setuser", "eve", "-scan").Err())
		}
		code, _, errs := l.run("ls")
		require.Equal(t, command.ExitFailed, code)
		require.Contains(t, errs, "docs/rrl.md")
		require.Contains(t, errs, "scan")
	}
}

func anys(list []string) (all []any) {
	for _, s := range list {
		all = append(all, s)
	}
	return all
}

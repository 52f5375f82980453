// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

func TestWatch(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	lines := strings.Split(l.ok("watch", l.base, "--count", "2", "--every", "100ms"), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  OVERALL 10/1m0s  4 left  3 members$`, lines[0])
	require.Regexp(t, `  4 left  \+0 granted  3 members$`, lines[1])

	// Ctrl-C is how one ends it.
	t.Setenv("REDIS_URL", l.url)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var buf bytes.Buffer
	require.Equal(t, command.ExitOK, run(ctx, []string{"rrl", "watch", l.base, "--every", "100ms"}, &buf, &buf))
}

func TestWatchCountsGrants(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base, ratelimiter.Rate{Permits: 5000, Interval: time.Hour})
	read := func() *survey.State { return redistest.Must(survey.New(l.rdb).Read(t.Context(), l.base, ""))(t) }
	before := read()
	l.limiter(l.base, ratelimiter.Rate{Permits: 5000, Interval: time.Hour})
	after := read()
	n, ok := grantedSince(after, before)
	require.True(t, ok)
	require.EqualValues(t, 6, n)
	_, ok = grantedSince(after, nil)
	require.False(t, ok)
	l.do("del", "{"+l.base+"}:permits")
	l.grants(l.base, 1100)
	_, ok = grantedSince(read(), after)
	require.False(t, ok, "some may not have been read")
}

func TestTop(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"half", tenAMinute)
	l.limiter(l.base+"full", ratelimiter.Rate{Permits: 6, Interval: time.Hour})
	l.limiter(l.base+"fuller", ratelimiter.Rate{Permits: 6, Interval: 2 * time.Hour})
	l.limiter(l.base+"idle", ratelimiter.Rate{Permits: 6000, Interval: time.Hour})
	l.stuck(l.base + "stuck")
	var order []string
	lines := strings.Split(l.ok("top", "--match", l.base+"*", "--count", "2", "--every", "100ms"), "\n")
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, l.base); ok {
			order = append(order, strings.Fields(name)[0])
		}
	}
	one := []string{"stuck", "fuller", "full", "half", "idle"}
	require.Equal(t, append(one, one...), order)
	require.Regexp(t, `^\d\d:\d\d:\d\dZ  5 of 5 limiters$`, lines[0])
	rows := values[[]jsonLimiter](t, l.ok("top", "--match", l.base+"*", "--count", "1", "--rows", "2", "--json"))[0]
	require.Len(t, rows, 2)
	require.True(t, rows[0].Stuck)
}

// TestTopAfterALoss looks at limiters that Redis has lost since, as after a restart without data, and at those that are made anew.
func TestTopAfterALoss(t *testing.T) {
	l := newLive(t)
	for _, name := range []string{"a", "b", "c"} {
		l.limiter(l.base+name, tenAMinute)
	}
	var out bytes.Buffer
	top := &top{Survey: survey.New(l.rdb), by: view.Orders["harm"], match: l.base + "*", most: 10, rows: 10, out: &out}
	look := func() string {
		out.Reset()
		require.NoError(t, top.show(redistest.Must(top.look(t.Context()))(t), false))
		first, _, _ := strings.Cut(out.String(), "\n")
		return first[len("15:04:05Z  "):]
	}
	require.Equal(t, "3 of 3 limiters", look())
	l.do("del", l.base+"a", l.base+"b")
	require.Equal(t, "1 of 1 limiter", look())
	l.limiter(l.base+"a", tenAMinute)
	require.Eventually(t, func() bool { return look() == "2 of 2 limiters" }, 10*time.Second, 10*time.Millisecond, "all are looked at again")
	l.do("del", l.base+"a", l.base+"c")
	require.Equal(t, "0 of 0 limiters", look())
}

func TestDiffAndExport(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"a", tenAMinute)
	l.limiter(l.base+"{b}", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: 90 * time.Second, KeepAlive: time.Hour, MinGap: time.Millisecond})
	file := filepath.Join(t.TempDir(), "rates.json")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	match := l.base + "*"

	// What was exported has no differences.
	write(l.ok("export", "--match", match))
	require.Equal(t, "no differences in 2 limiters\n", l.ok("diff", file, "--match", match))
	l.ok("set-rate", l.base+"a", "--permits", "20", "--write")
	out := l.ends(exitSick, l.base+"a: Redis has OVERALL 20/1m0s; the file has OVERALL 10/1m0s\n    fix: rrl set-rate "+l.base+"a"+l.at()+" --type overall --permits 10", "diff", file, "--match", match)
	l.ok(strings.Fields(strings.Split(out, "fix: rrl ")[1])...)
	l.ok("diff", file, "--match", match)

	// What a rule file cannot have is left out and named; no limiters are a file, too.
	l.do("hset", l.base+"many", "rate", int64(1)<<32, "interval", 1000, "type", 0)
	code, out, errs := l.run("export", "--match", match)
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, `the file is not complete: "`+l.base+`many": a rule file cannot have it: permits: 4294967296 is not in 1..4294967295`)
	write(out)
	require.Contains(t, l.ends(exitSick, "", "diff", file, "--match", match, "--others"), l.base+"many: not in the file")
	l.do("del", l.base+"many")
	write(l.ok("export", "--match", l.base+"none*"))
	require.Equal(t, "no differences in 0 limiters\n", l.ok("diff", file, "--match", l.base+"none*"))
	require.Contains(t, l.ends(exitSick, "", "diff", file, "--match", match, "--others"), l.base+"a: not in the file")
	l.do("hset", "", "rate", 1, "interval", 1000, "type", 0)
	code, out, errs = l.run("export")
	l.do("del", "")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, `"": a rule file cannot have it: name: `)
	write(out)
	l.ok("diff", file, "--match", match)

	// A rule file as somebody writes it.
	write(fmt.Sprintf(`
rules:
  - name: r
    match: {hosts: [api.example.com]}
    limits:
      - {name: "%[1]sa", permits: 10, interval: 1m}
      - {name: "%[1]s{{{query.x}}}", permits: 7, interval: 90s, type: per_client}
      - {name: "%[1]sabsent", permits: 7, interval: 90s}
      - {name: "%[1]selsewhere"}
`, l.base))
	l.limiter(l.base+"other", tenAMinute)
	got := map[string]drift{}
	for _, d := range values[drift](t, l.ends(exitSick, "", "diff", file, "--others", "--json")) {
		if name, ok := strings.CutPrefix(d.Limiter, l.base); ok {
			got[name] = d
		}
	}
	require.Len(t, got, 3)
	require.Equal(t, "differs", got["{b}"].What)
	require.Equal(t, "PER_CLIENT 6/1m30s keep-alive 1h0m0s gap 1ms", got["{b}"].Redis)
	require.Equal(t, "absent", got["absent"].What)
	require.Equal(t, "other", got["other"].What)
	l.ok(strings.Fields(string(got["absent"].Fix))[1:]...) // makes it
	_, out, _ = l.run("diff", file)
	require.NotContains(t, out, l.base+"absent")

	// A keep-alive has its condition where somebody may use the limiter who does not renew it.
	write("rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: " + l.base + "a, permits: 10, interval: 1m, keep_alive: 1h}]}]")
	const when = "only Go and Redisson 3.38.0 or later use the limiter, which renew a TTL"
	l.ends(exitSick, "    fix: if "+when+": rrl set-rate "+l.base+"a"+l.at()+" --type overall --permits 10 --interval 1m0s --keep-alive 1h0m0s", "diff", file, "--match", match)
	require.Equal(t, when, values[drift](t, l.ends(exitSick, "", "diff", file, "--match", match, "--json"))[0].If)

	// And so has what would forget the permits in use. What there is of a hash is for the doctor.
	write("rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: " + l.base + "a, permits: 10, interval: 1m, type: per_client}]}]")
	l.ends(exitSick, "    fix: if the permits in use may be forgotten, as they are with another type: rrl set-rate "+l.base+"a", "diff", file, "--match", match)
	l.do("hdel", l.base+"a", "type")
	l.ends(exitSick, l.base+"a: Redis has a key that is no limiter; the file has PER_CLIENT 10/1m0s\n    fix: rrl doctor "+l.base+"a", "diff", file)
	l.do("hset", l.base+"a", "type", "x")
	l.ends(exitSick, "    fix: if the permits in use may be forgotten", "diff", file, "--match", match)

	for text, want := range map[string]string{
		"rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: x}]}]": "no limit in it has a rate",
		"rules: [{nam: x}]": "nam",
	} {
		write(text)
		l.ends(command.ExitUsage, want, "diff", file)
	}
}

// TestDiffOfAProfile: a rule file that names a profile is compared by the names of its limiters, those of each API too, which a
// function makes of a request.
func TestDiffOfAProfile(t *testing.T) {
	l := newLive(t)
	app := "app" + strconv.FormatInt(time.Now().UnixNano(), 36)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	minute, second := ratelimiter.Rate{Permits: 10_000, Interval: 61 * time.Second}, ratelimiter.Rate{Permits: 50, Interval: 1050 * time.Millisecond}
	spaced := ratelimiter.Rate{Permits: 20, Interval: 1050 * time.Millisecond, MinGap: 50 * time.Millisecond}
	for _, c := range []struct {
		profile, name string
		rate          ratelimiter.Rate
	}{
		{"{name: dingtalk, app_key: APP}", "{dingtalk}:app-api:APP:/topapi/v2/user/get:1s", spaced},
		{"{name: dingtalk, app_key: APP}", "{dingtalk}:app-api:APP:GET:/v1.0/contact/users/*:1s", spaced},
		{"{name: wecom, corp_id: APP}", "{wecom}:corp-api:APP:/cgi-bin/user/get:1m", minute},
		{"{name: feishu, app_id: APP}", "{feishu}:app-api:APP:GET:/open-apis/im/v1/messages/*:1s", second},
		{"{name: openai, account: APP}", "{openai}:account:APP:1m", minute},
	} {
		name := strings.ReplaceAll(c.name, "APP", app)
		require.NoError(t, os.WriteFile(file, []byte("profiles: ["+strings.ReplaceAll(c.profile, "APP", app)+"]"), 0o600))
		l.limiter(name, ratelimiter.Rate{Permits: 30, Interval: time.Hour})
		l.ends(exitSick, name+": Redis has OVERALL 30/1h0m0s; the file has "+c.rate.String(), "diff", file, "--match", "*"+app+":*")
		l.do("del", name, "{"+name+"}:value", "{"+name+"}:permits")
		l.limiter(name, c.rate)
		require.Equal(t, "no differences in 1 limiter\n", l.ok("diff", file, "--match", "*"+app+":*"), name)
		l.do("del", name)
	}
}

// TestLsSorted shows the limiters by each column, and that a limit leaves the first of them.
func TestLsSorted(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"a", ratelimiter.Rate{Permits: 6, Interval: time.Hour, KeepAlive: 3 * time.Hour})
	l.limiter(l.base+"b", ratelimiter.Rate{Permits: 600, Interval: time.Minute})
	l.limiter(l.base+"c", ratelimiter.Rate{Permits: 12, Interval: time.Hour, KeepAlive: 2 * time.Hour})
	l.do("zremrangebyrank", "{"+l.base+"c}:permits", 0, 0)
	names := func(cmd string, args ...string) (order string) {
		for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(l.base)+`(\w)`).FindAllStringSubmatch(l.ok(append([]string{cmd, "--match", l.base + "*"}, args...)...), -1) {
			order += m[1]
		}
		return order
	}
	for column, want := range map[string]string{"name": "abc", "rate": "bca", "used": "acb", "wait": "abc", "ttl": "acb", "members": "abc"} {
		require.Equal(t, want, names("ls", "--sort", column), column)
		require.Equal(t, want, names("top", "--sort", column, "--count", "1"), column)
		require.Equal(t, want[:2], names("ls", "--sort", column, "--limit", "2"), column)
	}
	require.Equal(t, "acb", names("top", "--count", "1"))
	out := l.ok("ls", "--sort", "name", "--limit", "2", "--match", l.base+"*")
	require.Regexp(t, `(?m)^3 limiters in 127\.0\.0\.1:\d+, database 0: 1 quota used up$`, out)
	require.Contains(t, out, "There are more: --limit 0 lists all")
}

// TestALongName shows that a name of a megabyte does not make the other rows as long, and that JSON has the whole.
func TestALongName(t *testing.T) {
	defer func(d time.Duration) { readTimeout = d }(readTimeout)
	readTimeout = time.Hour
	l := newLive(t)
	long := l.base + strings.Repeat("x", 1<<20)
	l.limiter(l.base, tenAMinute)
	l.limiter(long, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: time.Minute})
	l.do("set", "{"+l.base+"c}:value:"+strings.Repeat("y", 1<<20), 1)
	l.do("hset", l.base+"c", "rate", 1, "interval", 1000, "type", 1)
	defer func() { // searches among such names are slow
		for _, key := range l.keys() {
			l.do("del", key)
		}
	}()
	for _, args := range [][]string{{"ls", "--match", l.base + "*"}, {"top", "--count", "1", "--match", l.base + "*"}, {"inspect", l.base + "c", "--clients"}} {
		out := l.ok(args...)
		require.Less(t, len(out), 5000, "%v", args)
		require.Contains(t, out, "…", "%v", args)
	}
	require.Equal(t, long, values[jsonLimiter](t, l.ok("ls", "--json", "--match", long))[0].Name)
}

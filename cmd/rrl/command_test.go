// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
)

type jsonLimiter = view.Summary

// A jsonState is a view.Detail without findings, whose severities only Go writes.
type jsonState struct {
	view.Detail
	Findings any         `json:"findings"`
	Clients  []jsonState `json:"clients"`
}

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

// at is what a printed command has that names the Redis.
func (l *live) at() string { return " --redis " + l.url + "/0 --user default" }

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
	return l.ends(command.ExitOK, "", args...)
}

// ends runs a command that is to end with a code, and with either an output or an error of one line, which has a text in it.
func (l *live) ends(code int, want string, args ...string) string {
	l.Helper()
	got, out, errs := l.run(args...)
	require.Equal(l, code, got, "%v: %s%s", args, out, errs)
	require.Contains(l, out+errs, want, "%v", args)
	require.True(l, errs == "" || code != command.ExitOK && strings.Count(errs, "\n") == 1, "%v: %s", args, errs)
	return out + errs
}

// do sends a command to the Redis itself.
func (l *live) do(args ...any) {
	l.Helper()
	require.NoError(l, l.rdb.Do(l.Context(), args...).Err(), "%v", args)
}

// hash makes the hashes of limiters of 5 permits a second.
func (l *live) hash(names ...string) {
	l.Helper()
	for _, name := range names {
		l.do("hset", name, "rate", 5, "interval", 1000, "type", 0)
	}
}

// stuck makes a limiter that has lost its permits.
func (l *live) stuck(name string) {
	l.Helper()
	l.hash(name)
	l.do("set", "{"+name+"}:value", 0)
}

// limiter makes a limiter with three grants of 2 permits.
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

// grants adds n grants of one permit to a limiter.
func (l *live) grants(name string, n int) {
	l.Helper()
	now := float64(l.rdb.Time(l.Context()).Val().UnixMilli())
	zs := make([]redis.Z, n)
	for i := range zs {
		zs[i] = redis.Z{Score: now, Member: redisson.Member(false, redisson.RandomID(), 1)}
	}
	require.NoError(l, l.rdb.ZAdd(l.Context(), "{"+name+"}:permits", zs...).Err())
}

// keys returns the keys of the limiters of this test.
func (l *live) keys() []string {
	return redistest.Must(l.rdb.Keys(l.Context(), "*"+redisson.EscapePattern(l.base)+"*").Result())(l)
}

// values returns the JSON values of a text.
func values[T any](t testing.TB, text string) (list []T) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var v T
		require.NoError(t, d.Decode(&v), text)
		list = append(list, v)
	}
	require.NotEmpty(t, list)
	return list
}

var tenAMinute = ratelimiter.Rate{Permits: 10, Interval: time.Minute}

func TestLs(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"orders", tenAMinute)
	l.limiter(l.base+"users", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: 90 * time.Minute})
	l.limiter(l.base+"full", ratelimiter.Rate{Permits: 6, Interval: time.Hour, KeepAlive: 2 * time.Hour})
	l.stuck(l.base + "stuck")
	l.do("hset", l.base+"\x1b[31m", "rate", "x", "interval", 1000, "type", 0, "keepAliveTime", 0)
	l.limiter(l.base+"gone", tenAMinute)
	l.do("del", l.base+"gone")
	l.limiter(l.base+"cooling", tenAMinute)
	l.ok("cool-down", l.base+"cooling", "--for", "3h", "--write")
	ls := func(args ...string) string {
		t.Helper()
		return l.ok(append([]string{"ls", "--match", l.base + "*"}, args...)...)
	}
	out := ls()
	require.Equal(t, 9, strings.Count(out, "\n"))
	for _, want := range []string{
		`^NAME +TYPE +RATE +GRANTED/S +USED +WAITING +WAIT +COOL-DOWN +TTL +MEMBERS +BY +NODE$`,
		`orders +OVERALL +10/1m +0.1 +6 +- +0 +- +3 +Go `,
		`users +PER_CLIENT +10/1h30m +- +- +- +- +- +- `,
		`full +OVERALL +6/1h +0.00167 +6 +- +59m\d\ds +1h59m +3 `,
		`stuck +OVERALL +5/1s +0 +0 +- +stuck `,
		`cooling +OVERALL +10/1m +0.1 +6 +- +2h59m +2h59m `,
		`\\x1b\[31m +malformed`,
		`^6 limiters in 127\.0\.0\.1:\d+, database 0: 1 quota used up, 1 in a cool-down, 1 stuck, 1 malformed$`,
	} {
		require.Regexp(t, `(?m)`+want, out)
	}
	requireVisible(t, out)
	require.NotContains(t, out, "gone")
	require.Contains(t, ls("--remains"), "gone")
	out = ls("--waiting")
	require.Contains(t, out, "full")
	require.Contains(t, out, "stuck")
	require.Contains(t, out, "cooling")
	require.NotContains(t, out, "orders")
	require.Contains(t, ls("--limit", "2"), "There are more: --limit 0 lists all")
	require.Contains(t, l.ok("ls", "--match", l.base+"nothing*"), "No name of a limiter in 127.0.0.1:")
	_, _, errs := l.run("ls", "--match", l.base+"*", "--max-keys", "1", "--remains")
	require.Contains(t, errs, "the list is not complete: the search was given up after")

	found := map[string]jsonLimiter{}
	for _, o := range values[jsonLimiter](t, ls("--json")) {
		found[strings.TrimPrefix(o.Name, l.base)] = o
	}
	require.Len(t, found, 6)
	require.EqualValues(t, 4, *found["orders"].Available)
	require.Zero(t, *found["orders"].WaitMS)
	require.Nil(t, found["orders"].TTLMS)
	require.Greater(t, *found["full"].WaitMS, int64(3_500_000))
	require.Nil(t, found["users"].Available)
	require.True(t, found["stuck"].Stuck)
	require.Contains(t, found["\x1b[31m"].Problem, `rate is "x"`)
}

func TestLsOfANarrowTerminal(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+strings.Repeat("名", 40), tenAMinute)
	for _, width := range []int{240, 150, 80, 60, 40} {
		t.Setenv("COLUMNS", fmt.Sprint(width))
		for _, out := range []string{l.ok("ls", "--match", l.base+"*"), l.ok("top", "--count", "1", "--match", l.base+"*")} {
			table, _, _ := strings.Cut(out, "\n\n")
			for line := range strings.Lines(table) {
				require.LessOrEqual(t, uniseg.StringWidth(strings.TrimSuffix(line, "\n")), width)
			}
		}
		out := l.ok("ls", "--match", l.base+"*")
		require.Regexp(t, "NAME .*RATE .*WAITING +WAIT", out, "%d", width)
		require.Equal(t, width >= 150, strings.Contains(out, "NODE"), "%d", width)
		require.Equal(t, width < 240, strings.Contains(out, "…"), "%d", width)
	}
}

func TestInspect(t *testing.T) {
	l := newLive(t)
	name := l.base + "a"
	l.limiter(name, tenAMinute)
	l.do("zadd", "{"+name+"}:permits", 1, "\x08abcdefgh\x01\x00\x00\x00")
	out := l.ok("inspect", name, "--members")
	for _, want := range []string{
		"limiter    " + name, "rate       10 permits in any 1m, OVERALL", "available  5 of 10; one permit is granted at once",
		"rate = 10", "value      {" + name + "}:value = 4  does not expire", "4 members",
		"1 by Redisson 3.17.0 to 3.20 (Bc0I/13); 3 by Go (Bc0I/21 Go)",
		"warning    surplus: 4 left and 7 in the set make 11 permits, 1 more than the rate of 10; rrl doctor " + name + l.at() + " explains it",
		"GRANTED (UTC)", "1970-01-01 00:00:00.001", "08616263646566676801000000",
	} {
		require.Contains(t, out, want)
	}
	o := values[jsonState](t, l.ok("inspect", name, "--members", "--json"))[0]
	require.Len(t, o.Grants, 4)
	require.Equal(t, map[string]int{"Bc0I/13": 1, "Bc0I/21 Go": 3}, o.Layouts)
	require.Zero(t, *o.Grants[3].BackInMS)
	require.Equal(t, "4", *o.Value)

	name = l.base + "b"
	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	out = l.ok("inspect", name, "--clients")
	require.Contains(t, out, "each client has permits of its own")
	require.Regexp(t, `CLIENT +LEFT +WAITING +WAIT .*\nclient-1 +0 +- +59m`, out)
	require.Contains(t, l.ok("inspect", name, "--client", "client-1"), "available  0 of 6; a permit is available in 59m")
	require.Equal(t, "client-1", values[jsonState](t, l.ok("inspect", name, "--clients", "--json"))[0].Clients[0].Client)
	l.do("del", name)
	require.Contains(t, l.ok("inspect", name, "--client", "client-1"), "none: the hash is gone, and what follows is left behind")
}

func TestPeek(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	require.Equal(t, "4 permits: granted at once, 4 available\n", l.ok("peek", l.base, "4"))
	require.Regexp(t, `^5 permits: wait \S+, because of the permits in use; 4 available\n$`, l.ends(command.ExitFailed, "", "peek", l.base, "5"))
	require.Regexp(t, `^\{"asked":5,"granted":false,"available":4,"wait_ms":\d+,"new_caller_wait_ms":\d+,"waits_for":"the permits in use","waiting":0\}\n$`,
		l.ends(command.ExitFailed, "", "peek", l.base, "5", "--json"))

	large := l.base + "large" // more members than one look reads, and no value
	l.do("hset", large, "rate", 3000, "interval", 3_600_000, "type", 0)
	l.grants(large, 2000)
	require.Equal(t, "1000 permits: granted at once, 1000 available\n", l.ok("peek", large, "1000"))
	l.ends(command.ExitFailed, "wait 59m", "peek", large, "1001")
}

func TestDoctor(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"well", tenAMinute)
	out := l.ok("doctor", l.base+"well", "--sample", "0")
	require.Contains(t, out, "3 by Go; the hash by Redisson 3.38.0 or later, or Go")
	require.True(t, strings.HasSuffix(out, "\nhealthy\n"), out)
	sick := l.base + "sick one"
	l.stuck(sick)
	out = l.ends(exitSick, "not healthy", "doctor", sick, "--sample", "0")
	for _, want := range []string{"CRITICAL  stuck", "0 of 5 permits left, and none in use", "fix: rrl heal '" + sick + "'" + l.at() + " --write", "means:", "Java:", "Go:"} {
		require.Contains(t, out, want)
	}
	require.Contains(t, l.ends(exitSick, "", "doctor", sick, "--sample", "0", "--json"), `"healthy":false`)
}

// TestDoctorOfAll runs where INFO is that of a server.
func TestDoctorOfAll(t *testing.T) {
	redistest.NeedReal(t)
	l := newLive(t)
	for i := range 8 {
		l.stuck(fmt.Sprint(l.base, i))
	}
	out := l.ends(exitSick, "and 3 more; --json has all", "doctor", "--match", l.base+"*")
	require.Contains(t, out, "not healthy; 8 limiters looked at")
	for i := range 8 {
		l.ok("heal", fmt.Sprint(l.base, i), "--write")
	}
	require.Contains(t, l.ok("doctor", "--match", l.base+"*"), "healthy; 8 limiters looked at")
}

func TestTableIsAlignedByWhatTerminalsShow(t *testing.T) {
	redistest.NoServer(t)
	for text, want := range map[string]string{
		"限流器:登录":                                     "限流…",
		"👩‍👩‍👧‍👦ab":                                  "👩‍👩‍👧‍👦ab",
		"👩‍👩‍👧‍👦abcde":                               "👩‍👩‍👧‍👦ab…",
		"e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301": "e\u0301e\u0301e\u0301e\u0301…",
		"नमस्ते":                                     "नमस्ते",
	} {
		require.Equal(t, want, cut(text, 5), "%q", text)
		require.LessOrEqual(t, uniseg.StringWidth(cut(text, 5)), 5)
	}
	out, rows := &bytes.Buffer{}, &table{columns: []column{{head: "NAME"}, {head: "RATE", right: true}}}
	rows.add("限流器", "1")
	rows.add("abcdef", "2")
	require.NoError(t, rows.write(out, 0))
	require.Equal(t, "NAME    RATE\n限流器     1\nabcdef     2\n", out.String())
}

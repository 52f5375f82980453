// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/stretchr/testify/require"
)

func TestWatch(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	out := l.ok("watch", l.base, "--count", "2", "--every", "100ms")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	require.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  OVERALL 10/1m0s  4 left  3 members$`, lines[0])
	require.Regexp(t, `  4 left  \+0 granted  3 members$`, lines[1])
	for line := range strings.Lines(l.ok("watch", l.base, "--count", "2", "--every", "100ms", "--json")) {
		require.True(t, json.Valid([]byte(line)))
	}
	code, _, errs := l.run("watch", l.base+"x")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "there is no limiter")
	code, _, errs = l.run("watch", l.base, "--every", "1ms")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, "--every is at least 100ms")

	// Ctrl-C is how one ends it.
	t.Setenv("REDIS_URL", l.url)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var buf bytes.Buffer
	require.Equal(t, command.ExitOK, run(ctx, []string{"rrl", "watch", l.base, "--every", "100ms"}, &buf, &buf))
}

func TestWatchCountsGrants(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	s := survey.New(l.rdb)
	read := func() *survey.State {
		st := redistest.Must(s.Read(t.Context(), l.base, ""))(t)
		return st
	}
	client := clienttest.New(t, l.rdb)
	defer client.Close()
	lim := client.RateLimiter(l.base)
	before := read()
	require.NoError(t, lim.Acquire(t.Context(), 3))
	after := read()
	n, ok := grantedSince(after, before)
	require.True(t, ok)
	require.EqualValues(t, 3, n)
	_, ok = grantedSince(after, nil)
	require.False(t, ok)
	require.NoError(t, lim.SetRate(t.Context(), ratelimiter.Rate{Permits: 5000, Interval: time.Hour}))
	for range 1100 {
		require.NoError(t, lim.Acquire(t.Context(), 1))
	}
	_, ok = grantedSince(read(), after)
	require.False(t, ok, "some may not have been read")
}

func TestTop(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"half", tenAMinute)
	l.limiter(l.base+"full", ratelimiter.Rate{Permits: 6, Interval: time.Hour})
	l.limiter(l.base+"fuller", ratelimiter.Rate{Permits: 6, Interval: 2 * time.Hour})
	l.limiter(l.base+"idle", ratelimiter.Rate{Permits: 6000, Interval: time.Hour})
	require.NoError(t, l.rdb.HSet(t.Context(), l.base+"stuck", "rate", 5, "interval", 1000, "type", 0).Err())
	require.NoError(t, l.rdb.Set(t.Context(), "{"+l.base+"stuck}:value", 0, 0).Err())
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
	var rows []jsonLimiter
	require.NoError(t, json.Unmarshal([]byte(l.ok("top", "--match", l.base+"*", "--count", "1", "--rows", "2", "--json")), &rows))
	require.Len(t, rows, 2)
	require.True(t, rows[0].Stuck)
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
	client := clienttest.New(t, l.rdb)
	defer client.Close()
	require.NoError(t, client.RateLimiter(l.base+"a").SetRate(t.Context(), ratelimiter.Rate{Permits: 20, Interval: time.Minute}))
	code, out, errs := l.run("diff", file, "--match", match)
	require.Equal(t, exitSick, code)
	require.Empty(t, errs)
	require.Contains(t, out, l.base+"a: Redis has OVERALL 20/1m0s; the file has OVERALL 10/1m0s\n    fix: rrl set-rate "+l.base+"a --type overall --permits 10")
	fix := strings.Fields(strings.TrimSpace(strings.Split(out, "fix: rrl ")[1]))
	l.ok(fix...)
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
	code, out, _ = l.run("diff", file, "--others", "--json")
	require.Equal(t, exitSick, code)
	got := map[string]drift{}
	for line := range strings.Lines(out) {
		var d drift
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		if name, ok := strings.CutPrefix(d.Limiter, l.base); ok {
			got[name] = d
		}
	}
	require.Len(t, got, 3)
	require.Equal(t, "differs", got["{b}"].What)
	require.Equal(t, "PER_CLIENT 6/1m30s keep-alive 1h0m0s gap 1ms", got["{b}"].Redis)
	require.Equal(t, "absent", got["absent"].What)
	require.Equal(t, "other", got["other"].What)
	l.ok(strings.Fields(got["absent"].Fix)[1:]...) // makes it
	_, out, _ = l.run("diff", file)
	require.NotContains(t, out, l.base+"absent")

	for text, want := range map[string]string{
		"rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: x}]}]": "no limit in it has a rate",
		"rules: [{nam: x}]": "nam",
	} {
		write(text)
		code, _, errs = l.run("diff", file)
		require.Equal(t, command.ExitUsage, code, errs)
		require.Contains(t, errs, want)
	}
	code, _, _ = l.run("diff", file+"x")
	require.Equal(t, command.ExitUsage, code)
	write(`{"rules":[{"name":"x","match":{"hosts":["a.b"]},"limits":[{"name":"a","permits":1,"interval":"1s"}]}]}`)
	code, _, errs = l.run("diff", file, "--redis", "redis://127.0.0.1:1")
	require.Equal(t, exitNoAccess, code, errs)
}

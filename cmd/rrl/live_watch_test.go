// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/survey"
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

	for text, want := range map[string]string{
		"rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: x}]}]": "no limit in it has a rate",
		"rules: [{nam: x}]": "nam",
	} {
		write(text)
		l.ends(command.ExitUsage, want, "diff", file)
	}
}

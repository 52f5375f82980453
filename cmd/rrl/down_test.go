// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestWatchersOutliveARestart restarts the server that watch and top look at. They say that it does not reply, and go on.
func TestWatchersOutliveARestart(t *testing.T) {
	redistest.NeedReal(t)
	server := redistest.Start(t, "--appendonly", "yes")
	l := &live{T: t, rdb: server.Client(t), url: "redis://" + server.Addr(), base: "orders"}
	l.limiter(l.base, tenAMinute)
	l.Setenv("REDIS_URL", l.url)
	ctx, cancel := context.WithCancel(t.Context())
	outs, done := map[string]*redistest.Log{}, make(chan int)
	for _, args := range []string{"watch orders", "watch orders --json", "top", "top --json"} {
		out := new(redistest.Log)
		outs[args] = out
		go func() {
			done <- run(ctx, append(append([]string{"rrl"}, strings.Fields(args)...), "--every", "100ms"), out, out)
		}()
	}
	require.Eventually(t, func() bool {
		for _, out := range outs {
			if !strings.Contains(out.String(), "orders") && !strings.Contains(out.String(), "4 left") {
				return false
			}
		}
		return true
	}, 20*time.Second, 10*time.Millisecond)
	server.Kill()
	for args, out := range outs {
		want := "Redis does not reply, and is asked again: "
		if strings.Contains(args, "--json") {
			want = `"exit_code":4`
		}
		require.Eventually(t, func() bool { return strings.Contains(out.String(), want) }, 20*time.Second, 10*time.Millisecond, args)
	}
	from := map[string]int{}
	for args, out := range outs {
		from[args] = len(out.String())
	}
	server.Restart()
	for args, out := range outs {
		require.Eventually(t, func() bool {
			text := out.String()[from[args]:]
			return strings.Contains(text, "4 left") || strings.Contains(text, `"available":4`) || strings.Contains(text, "orders ")
		}, 20*time.Second, 10*time.Millisecond, args)
	}
	cancel()
	for range outs {
		require.Equal(t, command.ExitOK, <-done)
	}
}

// TestNamesInBase64 looks at a limiter whose name no shell can carry, by the name that JSON has.
func TestNamesInBase64(t *testing.T) {
	l := newLive(t)
	name := l.base + "\x00\x7f" // miniredis cannot look for one that is not UTF-8
	l.limiter(name, tenAMinute)
	coded := values[jsonLimiter](t, l.ok("ls", "--json", "--match", l.base+"*"))[0].NameBase64
	require.Equal(t, base64.StdEncoding.EncodeToString([]byte(name)), coded)
	for _, args := range []string{"inspect N", "peek N 4", "watch N --count 1", "doctor N --sample 0", "release N --permits 1 --write"} {
		l.ok(strings.Fields(strings.ReplaceAll(args, "N", coded) + " --base64")...)
	}
	require.Contains(t, l.ok("inspect", coded, "--base64"), "5 of 10")
	l.ends(command.ExitUsage, "is no name in base64", "inspect", "?", "--base64")
	l.do("del", "{"+name+"}:value") // of which a finding names the command that mends it
	_, out, _ := l.run("doctor", coded, "--base64", "--sample", "0", "--json")
	require.Contains(t, out, "rrl heal "+coded+" --base64 --redis ")
	require.Contains(t, out, `"limiter_base64":"`+coded+`"`)
}

// TestNamesThatJSONCannotHave exports and compares a limiter whose name is not UTF-8: a file cannot have it, which is said, and
// JSON has it in base64.
func TestNamesThatJSONCannotHave(t *testing.T) {
	redistest.NeedReal(t) // miniredis cannot look for it
	l := newLive(t)
	l.hash(l.base+"a", l.base+"\xff")
	code, out, errs := l.run("export", "--match", l.base+"*")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, `the file is not complete: "`+l.base+`\xff": the name is not UTF-8, which a file cannot have`)
	require.NotContains(t, out, "\ufffd")
	file := filepath.Join(t.TempDir(), "rates.json")
	require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
	coded := base64.StdEncoding.EncodeToString([]byte(l.base + "\xff"))
	require.Contains(t, l.ends(exitSick, "", "diff", file, "--match", l.base+"*", "--others", "--json"), `"limiter_base64":"`+coded+`"`)
	require.Contains(t, l.ends(exitSick, "", "diff", file, "--match", l.base+"*", "--others"), l.base+`\xff: not in the file`)
}

// TestTopFitsTheTerminal shows on 24 lines the limiters that come first, and none that would push these out.
func TestTopFitsTheTerminal(t *testing.T) {
	l := newLive(t)
	for i := range 40 {
		l.do("hset", fmt.Sprintf("%s%02d", l.base, i), "rate", 5, "interval", 1000, "type", 0)
	}
	l.stuck(l.base + "39")
	t.Setenv("LINES", "24")
	for _, args := range [][]string{{"top", "--count", "1", "--rows", "100"}, {"ls"}} {
		lines := strings.Split(strings.TrimSuffix(l.ok(append(args, "--match", l.base+"*")...), "\n"), "\n")
		require.LessOrEqual(t, len(lines), 23, args)
		require.Greater(t, len(lines), 20, args)
		require.Contains(t, strings.Join(lines[:3], "\n"), l.base+"39", args)
	}
}

// TestRecordAndReplay keeps what top shows, and shows it without the Redis.
func TestRecordAndReplay(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"orders", tenAMinute)
	l.stuck(l.base + "stuck")
	file := filepath.Join(t.TempDir(), "looks")
	require.Regexp(t, ` has \d+ looks?: rrl replay `, l.ok("record", file, "--match", l.base+"*", "--every", "100ms", "--for", "1s"))
	l.ends(command.ExitUsage, "exists", "record", file)
	code, out, errs := rrl(t, "replay", file)
	require.Equal(t, command.ExitOK, code, errs)
	require.Regexp(t, `^\d\d:\d\d:\d\dZ  2 of 2 limiters\nNAME .*\n`+regexp.QuoteMeta(l.base)+`stuck .* stuck .*\n`+regexp.QuoteMeta(l.base)+`orders .* 10/1m .*\n`, out)
	_, one, _ := rrl(t, "replay", file, "--match", l.base+"orders", "--sort", "name")
	require.NotContains(t, one, "stuck")
	whole := redistest.Must(os.ReadFile(file))(t)
	for name, c := range map[string]struct {
		text string
		args []string
		code int
		want string
	}{
		"later":        {string(whole), []string{"--from", "2999-01-01T00:00:00Z"}, command.ExitAbsent, "no look in .* is from then on"},
		"no such name": {string(whole), []string{"--match", l.base}, command.ExitAbsent, "or has that limiter"},
		"no time":      {string(whole), []string{"--from", "99"}, command.ExitUsage, `--from "99" is no time`},
		"back":         {string(whole), []string{"--every", "-1s"}, command.ExitUsage, "--every not below 0"},
		"cut off":      {string(whole[:len(whole)-9]), nil, command.ExitFailed, "is cut off: its last look is not whole"},
		"no file":      {"x", nil, command.ExitFailed, "is no file of rrl record"},
		"another file": {"{}", nil, command.ExitFailed, "is no file of rrl record: a look has format 0, and this version reads 1"},
		"empty":        {"", nil, command.ExitAbsent, "no look in "},
	} {
		file := filepath.Join(t.TempDir(), "looks")
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		code, _, errs := rrl(t, append([]string{"replay", file}, c.args...)...)
		require.Equal(t, c.code, code, name)
		require.Regexp(t, c.want, errs, name)
	}
	next := filepath.Join(t.TempDir(), "next")
	code, _, errs = rrl(t, "record", next, "--redis", l.url, "--for", "1ns")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "it ended before the first look, and there is no file")
	require.NoFileExists(t, next)
}

// TestReplayBegins shows the looks of two days from a time of day on, and from an instant on.
func TestReplayBegins(t *testing.T) {
	var text strings.Builder
	for _, at := range []string{"2026-01-01T23:59:00Z", "2026-01-02T00:01:00Z", "2026-01-02T00:06:00Z"} {
		fmt.Fprintf(&text, `{"format":1,"at":%q,"all":1,"rows":[{"Name":"\ufffd","raw":"//79","Rate":{"Permits":5,"Interval":1000000000}}]}`+"\n", at)
	}
	file := filepath.Join(t.TempDir(), "looks")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	for from, want := range map[string]string{
		"": "23:59 00:01 00:06", "23:00:00": "23:59 00:01 00:06", "00:05:00": "23:59 00:01 00:06", "23:59:30": "", "2026-01-02T00:00:00Z": "00:01 00:06",
	} {
		args := []string{"replay", file}
		if from != "" {
			args = append(args, "--from", from)
		}
		_, out, errs := rrl(t, args...)
		got := regexp.MustCompile(`(?m)^(\d\d:\d\d):00Z`).FindAllStringSubmatch(out, -1)
		var times []string
		for _, m := range got {
			times = append(times, m[1])
		}
		require.Equal(t, want, strings.Join(times, " "), "%s: %s", from, errs)
	}
	_, out, _ := rrl(t, "replay", file, "--match", "\xff\xfe\xfd")
	require.Contains(t, out, `\xff\xfe\xfd`)
}

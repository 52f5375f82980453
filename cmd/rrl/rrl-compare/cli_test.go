// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func rrlCompare(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"rrl-compare"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// compares runs a command that is to succeed.
func compares(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := rrlCompare(t, args...)
	require.Equal(t, command.ExitOK, code, errs)
	require.Empty(t, errs)
	return out
}

func TestCompareUsage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good, bad, large := write("good", "0s 1\n"), write("bad", "0s 1\n\n1s x\n"), write("large", "0s 1 6\n")
	picture := filepath.Join(dir, "x.svg")
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(dir, "device")))
	for _, c := range []struct {
		args string
		want string
	}{
		{"now", `rrl-compare takes no argument "now"`},
		{"--fast", "fast"},
		{"--case dance", `--case: there is no "dance"; there are articles, edge, trickle, burst, large`},
		{"--limiter Bucket", `--limiter: there is no "Bucket"; there are FixedWindow, SlidingLog, RRateLimiter, `},
		{"--limiter gcra,x", `--limiter: there is no "x"`},
		{"--wait -1s", "--wait: -1s is not in 0s to 1h0m0s"},
		{"--wait 61m", "--wait: 1h1m0s is not in 0s to 1h0m0s"},
		{"--wait 1ns", "--wait: 1ns is not in 0s to 1h0m0s, in whole microseconds"},
		{"--wait soon", "soon"},
		{"--by day", `--by: "day" is neither case nor limiter`},
		{"--rate 5/1s", "--rate is the limit of a --pattern; the cases have their own"},
		{"--pattern " + good, "--pattern needs a --rate, as in 1000/3s"},
		{"--pattern= --rate 5/1s", "--pattern: the name of the file is empty"},
		{"--rate 5 --pattern " + good, `--rate: "5" is not permits and interval, as in 1000/3s`},
		{"--rate 0/1s --pattern " + good, `--rate: "0/1s" is not permits and interval`},
		{"--rate 4294967296/1s --pattern " + good, `--rate: "4294967296/1s" is not permits and interval`},
		{"--rate 5/1 --pattern " + good, `--rate: "5/1": the interval is not a time of whole milliseconds`},
		{"--rate 5/1us --pattern " + good, `--rate: "5/1us": the interval is not a time of whole milliseconds`},
		{"--rate 5/25h --pattern " + good, `--rate: "5/25h": the interval is not a time of whole milliseconds, at most a day`},
		{"--rate 5/1s --pattern " + bad, `bad:3: count "x" is not a whole number`},
		{"--rate 5/1s --pattern " + large, "large: a request at 0s is for 6 permits, more than the limit of 5/1s"},
		{"--rate 5/1s --pattern " + filepath.Join(dir, "none"), "none: no such file or directory"},
		{"--rate 5/1s --pattern " + dir, "is a directory"},
		{"--svg=", "--svg: the name of the file is empty"},
		{"--case edge --svg " + dir, "is there and is no regular file"},
		{"--case edge --svg " + filepath.Join(dir, "device"), "is there and is no regular file"},
		{"--png " + filepath.Join(dir, "none", "x.png"), "no such file or directory"},
		{"--png " + filepath.Join(good, "x.png"), "not a directory"},
		{"--svg " + picture + " --png " + picture, "x-articles.svg is the file of --svg, too"},
	} {
		code, out, errs := rrlCompare(t, strings.Fields(c.args)...)
		require.Equal(t, command.ExitUsage, code, "%s: %s", c.args, errs)
		require.Empty(t, out, c.args)
		require.Regexp(t, `^rrl-compare: .* \(see rrl-compare --help\)\n$`, errs)
		require.Contains(t, errs, c.want, c.args)
	}
	require.NoFileExists(t, picture)
}

const edgeTable = `edge: 1 request that opens a window, 4 just before its end (0.95s), 5 just
after it (1.05s)
limit 5 per 1s, 10 permits asked, turns up to 1s ahead

limiter          admitted  rejected     worst  of limit   bound   waited     told
FixedWindow            10         0         9   1.80x !       9        -        -
SlidingLog              6         4         5   1.00x         5        -    900ms
LeakyQueue              6         4         5   1.00x         5    700ms    100ms

admitted per 100ms; █ is up to 5, · nothing
asked           ▂········▇█·······
FixedWindow     ▂········▇█·······
SlidingLog      ▂········▇▂·······
LeakyQueue      ▂········▂·▂·▂·▂·▂

`

// TestCompareChartOfALongTraffic checks that a column of the chart of a long traffic stands for several bins.
func TestCompareChartOfALongTraffic(t *testing.T) {
	edge := compared(t)["trickle"]
	var out bytes.Buffer
	v := &compareTable{out: &out}
	v.chart(edge)
	require.NoError(t, v.err)
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, "admitted per 300ms; █ is up to 4, · nothing", lines[0], "149 bins of 100ms, 12 requests a second")
	for _, line := range lines[1 : len(lines)-2] {
		require.Equal(t, 16+50, utf8.RuneCountInString(line), line)
	}
	require.Equal(t, []int64{6, 15, 7}, columns([]int64{1, 2, 3, 4, 5, 6, 7}, 3))
}

func TestCompareTable(t *testing.T) {
	out := compares(t, "--case", "edge", "--limiter", "leakyqueue,FixedWindow", "--limiter", "SLIDINGLOG")
	require.Equal(t, edgeTable+strings.Join(append(compareLegend, aheadLegend...), "\n")+"\n", out)

	out = compares(t, "--case", "edge", "--limiter", "LeakyQueue", "--wait", "0s")
	require.Contains(t, out, "\nlimit 5 per 1s, 10 permits asked\n")
	require.Contains(t, out, "\nLeakyQueue              2         8         2   0.40x         5        -    200ms\n")
	require.NotContains(t, out, aheadLegend[0])
}

// TestCompareTableInColour checks that a terminal gets the same letters, with colours.
func TestCompareTableInColour(t *testing.T) {
	edge := compared(t)["edge"]
	var out, plainOut bytes.Buffer
	v := &compareTable{out: &out, colour: true}
	v.comparison(edge)
	require.NoError(t, v.end())
	require.Contains(t, out.String(), term.Red+"FixedWindow  ")
	require.Contains(t, out.String(), "\nSlidingLog   ", "what is within the limit is not red")
	require.Contains(t, out.String(), "FixedWindow     ▂········▇"+term.Red+"█·········"+term.Plain+"·\n", "the window that ends there has 9")
	require.Contains(t, out.String(), "\nasked           ▂········▇█··········\n", "what is asked is no fault")
	p := &compareTable{out: &plainOut}
	p.comparison(edge)
	require.NoError(t, p.end())
	require.NotContains(t, plainOut.String(), "\x1b")
	require.Equal(t, plainOut.String(), strings.NewReplacer(term.Red, "", term.Bold, "", term.Dim, "", term.Plain, "").Replace(out.String()))
}

func TestCompareFitsTheTerminal(t *testing.T) {
	for _, c := range compared(t) {
		var out bytes.Buffer
		v := &compareTable{out: &out}
		v.comparison(c)
		require.NoError(t, v.end())
		for _, line := range strings.Split(out.String(), "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 90, line)
		}
	}
}

func TestCompareJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.svg")
	out := compares(t, "--json", "--case", "edge", "--limiter", "FixedWindow", "--svg", file)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	require.Len(t, lines, 3)
	require.JSONEq(t, `{"event":"case","case":"edge","about":"1 request that opens a window, 4 just before its end (0.95s), 5 just after it (1.05s)",
		"permits":5,"interval_ms":1000,"wait_us":1000000,"asked_permits":10,"bin_ms":100}`, lines[0])
	require.JSONEq(t, `{"event":"limiter","case":"edge","limiter":"FixedWindow","admitted_permits":10,"rejected_permits":0,
		"worst_window":9,"above_limit":true,"bound":9,"longest_wait_us":0,"longest_told_us":0,
		"admitted_per_bin":[1,0,0,0,0,0,0,0,0,4,5]}`, lines[1])
	var f jsonFile
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &f))
	require.Equal(t, jsonFile{"file", file}, f)
}

// TestComparePattern compares the limiters under the user's own traffic, alone and beside a case.
func TestComparePattern(t *testing.T) {
	pattern := filepath.Join(t.TempDir(), "mine.txt")
	// Ten requests at once, then one every 100ms: a log admits none of the latter, a bucket admits all of them.
	require.NoError(t, os.WriteFile(pattern, []byte("0s 10 # at once\n0.1s..1s 9\n"), 0o600))
	args := []string{"--pattern", pattern, "--rate", "10/1s", "--limiter", "SlidingLog,TokenBucket"}
	out := compares(t, args...)
	require.True(t, strings.HasPrefix(out, "pattern: the requests of "), out)
	require.Contains(t, out, "limit 10 per 1s, 19 permits asked")
	require.Contains(t, out, "\nSlidingLog             10         9        10   1.00x        10        -    900ms\n")
	require.Contains(t, out, "\nTokenBucket            19         0        19   1.90x !      19        -        -\n")

	out = compares(t, append(args, "--case", "edge")...)
	require.Less(t, strings.Index(out, "edge: "), strings.Index(out, "pattern: "))
}

func TestCompareWritesFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	// A file that exists keeps its mode, and a link stays a link.
	require.NoError(t, os.WriteFile(at("one.svg"), []byte("old"), 0o604))
	require.NoError(t, os.Symlink("one.svg", at("link.svg")))
	few := []string{"--case", "edge", "--limiter", "FixedWindow,GCRA"}
	out := compares(t, append(few, "--svg", at("link.svg"), "--png", at("one.png"))...)
	require.Contains(t, out, "\nwrote "+at("link.svg")+"\nwrote "+at("one.png")+"\n")
	info := redistest.Must(os.Lstat(at("one.svg")))(t)
	require.Equal(t, os.FileMode(0o604), info.Mode())
	require.Equal(t, "one.svg", redistest.Must(os.Readlink(at("link.svg")))(t))
	svg := redistest.Must(os.ReadFile(at("link.svg")))(t)
	require.Contains(t, string(svg), ">FixedWindow</text>")
	require.True(t, strings.HasSuffix(string(svg), "</svg>\n"))
	f := redistest.Must(os.Open(at("one.png")))(t)
	defer func() { require.NoError(t, f.Close()) }()
	require.Equal(t, 1440, redistest.Must(png.DecodeConfig(f))(t).Width)

	// With several pictures, the files get names.
	compares(t, append(few, "--case", "burst", "--by", "limiter", "--svg", at("a.b.svg"))...)
	compares(t, append(few, "--case", "burst", "--svg", at("none"))...)
	require.Equal(t, []string{"a.b-fixedwindow.svg", "a.b-gcra.svg", "link.svg", "none-burst", "none-edge", "one.png", "one.svg"}, names(t, dir))
}

func names(t *testing.T, dir string) (list []string) {
	entries := redistest.Must(os.ReadDir(dir))(t)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestCompareLeavesFilesAlone checks that a command that ends before it is done leaves the files as they were, and no
// others beside them.
func TestCompareLeavesFilesAlone(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "x.svg")
	require.NoError(t, os.WriteFile(target, []byte("old"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	require.Equal(t, command.ExitInterrupted, run(ctx, []string{"rrl-compare", "--case", "edge", "--svg", target}, &out, &errs))
	require.Equal(t, "rrl-compare: interrupted\n", errs.String())
	require.Empty(t, out.String())

	require.Error(t, replaceFiles([]file{{target, []byte("new")}, {filepath.Join(dir, "none", "y"), nil}}))
	require.Equal(t, []string{"x.svg"}, names(t, dir))
	require.Equal(t, "old", string(redistest.Must(os.ReadFile(target))(t)))

	// The file cannot be given that name.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
	require.Error(t, replaceFiles([]file{{target, []byte("new")}, {filepath.Join(dir, "taken"), nil}}))
	require.Equal(t, []string{"taken", "x.svg"}, names(t, dir))
}

// TestCompareIntoNothing checks that the command reports that it cannot write the table.
func TestCompareIntoNothing(t *testing.T) {
	for _, args := range [][]string{nil, {"--json"}} {
		var errs bytes.Buffer
		args = append([]string{"rrl-compare", "--case", "edge", "--limiter", "GCRA"}, args...)
		require.Equal(t, command.ExitFailed, run(t.Context(), args, full{}, &errs))
		require.Equal(t, "rrl-compare: the disk is full\n", errs.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestCompareHelp(t *testing.T) {
	out := compares(t, "--help")
	for _, want := range []string{"--case", "--pattern", "--rate", "--limiter", "--wait", "--svg", "--png", "--by", "--json",
		"articles, edge, trickle, burst, large", "0s..5s 100"} {
		require.Contains(t, out, want)
	}
}

// TestCompareIsVisible checks that the output is plain text although errors repeat what was typed, and a file may have any
// name.
func TestCompareIsVisible(t *testing.T) {
	name := "a\x1b[2J\u009b"
	visible := func(out string) {
		t.Helper()
		require.Negative(t, strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }), "%q", out)
	}
	for _, args := range [][]string{
		{name}, {"--" + name}, {"--case", name}, {"--limiter", name}, {"--by", name}, {"--wait", name},
		{"--pattern", name, "--rate", "1/1s"}, {"--pattern", name, "--rate", name}, {"--svg", filepath.Join(name, "x")},
	} {
		code, out, errs := rrlCompare(t, args...)
		require.NotEqual(t, command.ExitOK, code, "%q", args)
		visible(out)
		visible(errs)
	}
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(dir, 0o700))
	pattern, svg := filepath.Join(dir, name), filepath.Join(dir, "x.svg")
	require.NoError(t, os.WriteFile(pattern, []byte("0s 1\n"), 0o600))
	for _, args := range [][]string{{}, {"--json"}} {
		out := compares(t, append([]string{"--limiter", "gcra", "--pattern", pattern, "--rate", "1/1s", "--svg", svg}, args...)...)
		visible(out)
		require.Contains(t, out, `a\`)
		picture := redistest.Must(os.ReadFile(svg))(t)
		visible(strings.ReplaceAll(string(picture), "\t", ""))
	}
	require.NoError(t, os.WriteFile(pattern, []byte("0s "+name), 0o600))
	code, _, errs := rrlCompare(t, "--pattern", pattern, "--rate", "1/1s")
	require.Equal(t, command.ExitUsage, code)
	visible(errs)
}

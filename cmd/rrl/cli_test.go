// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"
)

// rrl runs a command without a Redis in its environment.
func rrl(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"rrl"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// TestUsage checks of a wrong command line that nothing is done and that one line says what is wrong, in plain text and
// without a password, and which help to read.
func TestUsage(t *testing.T) {
	odd := "a\x1b[2J\u009b"
	for args, want := range map[string]string{
		"dance":           `no command "dance" (see rrl --help)`,
		"--fast":          "flag provided but not defined: -fast (see rrl --help)",
		"docter":          `no command "docter"; did you mean doctor? (see rrl --help)`,
		"setrate":         `no command "setrate"; did you mean set-rate?`,
		"docter x --all":  `no command "docter"; did you mean doctor? (see rrl --help)`,
		"dance --redis x": `no command "dance" (see rrl --help)`,
		"--verison":       "; did you mean --version? (see",
		"version 2":       `version takes no argument "2"`,
		odd:               `no command "a\x1b[2J\u009b"`,
		"--" + odd:        `a\x1b[2J\u009b`,
		"version " + odd:  `a\x1b[2J\u009b`,

		"completion zhs":   `no completion for the shell "zhs"; did you mean zsh? (see rrl completion --help)`,
		"scripts acquires": `no script "acquires"`,

		"ls":                        "no Redis: give --redis URL, or set REDIS_URL",
		"ls --redis localhost:6379": "it looks like redis://127.0.0.1:6379/0 (see rrl ls --help)",
		"ls --redis localhost":      "it looks like redis://127.0.0.1:6379/0 (see rrl ls --help)",
		"ls --redis http://h":       "it looks like redis://127.0.0.1:6379/0 (see rrl ls --help)",
		"ls --mach x":               "; did you mean --match? (see rrl ls --help)",
		"ls --wiating":              "; did you mean --waiting? (see",
		"ls --fast":                 "flag provided but not defined: -fast (see",
		"ls --limit x":              "(see rrl ls --help)",
	} {
		code, out, errs := rrl(t, strings.Fields(args)...)
		require.Equal(t, command.ExitUsage, code, "%v: %s", args, errs)
		require.Empty(t, out, args)
		require.Contains(t, errs, want, args)
		require.Regexp(t, `^rrl: .* \(see rrl( [a-z-]+)? --help\)\n$`, errs)
		require.NotContains(t, errs, "secret")
		require.Equal(t, strings.Contains(want, "did you mean"), strings.Contains(errs, "did you mean"), errs)
		requireVisible(t, errs)
	}
}

// TestCtrlC checks that a signal ends a command that waits for Redis, with one clear line and the exit code of a shell.
func TestCtrlC(t *testing.T) {
	redistest.NoServer(t)
	silent := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = silent.Close() }()
	cmd := exec.Command(os.Args[0], "ls")
	cmd.Env = append(os.Environ(), asProgram+"=1", "REDIS_URL=redis://"+silent.Addr().String())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	conn := redistest.Must(silent.Accept())(t)
	defer func() { _ = conn.Close() }()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	require.Equal(t, command.ExitInterrupted, cmd.ProcessState.ExitCode(), &errs)
	require.Equal(t, "rrl: interrupted\n", errs.String())
	require.Empty(t, out.String())
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"", "--help", "help"} {
		code, out, errs := rrl(t, strings.Fields(args)...)
		require.Equal(t, command.ExitOK, code)
		require.Empty(t, errs)
		require.Contains(t, out, "doctor")
		require.Contains(t, out, "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 there is no such limiter, 4 Redis cannot be reached, 130 interrupted.")
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := rrl(t, "version")
	require.Equal(t, command.ExitOK, code)
	require.Regexp(t, `^rrl \S.* `+runtime.Version()+` `+runtime.GOOS+`/`+runtime.GOARCH+`\nratelimiter \S+\ngo-redis v9\.\S+\n`, out)
	require.Empty(t, errs)
}

// TestGateway checks that rrl gateway becomes rrl-gateway, with its arguments, and says how to get it.
func TestGateway(t *testing.T) {
	if os.Getenv("RRL_TEST_PROGRAM") != "" {
		rrl(t, "gateway", "ca", "--ca-dir", "x y")
		t.Fatal("it came back")
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	const pkg = "cmd/rrl-gateway"
	(&live{T: t}).ends(command.ExitUsage, "go install github.com/goredisson/ratelimiter/"+pkg+"@latest, or in a clone go run ./"+pkg, "gateway", "--help")
	require.DirExists(t, "../../"+pkg)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "rrl-gateway"), []byte("#!/bin/sh\necho $0 \"$@\"\n"), 0o700))
	cmd := exec.Command(os.Args[0], "-test.run", "^TestGateway$")
	cmd.Env = append(os.Environ(), "RRL_TEST_PROGRAM=1")
	require.Contains(t, string(redistest.Must(cmd.Output())(t)), "rrl-gateway ca --ca-dir x y\n")
}

// TestScripts checks that the scripts which rrl prints are those that Redis gets, under the SHA-1 that it knows them by.
func TestScripts(t *testing.T) {
	none := &live{T: t}
	list := none.ok("scripts")
	shas := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(list), "\n")[1:] {
		words := strings.Fields(line)
		require.Len(t, words, 4, line)
		shas[words[0]] = words[1]
		text := none.ok("scripts", words[0])
		sum := sha1.Sum([]byte(text))
		require.Equal(t, words[1], hex.EncodeToString(sum[:]), words[0])
		require.NotContains(t, text, "--#use", words[0])
	}
	require.Contains(t, shas, "gcra")

	rdb := redistest.Client(t)
	c := clienttest.New(t, rdb)
	defer func() { _ = c.Close() }()
	l := c.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 1, Interval: time.Minute}))
	require.NoError(t, l.Acquire(t.Context(), 1))
	exist := redistest.Must(rdb.ScriptExists(t.Context(), shas["acquire"], shas["set_rate"]).Result())(t)
	require.Equal(t, []bool{true, true}, exist)
}

// hostile holds sequences that a terminal would obey, in both of their forms, characters that end a line or turn the
// text around, and a byte that is not text. hostileVisible is how it has to look.
const (
	hostile        = "a\x1b[2J\u009b31m\x07\r\n\u202eb\x7f\xff"
	hostileVisible = `a\x1b[2J\u009b31m\a\r\n\u202eb\x7f\xff`
)

// requireVisible checks that out has only printable characters and ends of lines.
func requireVisible(t *testing.T, out string) {
	t.Helper()
	at := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) })
	require.Negative(t, at, "%q", out)
}

func TestVisible(t *testing.T) {
	require.Equal(t, hostileVisible, visible(hostile))
	for _, text := range []string{"", "orders", "42", `\`, "限流器 ▁█ …", "\ufffd"} {
		require.Equal(t, text, visible(text))
	}
	require.Equal(t, `cut off \x1b[2J`, oneLine(errors.New("cut\n off\t\x1b[2J ")))
	long := strings.Repeat("限", 30_000)
	require.Equal(t, `of "`+long[:63]+`…" and "a\\b" (rrl ls)`, oneLine(fmt.Errorf("of %q and %q (rrl ls)", long, `a\b`)))
}

// TestNamesAreToldApart prints names that would look alike if only what cannot be printed were escaped.
func TestNamesAreToldApart(t *testing.T) {
	for name, want := range map[string]string{"orders": "orders", `a\b c`: `a\\b c`, `C:\dir`: `C:\dir`, "a\nb": `a\nb`, `a\nb`: `a\\nb`, "a\n\\b": `a\n\\b`, hostile: hostileVisible} {
		require.Equal(t, want, visibleName(name))
	}
}

func TestEncodeJSON(t *testing.T) {
	var out bytes.Buffer
	in := map[string]string{"text": hostile + "\U000e0001<限>"}
	require.NoError(t, term.EncodeJSON(&out, in))
	requireVisible(t, out.String())
	var back map[string]string
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, strings.ToValidUTF8(in["text"], "\ufffd"), back["text"])
	require.Error(t, term.EncodeJSON(&out, func() {}))
}

// asProgram makes the test binary behave as rrl, for tests of signals and exit codes.
const asProgram = "RRL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	logging.Disable()
	nearTime = time.Hour
	redistest.Main(m)
}

// TestDocsNameCommandsAndFlags checks that each command of rrl in the pages is one, with flags that it has.
func TestDocsNameCommandsAndFlags(t *testing.T) {
	help := map[string]string{}
	for _, c := range newApp(&bytes.Buffer{}, &bytes.Buffer{}).Commands {
		var out, errs bytes.Buffer
		require.Equal(t, command.ExitOK, run(t.Context(), []string{"rrl", "help", c.Name}, &out, &errs), "%s: %s", c.Name, &errs)
		help[c.Name] = out.String()
	}
	help["completion"] = ""
	call, flag := regexp.MustCompile("(?:^|[ `(])rrl ([a-z][a-z-]*)([^`#\n]*)"), regexp.MustCompile(`(?:^| )(--[a-z][a-z-]*)`)
	found := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/zh/*.md"} {
		files := redistest.Must(filepath.Glob(pattern))(t)
		for _, f := range files {
			text := redistest.Must(os.ReadFile(f))(t)
			for _, code := range regexp.MustCompile("(?s)```.*?```|`rrl [^`\n]*`").FindAllString(string(text), -1) {
				for line := range strings.Lines(code) {
					for _, m := range call.FindAllStringSubmatch(line, -1) {
						about, ok := help[m[1]]
						require.True(t, ok, "%s: rrl %s", f, m[1])
						for _, name := range flag.FindAllStringSubmatch(m[2], -1) {
							require.Contains(t, about, name[1], "%s: rrl %s%s", f, m[1], m[2])
							found++
						}
					}
				}
			}
		}
	}
	require.Greater(t, found, 20)
}

// TestEmptyFlags checks of every flag of every command that an empty value, which is that of a variable that is not set, is wrong usage,
// and that the error names the flag; and of a list that none of its values may be empty.
func TestEmptyFlags(t *testing.T) {
	flags := 0
	var walk func(c *cli.Command, path []string)
	walk = func(c *cli.Command, path []string) {
		for _, f := range c.Flags {
			for _, name := range f.Names() {
				dash := "--"
				if len(name) == 1 {
					dash = "-"
				}
				given := [][]string{{dash + name + "="}}
				if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
					given = append(given, []string{dash + name, ""})
				}
				if _, ok := f.(*cli.StringSliceFlag); ok {
					given = append(given, []string{dash + name, "a,"}, []string{dash + name, "a", dash + name, ""})
				}
				for _, value := range given {
					flags++
					args := append(slices.Clone(path), value...)
					code, _, errs := rrl(t, args...)
					require.Equal(t, command.ExitUsage, code, "%q: %s", args, errs)
					require.Regexp(t, "-"+name+"( is empty: give it a value, or leave it out|: a value is empty)", errs, "%q", args)
				}
			}
		}
		for _, sub := range c.Commands {
			walk(sub, append(slices.Clone(path), sub.Name))
		}
	}
	walk(newApp(io.Discard, io.Discard), nil)
	require.Greater(t, flags, 200)
}

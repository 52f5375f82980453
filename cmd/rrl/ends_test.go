// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/stretchr/testify/require"
)

// TestEveryLiveCommand checks of each command that needs a Redis: its exit code, that --json writes JSON and nothing
// else, what it says without a Redis and of one that is away, and that a terminal of 40 columns is wide enough.
func TestEveryLiveCommand(t *testing.T) {
	l := newLive(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(`rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: "`+l.base+`", permits: 99, interval: 1m}]}]`), 0o600))
	every := map[string]struct { // by command, its arguments and its exit code
		args string
		code int
	}{
		"ls": {"--match $*", command.ExitOK}, "inspect": {"$ --members", command.ExitOK}, "peek": {"$ 9", command.ExitFailed},
		"top": {"--match $* --count 1 --every 100ms", command.ExitOK}, "watch": {"$ --count 1 --every 100ms", command.ExitOK},
		"doctor": {"$ --sample 0 --rules " + rules, exitSick}, "diff": {rules + " --match $*", exitSick}, "export": {"--match $*", command.ExitOK},
		"heal": {"$ --write", command.ExitOK}, "set-rate": {"$ --permits 12 --write", command.ExitOK}, "release": {"$ --permits 1 --write", command.ExitOK},
		"cool-down": {"$ --for 1h --write", command.ExitOK}, "lift": {"$", command.ExitFailed}, "delete": {"$", command.ExitOK},
	}
	isLive := map[string]bool{}
	for _, cmd := range newApp(nil, nil).Commands {
		for _, f := range cmd.Flags {
			isLive[cmd.Name] = isLive[cmd.Name] || f.Names()[0] == "ask-password" && cmd.Name != "page" && cmd.Name != "record" // which stay, and have tests of their own
		}
	}
	for name, is := range isLive {
		require.Equal(t, is, every[name].args != "", name)
	}
	t.Setenv("COLUMNS", "40")
	for name, c := range every {
		l.do("del", l.base, "{"+l.base+"}:value", "{"+l.base+"}:permits") // it may cool down
		l.limiter(l.base, tenAMinute)
		args := append([]string{name}, strings.Fields(strings.ReplaceAll(c.args, "$", l.base))...)
		require.NotEmpty(t, l.ends(c.code, "", args...), name)
		code, out, errs := l.run(append(args, "--json")...)
		require.Equal(t, c.code, code, "%v: %s", args, errs)
		if name != "export" { // which writes a rule file
			requireSchema(t, name, out)
		}
		away := append(args, "--redis", "redis://user:secret@127.0.0.1:1")
		require.Regexp(t, `^rrl: the Redis at 127.0.0.1:1, database 0 does not answer: .*refused \(nothing listens there; check host and port\)\n$`, l.ends(command.ExitDown, "", away...), name)
		_, out, _ = l.run(append(away, "--json")...)
		require.Equal(t, command.ExitDown, values[jsonError](t, out)[0].ExitCode, name)
		requireSchema(t, name, out)
		(&live{T: t}).ends(command.ExitUsage, "set REDIS_URL", args...)
		(&live{T: t, url: "http://x"}).ends(command.ExitUsage, "invalid Redis URL", args...)
		l.ends(command.ExitUsage, "no-such-flag", name, "--no-such-flag")
	}
}

// TestWhatCannotBeDone runs commands with wrong arguments, and commands about a limiter that is not there, is malformed, or has
// clients. Each ends with one line, and changes nothing.
func TestWhatCannotBeDone(t *testing.T) {
	l := newLive(t)
	noClient := "name one with --client (rrl inspect $users" + l.at() + " --clients lists them)"
	const noLimiter = `there is no limiter "$none" in `
	malformed := `rate is "abc" (rrl doctor $bad` + l.at() + ` says what to do)`
	l.do("hset", l.base+"bad", "rate", "abc", "interval", 1000, "type", 0, "keepAliveTime", 0)
	l.limiter(l.base+"well", tenAMinute)
	l.limiter(l.base+"users", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	keys := l.keys()
	name := strings.NewReplacer("$", l.base)
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"inspect $none":                      {command.ExitAbsent, noLimiter},
		"peek $none 1":                       {command.ExitAbsent, noLimiter},
		"watch $none":                        {command.ExitAbsent, noLimiter},
		"heal $none --write":                 {command.ExitAbsent, noLimiter},
		"delete $none --write":               {command.ExitAbsent, "there was nothing to delete"},
		"doctor $none --sample 0":            {command.ExitAbsent, "there is no"},
		"set-rate $none --permits 1":         {command.ExitAbsent, noLimiter},
		"peek $bad 1":                        {command.ExitFailed, malformed},
		"watch $bad":                         {command.ExitFailed, malformed},
		"peek $users 1":                      {command.ExitUsage, noClient},
		"watch $users":                       {command.ExitUsage, noClient},
		"heal $users --write":                {command.ExitUsage, noClient},
		"release $users --permits 1 --write": {command.ExitUsage, noClient},

		"peek $users 0 --client client-1":          {command.ExitUsage, "0 permits; ask for 1 to 4294967295"},
		"peek $well 0":                             {command.ExitUsage, "invalid argument"},
		"peek $well many":                          {command.ExitUsage, `"many" is no number of permits`},
		"peek $well 11":                            {command.ExitFailed, "permits exceed rate"},
		"watch $well --every 1ms":                  {command.ExitUsage, "--every is at least 100ms"},
		"ls --sort nothing":                        {command.ExitUsage, `--sort "nothing" is none of granted, harm, members, name, rate, ttl, used, wait, waiting`},
		"top --sort nothing":                       {command.ExitUsage, `--sort "nothing" is none of granted, harm, members, name, rate, ttl, used, wait, waiting`},
		"diff nowhere":                             {command.ExitUsage, "nowhere"},
		"lift $well --write":                       {command.ExitFailed, "there was no cool-down"},
		"lift $well":                               {command.ExitFailed, "there was no cool-down"},
		"set-rate $well --write":                   {command.ExitUsage, "set-rate needs at least one of"},
		"set-rate $well --permits 0 --write":       {command.ExitUsage, "invalid argument"},
		"set-rate $well --rate 5 --write":          {command.ExitUsage, `the rate "5" is not in the form 10/s, 100/1m30s or 1000/day`},
		"set-rate $well --rate 0/s --write":        {command.ExitUsage, "0 is not in 1..4294967295"},
		"set-rate $well --rate 1/1500us --write":   {command.ExitUsage, "1.5ms is not a whole number of milliseconds"},
		"set-rate $well --rate 5/s --permits 5":    {command.ExitUsage, `--rate "5/s" sets what --permits sets; give one of them`},
		"set-rate $well --type both --write":       {command.ExitUsage, `--type "both" is neither`},
		"set-rate $x --permits 1 --create --write": {command.ExitAbsent, "--rate sets one afresh"},
		"cool-down $well --for -1s --write":        {command.ExitUsage, "--for is above 0"},
		"release $well --write":                    {command.ExitUsage, "release needs --permits N, the permits to give back"},
		"cool-down $well --write":                  {command.ExitUsage, "cool-down needs --for D, such as 5m"},
		"page --listen 0.0.0.0:0":                  {command.ExitUsage, "so it needs a token"},
		"page --listen :0":                         {command.ExitUsage, "so it needs a token"},
		"page --listen [::]:0":                     {command.ExitUsage, "so it needs a token"},
		"page --listen host.example:0":             {command.ExitUsage, "so it needs a token"},
		"page --listen 7380":                       {command.ExitUsage, "is no HOST:PORT"},
		"page --write":                             {command.ExitUsage, "--write needs a token"},
		"page --token-file nowhere":                {command.ExitUsage, "--token-file"},
		"page more":                                {command.ExitUsage, "page takes no argument"},
		"doctor --app-role acquire":                {command.ExitUsage, "--app-role is about the user that --app-user names"},
		"doctor --app-user u --app-role x":         {command.ExitUsage, `--app-role "x" is neither acquire nor administer`},
		"heal":                                     {command.ExitUsage, "heal takes one argument, the name of a limiter"},
	} {
		l.ends(c.code, name.Replace(c.want), strings.Fields(name.Replace(args))...)
		require.ElementsMatch(t, keys, l.keys(), args)
	}
	l.ends(command.ExitUsage, "doctor takes the name of a limiter, or none for all; this one is empty", "doctor", "")
	l.ends(command.ExitUsage, "doctor takes the name of a limiter, or none for all; this one is empty", "doctor", "--base64", "")
	require.Less(t, len(l.ends(command.ExitAbsent, `nnnn…" in `, "inspect", strings.Repeat("n", 90_000))), 400)
	l.ends(command.ExitFailed, "because of the permits in use", "peek", l.base+"users", "1", "--client", "client-1")
	require.Contains(t, l.ok("watch", l.base+"users", "--count", "1", "--client", "client-1"), "3 members")
	require.Contains(t, l.ok("release", l.base+"users", "--permits", "1", "--client", "client-1", "--write"), "available 1 of 6")
}

// TestDeleteTellsWhatIsLeft shows that the permits of other clients outlive their limiter, and that rrl says so.
func TestDeleteTellsWhatIsLeft(t *testing.T) {
	l := newLive(t)
	name := l.base + "users"
	left := "the permits of 1 client are left: rrl doctor " + name + l.at() + " names their keys\n"
	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	require.Contains(t, l.ok("delete", name), left+"nothing was changed")
	require.NotContains(t, l.ok("delete", name, "--client", "client-1"), "left:")
	require.Contains(t, l.ok("delete", name, "--write"), left)
	_, findings, _ := l.run("doctor", name, "--sample", "0")
	require.Regexp(t, `redis-cli -h \S+ -p \d+ -n 0 unlink`, findings)

	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 12, Interval: time.Hour})
	require.NotContains(t, l.ok("delete", name, "--client", "client-1", "--write"), "left:")
	l.limiter(name, tenAMinute)
	require.NotContains(t, l.ok("delete", name, "--write"), "left:")
}

// TestCoolDownOfWhatIsNotThereYet follows the advice.
func TestCoolDownOfWhatIsNotThereYet(t *testing.T) {
	l := newLive(t)
	name := l.base + "robot"
	_, _, errs := l.run("cool-down", name, "--for", "10m", "--write")
	_, advice, found := strings.Cut(strings.TrimSpace(errs), "make it first: rrl ")
	require.True(t, found, errs)
	l.ok(strings.Fields(strings.NewReplacer("'", "", "permits N", "permits 20", "interval D", "interval 1m").Replace(advice))...)
	require.Regexp(t, "available 0 of 20; a permit is available in (10m00|9m5[0-9])s", l.ok("cool-down", name, "--for", "10m", "--write"))
}

// TestFullOutput writes to a device that has no room. It fails, and nobody takes it for a Redis that is down, or for a healthy one.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer func() { _ = full.Close() }()
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	t.Setenv("REDIS_URL", l.url)
	for _, args := range []string{"ls", "ls --json", "top --count 1", "inspect NAME", "inspect NAME --members", "peek NAME 1", "watch NAME --count 1", "export",
		"set-rate NAME --permits 9 --interval 1m", "doctor NAME --sample 0"} {
		var errs bytes.Buffer
		code := run(t.Context(), append([]string{"rrl"}, strings.Fields(strings.ReplaceAll(args, "NAME", l.base))...), full, &errs)
		want := command.ExitFailed
		if strings.HasPrefix(args, "doctor") {
			want = exitNoAccess
		}
		require.Equal(t, want, code, args)
		require.Contains(t, errs.String(), "no space left", args)
	}
}

// TestPageOnAUsedPort is not an error of Redis.
func TestPageOnAUsedPort(t *testing.T) {
	l := newLive(t)
	used, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = used.Close() }()
	l.ends(command.ExitFailed, "--listen: ", "page", "--listen", used.Addr().String())
}

// TestInstantsBeyondJSON lists limiters whose instants no JSON can have.
func TestInstantsBeyondJSON(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	l.do("hset", l.base, "coolDown", "9007199254740991", "reopenUntil", "9007199254740992")
	l.do("zadd", "{"+l.base+"}:permits", "9e15", "\x10"+strings.Repeat("a", 16)+"\x01\x00\x00\x00")
	for _, args := range []string{"ls --json", "top --json --count 1", "inspect NAME --json --members", "watch NAME --json --count 1"} {
		require.Contains(t, l.ok(strings.Fields(strings.ReplaceAll(args, "NAME", l.base))...), `"9999-12-31T23:59:59Z"`, args)
	}
}

// TestWrongUsageInJSON has the error as the last value, as every other failure.
func TestWrongUsageInJSON(t *testing.T) {
	l := newLive(t)
	for _, args := range []string{"ls --json --sort x", "ls --json --nothing", "inspect --json", "peek --json a x", "cool-down --json a", "inspect --json --base64 ?"} {
		code, out, _ := l.run(strings.Fields(args)...)
		require.Equal(t, command.ExitUsage, code, args)
		var e jsonError
		require.NoError(t, json.Unmarshal([]byte(out), &e), args)
		require.Equal(t, command.ExitUsage, e.ExitCode, args)
	}
}

// TestBrokenOnANarrowTerminal says of a limiter that its calls fail where there is no room for the type, and counts the lines that the
// sum takes.
func TestBrokenOnANarrowTerminal(t *testing.T) {
	l := newLive(t)
	for i := range 40 {
		l.do("hset", fmt.Sprintf("%s%02d", l.base, i), "rate", "many", "interval", 1000, "type", 0, "keepAliveTime", 0)
	}
	t.Setenv("LINES", "24")
	t.Setenv("COLUMNS", "40")
	out := l.ok("ls", "--match", l.base+"*")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	require.Regexp(t, ` - .* fails$`, lines[1])
	high := 0
	for _, line := range lines {
		high += linesOf(line, 40)
	}
	require.LessOrEqual(t, high, 23, out)
	require.Greater(t, high, 20, out)
}

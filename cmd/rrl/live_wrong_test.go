// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/stretchr/testify/require"
)

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
		"set-rate $well --type both --write":       {command.ExitUsage, `--type "both" is neither`},
		"set-rate $x --permits 1 --create --write": {command.ExitAbsent, "--permits and --interval set a rate afresh"},
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
	require.Regexp(t, "available 0 of 20; one permit takes (10m00|9m5[0-9])s", l.ok("cool-down", name, "--for", "10m", "--write"))
}

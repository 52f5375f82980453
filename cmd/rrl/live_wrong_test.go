// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestAUserNeedsAPassword shows that rrl does not look as the default user when it was told another one: go-redis leaves out
// a user that has no password.
func TestAUserNeedsAPassword(t *testing.T) {
	for _, c := range []struct{ raw, user, password string }{
		{"redis://h:1", "eve", ""}, {"redis://secret@h:1", "", ""}, {"redis+sentinel://h:1?master_name=m", "eve", ""}, {"redis+cluster://secret@h:1", "", ""},
	} {
		_, err := targetOf(c.raw, c.user, c.password)
		require.ErrorAs(t, err, new(command.UsageError), c.raw)
		require.ErrorContains(t, err, "a user is given without a password")
		require.NotContains(t, err.Error(), "secret", "somebody may have taken the place of the user for that of the password")
	}
	for _, raw := range []string{"redis://:p@h:1", "redis://u:p@h:1", "redis://h:1"} {
		_, err := targetOf(raw, "", "")
		require.NoError(t, err, raw)
	}
	redistest.Must(targetOf("redis://u@h:1", "", "p"))(t)
	code, _, errs := rrl(t, "demo", "--redis", "redis://secret@127.0.0.1:1")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, "a user is given without a password")
}

// TestAURLWithoutAScheme shows that who writes HOST:PORT is told what a URL looks like.
func TestAURLWithoutAScheme(t *testing.T) {
	for _, raw := range []string{"localhost:6379", "localhost", "http://h"} {
		code, _, errs := rrl(t, "ls", "--redis", raw)
		require.Equal(t, command.ExitUsage, code)
		require.Contains(t, errs, "it looks like redis://127.0.0.1:6379/0")
		require.Contains(t, errs, "(see rrl ls --help)", "which has the flag")
	}
	code, _, errs := rrl(t, "bogus")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, "(see rrl --help)")
}

// TestWhatCannotBeAsked runs the commands about a limiter that is not there, is malformed, or has clients.
func TestWhatCannotBeAsked(t *testing.T) {
	l := newLive(t)
	none, bad, users := l.base+"none", l.base+"bad", l.base+"users"
	require.NoError(t, l.rdb.HSet(t.Context(), bad, "rate", "abc", "interval", 1000, "type", 0).Err())
	l.limiter(users, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"peek", none, "1"}, command.ExitFailed, `there is no limiter "` + none + `" in `},
		{[]string{"watch", none}, command.ExitFailed, `there is no limiter "` + none + `" in `},
		{[]string{"heal", none, "--write"}, command.ExitFailed, `there is no limiter "` + none + `" in `},
		{[]string{"peek", bad, "1"}, command.ExitFailed, `rate is "abc" (rrl doctor ` + bad + " says what to do)"},
		{[]string{"watch", bad}, command.ExitFailed, `rate is "abc" (rrl doctor ` + bad + " says what to do)"},
		{[]string{"peek", users, "0", "--client", "client-1"}, command.ExitUsage, "0 permits; ask for 1 to 4294967295"},
		{[]string{"peek", users, "1"}, command.ExitUsage, "name one with --client (rrl inspect " + users + " --clients lists them)"},
		{[]string{"watch", users}, command.ExitUsage, "name one with --client (rrl inspect " + users + " --clients lists them)"},
		{[]string{"heal", users, "--write"}, command.ExitUsage, "name one with --client (rrl inspect " + users + " --clients lists them)"},
	} {
		code, _, errs := l.run(c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Contains(t, errs, c.want, "%v", c.args)
	}
	code, out, _ := l.run("peek", users, "1", "--client", "client-1")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, out, "because of the permits in use")
	require.Contains(t, l.ok("watch", users, "--count", "1", "--client", "client-1"), "3 members")
}

// TestDeleteTellsWhatIsLeft shows that the permits of other clients outlive their limiter, and that rrl says so.
func TestDeleteTellsWhatIsLeft(t *testing.T) {
	l := newLive(t)
	name := l.base + "users"
	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	require.Contains(t, l.ok("delete", name), "the permits of 1 client are left: rrl doctor "+name+" names their keys\nnothing was changed")
	require.NotContains(t, l.ok("delete", name, "--client", "client-1"), "left:")
	out := l.ok("delete", name, "--write")
	require.Contains(t, out, "the permits of 1 client are left: rrl doctor "+name+" names their keys\n")
	_, findings, _ := l.run("doctor", name, "--sample", "0")
	require.Contains(t, findings, "redis-cli unlink")

	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 12, Interval: time.Hour})
	require.NotContains(t, l.ok("delete", name, "--client", "client-1", "--write"), "left:")
	l.limiter(name, tenAMinute)
	require.NotContains(t, l.ok("delete", name, "--write"), "left:")
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestNeighboursAreLeftAlone runs the commands in a database of other programs: those that list limiters list none, and
// those that write end with an error and write nothing, under every name that looks like a limiter's.
func TestNeighboursAreLeftAlone(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t, "--appendonly", "yes", "--enable-debug-command", "local")
	l := &live{T: t, rdb: s.Client(t), url: "redis://" + s.Addr()}
	names := redistest.Neighbours(t, l.rdb)
	digest := func() string { return l.rdb.Do(t.Context(), "debug", "digest").Val().(string) }
	before := digest()
	require.Contains(t, l.ok("ls"), "There are no such limiters")
	require.Contains(t, l.ok("ls", "--remains"), "There are no such limiters")
	require.Contains(t, l.ok("doctor"), "healthy; 0 limiters looked at")
	for _, name := range names {
		commands := [][]string{{"heal"}, {"set-rate", "--permits", "5", "--interval", "1m", "--create"}, {"set-rate", "--permits", "5", "--interval", "1m", "--forget", "--create"},
			{"release", "--permits", "1"}, {"cool-down", "--for", "1h"}, {"lift"}, {"delete"}, {"delete", "--client", "admin"}, {"heal", "--client", "admin"}}
		if name == "near-queue" {
			commands = [][]string{{"heal"}, {"lift"}, {"delete"}, {"delete", "--client", "admin"}} // the name itself is free
		}
		if strings.HasPrefix(name, "user") && !strings.Contains(name, ":") {
			commands = slices.DeleteFunc(commands, func(c []string) bool { return !slices.Contains(c, "--client") }) // the name itself is free
		}
		for _, c := range commands {
			code, out, errs := l.run(append(append(slices.Clone(c), "--write"), "--", name)...)
			require.NotEqual(t, command.ExitOK, code, "%v %s%s", c, name, out)
			require.NotEmpty(t, errs)
			require.Equal(t, before, digest(), "%v %s %s", c, name, errs)
		}
	}
	_, _, errs := l.run("delete", "tenant-1", "--write")
	require.Contains(t, errs, `it looks like none of ours: nothing in "{tenant-1}:value" shows that it is a limiter's; nothing was changed`)
	require.Equal(t, "hello", l.rdb.Get(t.Context(), "{tenant-1}:value").Val())
}

// TestClientsBesideNeighbours runs the commands for a client of a PER_CLIENT limiter beside another program's key that has the name of those
// that all clients share. What reaches both is rejected, and the rest is done.
func TestClientsBesideNeighbours(t *testing.T) {
	l := newLive(t)
	name := l.base
	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: time.Hour})
	l.do("set", "{"+name+"}:value", "hello")
	l.do("set", "{"+name+"}:value:7", "12")
	for _, c := range []struct {
		args string
		ok   bool
	}{
		{"release $ --permits 1 --client client-1", true}, {"set-rate $ --permits 9", true}, {"cool-down $ --for 1h", true}, {"lift $", true},
		{"heal $ --client client-1", true}, {"heal $ --client 7", false}, {"set-rate $ --permits 8 --forget", false}, {"set-rate $ --type overall", false}, {"delete $", false},
	} {
		code, _, errs := l.run(append(strings.Fields(strings.Replace(c.args, "$", name, 1)), "--write")...)
		require.Equal(t, c.ok, code == command.ExitOK, "%s: %s", c.args, errs)
		if !c.ok {
			require.Contains(t, errs, "it looks like none of ours", c.args)
		}
		require.Equal(t, "hello", l.rdb.Get(t.Context(), "{"+name+"}:value").Val(), c.args)
		require.Equal(t, "12", l.rdb.Get(t.Context(), "{"+name+"}:value:7").Val(), c.args)
	}
}

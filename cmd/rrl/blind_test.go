// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// blind checks that the doctor says that it could not look, and why, and calls nothing healthy: in words, in JSON and by
// its exit code, within six seconds.
func (l *live) blind(want string, args ...string) {
	l.Helper()
	for _, format := range []string{"", "--json"} {
		began := time.Now()
		code, out, errs := l.run(append(append([]string{"doctor"}, args...), strings.Fields(format)...)...)
		took := time.Since(began)
		require.Contains(l, []int{exitNoAccess, command.ExitDown}, code, "%s%s", out, errs)
		redistest.Prompt(l, took, 6*time.Second, "rrl doctor %v", args)
		if format == "" {
			require.Contains(l, out+errs, want)
			for line := range strings.Lines(out) {
				require.False(l, strings.HasPrefix(line, "healthy"), out)
			}
			continue
		}
		r := values[map[string]any](l, out)[0]
		require.NotContains(l, r, "healthy")
		require.Contains(l, fmt.Sprint(r["skipped"], r["error"]), want)
	}
}

// fifteen are the names of limiters.
func fifteen() (names []string) {
	for i := range 15 {
		names = append(names, fmt.Sprint("limiter", i))
	}
	return names
}

func TestDoctorOfAClusterThatIsNotWhole(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	cluster := redistest.StartCluster(t)
	rdb, nodes := cluster.Client(t), cluster.Nodes()
	for _, n := range nodes {
		require.NoError(t, n.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	l := &live{T: t, rdb: rdb, url: "redis://" + nodes[0].Addr()}
	l.hash(fifteen()...)
	require.Contains(t, l.ok("doctor"), "healthy; 15 limiters looked at")
	on := func(s *redistest.Server) string {
		names := fifteen()
		return names[slices.IndexFunc(names, func(name string) bool {
			return redistest.Must(rdb.MasterForKey(t.Context(), name))(t).Options().Addr == s.Addr()
		})]
	}
	there, here := on(nodes[2]), on(nodes[0])

	// A node with another password.
	other := nodes[2].Client(t)
	require.NoError(t, other.ConfigSet(t.Context(), "requirepass", "secret").Err())
	l.blind("NOAUTH")
	require.NoError(t, other.Do(t.Context(), "auth", "secret").Err())
	require.NoError(t, other.ConfigSet(t.Context(), "requirepass", "").Err())
	l.ok("doctor")

	nodes[2].Pause()
	for _, url := range []string{"redis://" + nodes[0].Addr(), "redis+cluster://" + nodes[0].Addr(),
		"redis+cluster://" + nodes[2].Addr() + "?addr=" + nodes[0].Addr() + "&addr=" + nodes[1].Addr()} {
		l.url = url
		l.blind("no reply within 1.5s")
	}
	l.blind("no reply within 1.5s", there, "--sample", "0")
	_, out, _ := l.run("doctor", here, "--sample", "0", "--json")
	require.NotContains(t, out, there)
	require.Contains(t, l.ends(command.ExitFailed, "the list is not complete", "ls"), here)
	l.url = "redis://" + nodes[2].Addr()
	l.blind("it did not reply in time")
	nodes[2].Resume()

	nodes[2].Kill()
	l.url = "redis://" + nodes[0].Addr()
	l.blind("connection refused")
}

// TestTopGoesOnBesideWhatIsHidden looks at three limiters, one of which the ACL hides, from the start and while it looks. What record has
// kept of them says so, too.
func TestTopGoesOnBesideWhatIsHidden(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	l := &live{T: t, rdb: s.Client(t), url: "redis://eve:secret@" + s.Addr()}
	l.hash("a", "b", "c")
	show := func(names ...any) {
		l.do(append([]any{"acl", "setuser", "eve", "reset", "on", ">secret", "+@all", "~{a*", "~{b*", "~{c*"}, names...)...)
	}
	show("~a", "~b")
	out := l.ok("top", "--count", "1")
	require.Regexp(t, `2 of 2 limiters; not all can be read: \S+: "c": NOPERM`, out)
	file := filepath.Join(t.TempDir(), "looks")
	l.ok("record", file, "--every", "100ms", "--for", "1s")
	require.Regexp(t, `; not all can be read: \S+: "c": NOPERM`, l.ok("replay", file))

	first := &top{Survey: survey.New(s.Client(t, func(o *redis.Options) { o.Username, o.Password = "eve", "secret" })), by: view.Orders["harm"], most: 10, rows: 10, out: io.Discard}
	require.Len(t, redistest.Must(first.look(t.Context()))(t), 2)
	show("~a")
	rows := redistest.Must(first.look(t.Context()))(t)
	require.Len(t, rows, 2)
	require.Equal(t, "hidden", rows[1].Summary().Kind)
	require.Contains(t, rows[1].Headline().String(), "it cannot be read: NOPERM")
	require.NoError(t, first.show(rows, false))
}

// TestDoctorOfWhatItMayNotRead looks as a user who may read some of the keys only.
func TestDoctorOfWhatItMayNotRead(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	s := redistest.Start(t, "--appendonly", "yes")
	l := &live{T: t, rdb: s.Client(t), url: "redis://eve:secret@" + s.Addr()}
	l.hash("limiter1", "limiter2", "limiter3")
	l.stuck("other")
	l.do("set", "{left}:value", 0)
	user := func(rules ...any) {
		l.do(append([]any{"acl", "setuser", "eve", "reset", "on", ">secret", "+@all"}, rules...)...)
	}
	user("~limiter*", "~{limiter*")
	l.blind("NOPERM")
	require.Contains(t, l.ok("doctor", "--match", "limiter*"), "healthy; 3 limiters looked at")
	user("~limiter*", "~other") // without the keys of state
	l.blind("NOPERM")
	l.blind("NOPERM", "--match", "limiter*")
	l.blind("NOPERM", "limiter1")
	_, _, errs := l.run("ls")
	require.Contains(t, errs, "cannot read 4 names")
	user("~*", "-scan")
	l.blind("NOPERM")
	user("~*", "-info")
	l.blind("NOPERM")

	// What managed services reject says nothing about limiters.
	l.do("del", "{other}:value", "{left}:value")
	user("~*", "-config", "-slowlog", "-object", "-memory")
	require.Contains(t, l.ok("doctor"), "healthy; 4 limiters looked at")
	l.blind("looked at only the first 2 limiters", "--max", "2")
}

// TestNeighboursAreLeftAlone runs the commands in a database of other programs: those that list limiters list none, and
// those that write end with an error and write nothing, under every name that looks like a limiter's.
func TestNeighboursAreLeftAlone(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	s := redistest.Start(t, "--appendonly", "yes", "--enable-debug-command", "local")
	l := &live{T: t, rdb: s.Client(t), url: "redis://" + s.Addr()}
	names := redistest.Neighbours(t, l.rdb)
	digest := func() string { return l.rdb.Do(t.Context(), "debug", "digest").Val().(string) }
	before := digest()
	require.Contains(t, l.ok("ls"), "There are no limiters")
	require.Contains(t, l.ok("ls", "--remains"), "There are no limiters")
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
		{"set-rate $ --rate 8/h", true}, {"set-rate $ --rate OVERALL_8/h_gap_1s", false},
	} {
		args := strings.Fields(strings.Replace(c.args, "$", name, 1))
		for i := range args[2:] { // an argument with spaces
			args[2+i] = strings.ReplaceAll(args[2+i], "_", " ")
		}
		code, _, errs := l.run(append(args, "--write")...)
		require.Equal(t, c.ok, code == command.ExitOK, "%s: %s", c.args, errs)
		if !c.ok {
			require.Contains(t, errs, "it looks like none of ours", c.args)
		}
		require.Equal(t, "hello", l.rdb.Get(t.Context(), "{"+name+"}:value").Val(), c.args)
		require.Equal(t, "12", l.rdb.Get(t.Context(), "{"+name+"}:value:7").Val(), c.args)
	}
}

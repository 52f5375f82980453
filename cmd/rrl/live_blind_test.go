// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
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
		require.Equal(l, exitNoAccess, code, "%s%s", out, errs)
		redistest.Measured(l, took < 6*time.Second, "it took %v", took)
		if format == "" {
			require.Contains(l, out+errs, want)
			for line := range strings.Lines(out) {
				require.False(l, strings.HasPrefix(line, "healthy"), out)
			}
			continue
		}
		var r map[string]any
		require.NoError(l, json.Unmarshal([]byte(out), &r), out)
		require.NotContains(l, r, "healthy")
		require.Contains(l, fmt.Sprint(r["skipped"]), want)
	}
}

func limiters(t *testing.T, rdb redis.UniversalClient, n int) {
	for i := range n {
		require.NoError(t, rdb.HSet(t.Context(), fmt.Sprint("limiter", i), "rate", 5, "interval", 1000, "type", 0).Err())
	}
}

func TestDoctorOfAStoppedServer(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	s := redistest.Start(t, "--appendonly", "yes")
	limiters(t, s.Client(t), 3)
	l := &live{T: t, url: "redis://" + s.Addr()}
	require.Contains(t, l.ok("doctor"), "healthy; 3 limiters looked at")
	s.Pause()
	defer s.Resume()
	l.blind("it did not reply in time")
	l.blind("it did not reply in time", "limiter1")
}

func TestDoctorOfAClusterThatIsNotWhole(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	limiters(t, rdb, 15)
	nodes := cluster.Nodes()
	for _, n := range nodes {
		require.NoError(t, n.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	l := &live{T: t, url: "redis://" + nodes[0].Addr()}
	require.Contains(t, l.ok("doctor"), "healthy; 15 limiters looked at")
	on := func(s *redistest.Server) string {
		for i := range 15 {
			name := fmt.Sprint("limiter", i)
			c := redistest.Must(rdb.MasterForKey(t.Context(), name))(t)
			if c.Options().Addr == s.Addr() {
				return name
			}
		}
		panic("it has none")
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
	code, out, errs := l.run("ls")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "the list is not complete")
	require.Contains(t, out, here)
	l.url = "redis://" + nodes[2].Addr()
	l.blind("it did not reply in time")
	nodes[2].Resume()

	nodes[2].Kill()
	l.url = "redis://" + nodes[0].Addr()
	l.blind("connection refused")
}

// TestDoctorOfWhatItMayNotRead looks as a user who may read some of the keys only.
func TestDoctorOfWhatItMayNotRead(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	s := redistest.Start(t, "--appendonly", "yes")
	rdb := s.Client(t)
	limiters(t, rdb, 3)
	require.NoError(t, rdb.HSet(t.Context(), "other", "rate", 5, "interval", 1000, "type", 0).Err())
	require.NoError(t, rdb.Set(t.Context(), "{other}:value", 0, 0).Err())
	require.NoError(t, rdb.Set(t.Context(), "{left}:value", 0, 0).Err())
	l := &live{T: t, url: "redis://eve:secret@" + s.Addr()}
	user := func(rules ...any) {
		require.NoError(t, rdb.Do(t.Context(), append([]any{"acl", "setuser", "eve", "reset", "on", ">secret", "+@all"}, rules...)...).Err())
	}
	user("~limiter*", "~{limiter*")
	l.blind("NOPERM")
	require.Contains(t, l.ok("doctor", "--match", "limiter*"), "healthy; 3 limiters looked at")
	user("~limiter*", "~other") // without the keys of state
	l.blind("NOPERM")
	l.blind("NOPERM", "--match", "limiter*")
	l.blind("NOPERM", "limiter1")
	code, _, errs := l.run("ls")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "4 names cannot be read")
	user("~*", "-scan")
	l.blind("NOPERM")
	user("~*", "-info")
	l.blind("NOPERM")

	// What managed services reject says nothing about limiters.
	require.NoError(t, rdb.Del(t.Context(), "{other}:value", "{left}:value").Err())
	user("~*", "-config", "-slowlog", "-object", "-memory")
	require.Contains(t, l.ok("doctor"), "healthy; 4 limiters looked at")
	l.blind("only the first 2 limiters were looked at", "--max", "2")
}

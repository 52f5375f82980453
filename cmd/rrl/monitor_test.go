// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// readsOnly are the commands that those of rrl which look may send. Each only reads, or is about the connection.
var readsOnly = strings.Fields(`ping hello info time scan type hlen hgetall hmget get zcard zcount zrange zrevrange pttl multi exec discard
	memory|usage config|get slowlog|get object|freq client|list acl|dryrun`)

var monitored = regexp.MustCompile(`^\S+ \[\d+ ([^\]]+)\] (.*)$`)

// sent runs f, and returns what a server was sent meanwhile by others than the client admin, as MONITOR shows it. A
// subcommand is named as an ACL names it. MONITOR does not show commands of administration, such as CONFIG; the test of the
// ACL says that of these rrl needs only those that read.
func sent(t *testing.T, admin *redis.Client, f func()) (commands []string) {
	t.Helper()
	conn := redistest.Must(net.Dial("tcp", admin.Options().Addr))(t)
	defer conn.Close()
	redistest.Must(conn.Write([]byte("MONITOR\r\n")))(t)
	lines := bufio.NewReader(conn)
	require.Equal(t, "+OK\r\n", redistest.Must(lines.ReadString('\n'))(t))
	f()
	const end = "that was all"
	require.NoError(t, admin.Echo(t.Context(), end).Err())
	for {
		line := redistest.Must(lines.ReadString('\n'))(t)
		if strings.Contains(line, end) {
			break
		}
		commands = append(commands, strings.TrimSpace(strings.TrimPrefix(line, "+")))
	}
	for i, line := range commands {
		m := monitored.FindStringSubmatch(line)
		require.NotNil(t, m, line)
		if m[1] == "lua" {
			commands[i] = "lua " + m[2]
			continue
		}
		words := strings.Fields(strings.ReplaceAll(strings.ToLower(m[2]), `"`, ""))
		commands[i] = words[0]
		if slices.Contains([]string{"memory", "config", "slowlog", "object", "acl", "client", "cluster", "script"}, words[0]) {
			commands[i] += "|" + words[1]
		}
	}
	return commands
}

var readOnlyACL = regexp.MustCompile(`(?s)<!-- acl -->\s*(\S.*?)\n\n`)

// TestLookingOnlyReads runs every command of rrl that looks, and those that write without --write, on healthy and on broken
// limiters of a cluster and of one server, as a user that may do nothing except what docs/rrl.md lists. The server has nothing to
// save afterwards and, as MONITOR shows, was sent only commands that read, and no script.
func TestLookingOnlyReads(t *testing.T) {
	redistest.NeedReal(t)
	m := readOnlyACL.FindSubmatch(redistest.Must(os.ReadFile("../../docs/rrl.md"))(t))
	require.NotNil(t, m)
	acl := []any{"acl", "setuser", "eve", "on", ">secret", "%R~*", "-@all"}
	for _, rule := range strings.Fields(string(m[1])) {
		acl = append(acl, rule)
	}
	cluster, alone := redistest.StartCluster(t), redistest.Start(t, "--appendonly", "yes")
	t.Setenv("REDIS_PASSWORD", "secret")
	for _, nodes := range [][]*redistest.Server{cluster.Nodes(), {alone}} {
		l := &live{T: t, rdb: cluster.Client(t), url: "redis://eve@" + nodes[0].Addr(), base: "base"}
		var admins []*redis.Client
		for _, n := range nodes {
			admins = append(admins, n.Client(t))
		}
		if len(nodes) == 1 {
			l.rdb = admins[0]
		}
		l.limiter("a", tenAMinute)
		l.limiter("b", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
		l.stuck("stuck")
		l.limiter("gone", tenAMinute)
		l.do("del", "gone")
		l.grants("a", 1200) // more than one look reads
		for _, admin := range admins {
			require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", "on", "nopass", "~*", "+@all").Err())
			require.NoError(t, admin.Do(t.Context(), acl...).Err())
		}
		dirty := func() (s string) {
			for _, admin := range admins {
				s += regexp.MustCompile(`rdb_changes_since_last_save:\d+`).FindString(admin.Info(t.Context(), "persistence").Val())
			}
			return s
		}
		before := dirty()
		rules := filepath.Join(t.TempDir(), "rules.json")
		require.NoError(t, os.WriteFile(rules, []byte(l.ok("export", "--match", "a")), 0o600))
		all := map[string]bool{}
		for _, args := range []string{"ls --remains", "ls --waiting --json", "inspect a --members", "inspect b --clients", "peek a 1", "top --count 2 --every 100ms",
			"watch a --count 2 --every 100ms", "export", "diff RULES --others", "doctor --rules RULES --app-user app", "doctor a --app-user app", "doctor b", "doctor stuck", "doctor gone",
			"heal stuck", "set-rate a --permits 3", "release a --permits 1", "cool-down a --for 1h", "delete a", "set-rate b --permits 3"} {
			look := func() {
				_, out, errs := l.run(strings.Fields(strings.Replace(args, "RULES", rules, 1))...)
				require.Empty(t, errs, args)
				require.NotEmpty(t, out, args)
				require.NotContains(t, out, "NOPERM", args)
				require.NotContains(t, out, "not looked at", args)
			}
			if len(nodes) > 1 {
				look()
				continue
			}
			for _, c := range sent(t, l.rdb.(*redis.Client), look) {
				require.Contains(t, readsOnly, c, "rrl %s", args)
				all[c] = true
			}
		}
		require.Equal(t, before, dirty())
		for _, c := range strings.Fields("scan multi zrange object|freq") {
			require.True(t, all[c] || len(nodes) > 1, "%s was not seen; the test would miss others as well", c)
		}

		// With less, the error says which command is rejected and where to look.
		for _, admin := range admins {
			require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "eve", "-scan").Err())
		}
		require.Regexp(t, `scan.*docs/rrl\.md`, l.ends(command.ExitFailed, "", "ls"))
	}
	// The test sees what writes.
	l := &live{T: t, rdb: alone.Client(t), url: "redis://default:secret@" + alone.Addr()}
	commands := sent(t, alone.Client(t), func() { l.ok("heal", "stuck", "--write") })
	require.Contains(t, fmt.Sprint(commands), "evalsha")
	require.Contains(t, fmt.Sprint(commands), `lua "INCRBY"`)
}

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
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// readsOnly are the commands that those of rrl which look may send. Each only reads, or is about the connection.
var readsOnly = strings.Fields(`ping hello info time scan type hlen hgetall hmget get zcard zcount zrange zrevrange pttl multi exec discard
	watch unwatch memory|usage config|get slowlog|get object|freq acl|dryrun`)

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

// TestLookingSendsNoWrites runs every command of rrl that looks, on a healthy Redis and on one with limiters that are
// broken, and reads by MONITOR what was sent: only commands that read, and no script.
func TestLookingSendsNoWrites(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t, "--appendonly", "yes")
	admin := s.Client(t)
	l := &live{T: t, rdb: admin, url: "redis://" + s.Addr(), base: "base"}
	l.limiter("a", tenAMinute)
	l.limiter("b", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 6, Interval: time.Hour})
	require.NoError(t, admin.HSet(t.Context(), "stuck", "rate", 5, "interval", 1000, "type", 0).Err())
	require.NoError(t, admin.Set(t.Context(), "{stuck}:value", 0, 0).Err())
	require.NoError(t, admin.Set(t.Context(), "{gone}:value", 0, 0).Err())
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", "on", "nopass", "~*", "+get").Err())
	rules := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(l.ok("export", "--match", "a")), 0o600))
	all := map[string]bool{}
	for _, args := range [][]string{{"ls", "--remains"}, {"ls", "--waiting", "--json"}, {"inspect", "a", "--members"}, {"inspect", "b", "--clients"},
		{"peek", "a", "1"}, {"top", "--count", "2", "--every", "100ms"}, {"watch", "a", "--count", "2", "--every", "100ms"}, {"export"},
		{"diff", rules, "--others"}, {"doctor", "--rules", rules, "--app-user", "app"}, {"doctor", "a"}, {"doctor", "b"}, {"doctor", "stuck"}, {"doctor", "gone"},
		// What writes does not do so without --write.
		{"heal", "stuck"}, {"set-rate", "a", "--permits", "3"}, {"release", "a", "--permits", "1"}, {"cool-down", "a", "--for", "1h"}, {"lift", "a"}, {"delete", "a"}} {
		commands := sent(t, admin, func() {
			_, out, _ := l.run(args...)
			require.NotEmpty(t, out, "%v", args)
		})
		require.NotEmpty(t, commands, "%v", args)
		for _, c := range commands {
			require.Contains(t, readsOnly, c, "rrl %s", strings.Join(args, " "))
			all[c] = true
		}
	}
	for _, c := range []string{"scan", "multi", "zrange", "object|freq"} {
		require.True(t, all[c], "%s was not seen; the test would miss others as well", c)
	}
	// The test sees what writes.
	commands := sent(t, admin, func() { l.ok("heal", "stuck", "--write") })
	require.Contains(t, fmt.Sprint(commands), "evalsha")
	require.Contains(t, fmt.Sprint(commands), `lua "INCRBY"`)
}

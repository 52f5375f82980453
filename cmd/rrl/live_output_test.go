// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/stretchr/testify/require"
)

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

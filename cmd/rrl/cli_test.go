// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"runtime"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func rrl(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"rrl"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dance"}, `no command "dance"`},
		{[]string{"--fast"}, "fast"},
		{[]string{"demo", "--fast"}, "fast"},
		{[]string{"demo", "now"}, `demo takes no argument "now"`},
		{[]string{"version", "2"}, `version takes no argument "2"`},
		{[]string{"demo", "--addr", "8080"}, "--addr: address 8080: missing port"},
		{[]string{"demo", "--redis", "http://x"}, "invalid Redis URL: redis: invalid URL scheme: http"},
	} {
		code, out, errs := rrl(t, c.args...)
		require.Equal(t, command.ExitUsage, code, "%v", c.args)
		require.Empty(t, out, "%v", c.args)
		require.Regexp(t, `^rrl: .* \(see rrl( [a-z-]+)? --help\)\n$`, errs)
		require.Contains(t, errs, c.want)
	}
}

// TestBadURLKeepsItsPassword checks that an error does not repeat a URL that cannot be parsed, because the URL may
// hold a password.
func TestBadURLKeepsItsPassword(t *testing.T) {
	code, _, errs := rrl(t, "demo", "--redis", "redis://user:secret@host:port/0")
	require.Equal(t, command.ExitUsage, code)
	require.NotContains(t, errs, "secret")
	require.Contains(t, errs, "invalid port")
}

func TestRedisAway(t *testing.T) {
	ln := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	code, out, errs := rrl(t, "demo", "--redis", "redis://user:secret@"+addr)
	require.Equal(t, command.ExitFailed, code)
	require.Empty(t, out)
	require.Regexp(t, `^rrl: the Redis at \S+ does not answer: .*refused\n$`, errs)
	require.NotContains(t, errs, "secret")
	t.Setenv("REDIS_URL", "redis://"+addr)
	var buf bytes.Buffer
	require.Equal(t, command.ExitFailed, run(t.Context(), []string{"rrl", "demo"}, &buf, &buf), "the environment is asked too")
	require.Contains(t, buf.String(), addr)
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		code, out, errs := rrl(t, args...)
		require.Equal(t, command.ExitOK, code)
		require.Contains(t, out, "demo")
		require.Contains(t, out, "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")
		require.Empty(t, errs)
	}
	code, out, _ := rrl(t, "demo", "--help")
	require.Equal(t, command.ExitOK, code)
	for _, want := range []string{"--redis", "REDIS_URL", "--addr", "--serve", "--json"} {
		require.Contains(t, out, want)
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := rrl(t, "version")
	require.Equal(t, command.ExitOK, code)
	require.Regexp(t, `^rrl \S.* `+runtime.Version()+` `+runtime.GOOS+`/`+runtime.GOARCH+`\nratelimiter \S+\ngo-redis v9\.\S+\n`, out)
	require.Empty(t, errs)
}

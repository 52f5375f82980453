// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A place is a Redis in which something is found, and how it is reached.
type place struct {
	admin redis.UniversalClient
	flags []string // of rrl doctor
	note  string   // what the report has to say of passwords
	env   string   // what the note asks for
}

// sentinelOf starts a sentinel of a master, and returns its address.
func sentinelOf(t *testing.T, master *redistest.Server) string {
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	own := fmt.Sprint(redistest.FreePort())
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\nsentinel monitor mymaster %s %s 1\n", own, host, port), 0o600))
	cmd := exec.Command("redis-server", config, "--sentinel")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr := "127.0.0.1:" + own
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return addr
}

// TestCommandsReachTheirRedis pastes each command that the doctor prints into a shell whose REDIS_URL, REDIS_USER and default
// names another Redis, in which a limiter of the same name has the same defect. The commands mend the limiter that was found,
// whatever kind of server it is on, and leave the other one alone. None has a password.
func TestCommandsReachTheirRedis(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "ACL and TLS")
	redistest.Repeats(t)
	if redistest.Lane() == "redis" {
		_, err := exec.LookPath("redis-cli")
		require.NoError(t, err, "redis-cli comes with redis-server")
	}
	const secret = "sec ret"
	dir := redistest.Must(os.MkdirTemp("", "rrl"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	rrl := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asProgram, doctor.ShellQuote(redistest.Must(os.Executable())(t)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rrl"), []byte(rrl), 0o700))
	if redistest.Lane() == "valkey" {
		require.NoError(t, os.Symlink(redistest.Must(exec.LookPath("valkey-cli"))(t), filepath.Join(dir, "redis-cli")))
	}
	socket := filepath.Join(dir, "a socket")
	ca := redistest.NewCertificate(t, nil)
	of, client := redistest.NewCertificate(t, ca), redistest.NewCertificate(t, ca)
	tls := fmt.Sprint(redistest.FreePort())
	server := redistest.Start(t, "--unixsocket", socket, "--tls-port", tls, "--tls-cert-file", of.CertFile, "--tls-key-file", of.KeyFile, "--tls-ca-cert-file", ca.CertFile)
	other := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	admin := func(db int) *redis.Client { return server.Client(t, func(o *redis.Options) { o.DB = db }) }
	require.NoError(t, admin(0).Do(t.Context(), "acl", "setuser", "eve", "on", ">"+secret, "~*", "+@all").Err())
	auth := doctor.PasswordVariable + "=" + secret
	for kind, p := range map[string]place{
		"a server":        {admin(0), []string{"--redis", "redis://" + server.Addr()}, "", ""},
		"a database":      {admin(3), []string{"--redis", "redis://" + server.Addr() + "/3"}, "", ""},
		"a user":          {admin(4), []string{"--redis", "redis://eve:sec%20ret@" + server.Addr() + "/4"}, `the user "eve"`, auth},
		"a Unix socket":   {admin(5), []string{"--redis", "unix://eve:sec%20ret@" + socket + "?db=5"}, `the user "eve"`, auth},
		"TLS":             {admin(6), []string{"--redis", "rediss://127.0.0.1:" + tls + "/6", "--tls-ca", ca.CertFile, "--tls-cert", client.CertFile, "--tls-key", client.KeyFile}, "", ""},
		"a cluster":       {cluster.Client(t), []string{"--redis", "redis://" + cluster.Nodes()[1].Addr()}, "", ""},
		"behind sentinel": {admin(7), []string{"--redis", "redis+sentinel://" + sentinelOf(t, server) + "/7?master_name=mymaster"}, "", ""},
	} {
		for _, shell := range []string{"sh", "bash", "zsh", "fish"} {
			path, err := exec.LookPath(shell)
			if err != nil || shell != "bash" && kind != "a user" {
				continue
			}
			t.Run(kind+" "+shell, func(t *testing.T) {
				p.paste(t, path, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "GOCOVERDIR=" + dir, "LC_ALL=C.UTF-8", "REDIS_USER=nobody",
					"REDIS_URL=redis://" + other.Addr() + "/" + fmt.Sprint(7)}, other.Client(t, func(o *redis.Options) { o.DB = 7 }), secret)
			})
		}
	}
}

// harms are the commands that make limiters which are not healthy.
var harms = map[string][][]any{
	"-stuck it's \\ $x": {{"hset", "NAME", "rate", 5, "interval", 3_600_000, "type", 0, "keepAliveTime", 0}, {"set", "{NAME}:value", 0}},
	"two {commands}\\":  {{"hset", "NAME", "rate", 5, "interval", 300, "type", 0, "keepAliveTime", 0}, {"rpush", "NAME:value", "x"}},
	"of redis-cli!":     {{"hset", "NAME", "rate", 5, "interval", 3_600_000, "type", 7, "keepAliveTime", 0}, {"set", "{NAME}:value", 5}},
	"left; echo \"a`b`\"": {{"hset", "NAME", "rate", 5, "interval", 3_600_000, "type", 1, "keepAliveTime", 0}, {"set", "{NAME}:value", 3},
		{"zadd", "{NAME}:permits", 1_700_000_000_000, "\x10abcdefghabcdefgh\x02\x00\x00\x00"}},
}

// paste harms limiters in both Redis, and follows all that the doctor of one of them says.
func (p place) paste(t *testing.T, shell string, env []string, other redis.UniversalClient, secret string) {
	ctx := t.Context()
	if p.env != "" {
		env = append(env, p.env)
	}
	for name, commands := range harms {
		for _, rdb := range []redis.UniversalClient{p.admin, other} {
			for _, args := range commands {
				line := append([]any{}, args...)
				line[1] = strings.ReplaceAll(fmt.Sprint(args[1]), "NAME", name)
				require.NoError(t, rdb.Do(ctx, line...).Err(), name)
			}
		}
		keys := redistest.Must(other.Keys(ctx, "*").Result())(t)
		dump := func() (list []string) {
			for _, k := range keys {
				list = append(list, other.Dump(ctx, k).Val())
			}
			return list
		}
		before, pasted := dump(), 0
		for round := 0; ; round++ {
			l := &live{T: t, url: "redis://nowhere:1"}
			_, out, errs := l.run(append(append([]string{"doctor", "--json", "--sample", "0"}, p.flags...), "--", name)...)
			require.NotContains(t, out+errs, secret)
			r := values[struct {
				Healthy  *bool
				Note     string
				Findings []struct {
					Check, Severity, Fix string
					Commands             []string
					Then, Alternatives   []struct {
						AfterMS  int64 `json:"after_ms"`
						Commands []string
					}
				}
			}](t, out)[0]
			if r.Healthy != nil && *r.Healthy {
				break
			}
			require.Less(t, round, 3, out)
			require.Contains(t, r.Note, p.note)
			for _, f := range r.Findings {
				if f.Severity == "info" {
					continue
				}
				commands := f.Commands
				for i, s := range append(f.Then, f.Alternatives...) {
					if i > len(f.Then) {
						break // one of them at most
					}
					require.Less(t, s.AfterMS, int64(1000))
					time.Sleep(time.Duration(s.AfterMS) * time.Millisecond)
					commands = append(commands, s.Commands...)
				}
				require.NotEmpty(t, commands, "%+v", f)
				for _, c := range commands {
					require.Contains(t, f.Fix, c)
					cmd := exec.Command(shell)
					cmd.Env, cmd.Dir = env, t.TempDir()
					cmd.Stdin = strings.NewReader(strings.NewReplacer("--permits N", "--permits 5", "--interval D", "--interval 1h").Replace(c) + "\n")
					got, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s\n%s", c, got)
					require.NotRegexp(t, "(?i)error|warning|failed|denied", string(got), c)
					pasted++
				}
			}
		}
		require.Positive(t, pasted, name)
		require.Equal(t, before, dump(), "the other Redis")
		require.ElementsMatch(t, keys, redistest.Must(other.Keys(ctx, "*").Result())(t))
	}
	for name := range harms {
		for _, k := range []string{name, "{" + name + "}:value", "{" + name + "}:permits", name + ":value", name + ":permits", name + ":moved-string", "{" + name + "}:value:c"} {
			p.admin.Del(ctx, k)
			other.Del(ctx, k)
		}
	}
}

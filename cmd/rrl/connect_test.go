// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestTargets checks what a URL, a user and a password lead to. go-redis leaves out a user that has no password, so rrl rejects
// that: it does not look as the default user when it was told another one.
func TestTargets(t *testing.T) {
	for _, c := range []struct{ raw, user, password, where, as, err string }{
		{raw: "redis://h:1/2", where: "h:1, database 2"},
		{raw: "rediss://h:1", where: "h:1, database 0"},
		{raw: "unix:///tmp/s?db=3", where: "/tmp/s, database 3"},
		{raw: "redis+sentinel://h:1/2?master_name=m", where: `the master "m" of the sentinel h:1, database 2`},
		{raw: "rediss+cluster://h:1?addr=h:2", where: "the cluster of h:1, h:2"},
		{raw: "redis://:p@h:1", as: " p"},
		{raw: "redis://u:p@h:1", as: "u p"},
		{raw: "redis://u@h:1", password: "p", as: "u p"},
		{raw: "redis://a:b@h:1", user: "eve", password: "secret", as: "eve secret"},
		{raw: "redis+sentinel://a:b@h:1?master_name=m", user: "eve", password: "secret", as: "eve secret"},
		{raw: "redis+cluster://a:b@h:1", user: "eve", password: "secret", as: "eve secret"},

		{raw: "redis://h:1", user: "eve", err: "a user is given without a password"},
		{raw: "redis://secret@h:1", err: "a user is given without a password"}, // somebody took the place of the user for that of the password
		{raw: "redis+sentinel://h:1?master_name=m", user: "eve", err: "a user is given without a password"},
		{raw: "redis+cluster://secret@h:1", err: "a user is given without a password"},
		{raw: "http://h", err: "invalid URL scheme"},
		{raw: "redis+ring://h:1", err: `the scheme "redis+ring" is not known`},
		{raw: "redis+sentinel://h:1", err: "there is no master_name"},
		{raw: "redis+cluster://h:1/1", err: "leave /1 out of the URL"},
		{raw: "redis://h:99999", err: "a port is a number from 1 to 65535"},
		{raw: "redis://u:99/secret@h:1", err: "it cannot be parsed; what a URL cannot have in a password"},
		{raw: "redis://u:99?secret@h:1", err: "it cannot be parsed; what a URL cannot have in a password"},
		{raw: "redis://u:99#secret@h:1", err: "it cannot be parsed; what a URL cannot have in a password"},
		{raw: "redis+sentinel://u:99/secret@h:1", err: "it cannot be parsed; what a URL cannot have in a password"},
		{raw: "redis+cluster://h:1?addr=i:0", err: "a port is a number from 1 to 65535"},
		{raw: "redis+sentinel://h:70000?master_name=m", err: "a port is a number from 1 to 65535"},
		{raw: "127.0.0.1:6379", err: "it has to begin with redis:// or another scheme"},
		{raw: "redis://u:secret@h:port", err: "it cannot be parsed"},
		{raw: "redis+cluster://u:secret/2@h:1", err: "it cannot be parsed; what a URL cannot have in a password"},
	} {
		g, err := targetOf(c.raw, c.user, c.password)
		if c.err != "" {
			require.Equal(t, command.ExitUsage, command.Code(err), c.raw)
			require.ErrorContains(t, err, c.err)
			require.NotContains(t, err.Error(), "secret")
			continue
		}
		require.NoError(t, err, c.raw)
		require.Contains(t, g.where, c.where)
		u, p := g.Login()
		require.Equal(t, cmp.Or(c.as, " "), *u+" "+*p, c.raw)
		require.NoError(t, g.client().Close())
	}
}

// TestPasswords connects as a user of an ACL, with the password from each of its sources.
func TestPasswords(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).Do(t.Context(), "acl", "setuser", "eve", "on", ">sec ret", "~*", "+@all").Err())
	require.NoError(t, s.Client(t).ConfigSet(t.Context(), "requirepass", "other").Err())
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("\xef\xbb\xbfsec ret \r\nmore\n"), 0o600))
	l := &live{T: t, url: "redis://" + s.Addr()}
	l.ok("ls", "--user", "eve", "--password-file", file)
	for _, name := range []string{"REDIS_PASSWORD", "REDISCLI_AUTH"} {
		t.Setenv(name, "sec ret")
		l.ok("ls", "--user", "eve")
		t.Setenv("REDIS_USER", "eve")
		l.ok("ls")
		t.Setenv("REDIS_USER", "")
		t.Setenv(name, "")
	}
	l.ends(command.ExitDown, "it wants a password: set REDIS_PASSWORD", "ls")
	t.Setenv("REDIS_PASSWORD", "wrong")
	require.NotContains(t, l.ends(command.ExitDown, "the user or the password is wrong", "ls", "--user", "eve"), "wrong:")
	l.ends(command.ExitUsage, "--password-file", "ls", "--password-file", file+"x")
}

func TestUnixSocket(t *testing.T) {
	redistest.NeedReal(t)
	dir := redistest.Must(os.MkdirTemp("", "rrl"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	redistest.Start(t, "--unixsocket", path)
	l := &live{T: t, url: "unix://" + path}
	require.Contains(t, l.ok("ls"), "There are no limiters in "+path)
}

// A node of a cluster is enough to see all of it, whether the URL says that it is one or not.
func TestClusterIsFound(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	for _, scheme := range []string{"redis", "redis+cluster"} {
		l := &live{T: t, rdb: cluster.Client(t), url: scheme + "://" + cluster.Nodes()[1].Addr()}
		l.hash(fifteen()...)
		require.Contains(t, l.ok("ls"), "\n15 limiters in the cluster of ")
		l.ok("inspect", "limiter3")
		l.ok("doctor", "limiter3", "--sample", "0")
		l.url += "/1"
		l.ends(command.ExitUsage, "database 0 only: leave /1 out of the URL", "ls")
		l.url = strings.TrimSuffix(l.url, "1") + "0"
		l.ok("inspect", "limiter3")
	}
}

func TestSentinel(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	master := redistest.Start(t)
	own := sentinelOf(t, master)
	l := &live{T: t, rdb: master.Client(t), url: "redis+sentinel://" + own + "/0?master_name=mymaster"}
	l.hash("limiter")
	l.ok("peek", "limiter", "5")

	// What is shown is the address of the master.
	require.Regexp(t, `(?m)^limiter  OVERALL .* `+regexp.QuoteMeta(master.Addr())+`$`, l.ok("ls"))
	require.Contains(t, l.ok("inspect", "limiter"), "by the clock of "+master.Addr())
	out := l.ok("doctor")
	require.Contains(t, out, "server "+master.Addr()+": neither RDB nor AOF is on")
	require.NotContains(t, out, "FailoverClient")

	// The URL of a sentinel, and others that do not fit: the error has the one that does.
	const notOne, noMaster = "use redis:// in place of redis+cluster://", "check the addresses of the sentinels and master_name"
	fits := "redis+sentinel://" + own + "/0?master_name=mymaster"
	for url, c := range map[string]struct {
		code int
		want string
	}{
		"redis://" + own:                   {command.ExitUsage, own + " is a sentinel, which has no limiters; give --redis '" + fits + "'"},
		"redis://" + own + "/1":            {command.ExitUsage, "'redis+sentinel://" + own + "/1?master_name=mymaster'"},
		"redis+cluster://" + own:           {command.ExitDown, notOne},
		"redis+cluster://" + master.Addr(): {command.ExitDown, notOne},
		"redis+sentinel://" + master.Addr() + "/0?master_name=mymaster": {command.ExitDown, noMaster},
		"redis+sentinel://" + own + "/0?master_name=another":            {command.ExitDown, noMaster},
		"redis://" + master.Addr() + "/99":                              {command.ExitDown, "/0 is the first"},
	} {
		l.url = url
		require.True(t, strings.HasPrefix(l.ends(c.code, c.want, "ls"), "rrl: "), url)
		code, _, _ := l.run("doctor")
		require.Equal(t, c.code, code, url)
	}
	l.url = fits
	master.Pause()
	l.blind("it did not reply in time")
	master.Resume()
}

func TestTLS(t *testing.T) {
	redistest.NeedReal(t)
	ca := redistest.NewCertificate(t, nil)
	server, client := redistest.NewCertificate(t, ca), redistest.NewCertificate(t, ca)
	port := fmt.Sprint(redistest.FreePort())
	plain := redistest.Start(t, "--tls-port", port, "--tls-cert-file", server.CertFile, "--tls-key-file", server.KeyFile, "--tls-ca-cert-file", ca.CertFile)
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"--tls-ca CA --tls-cert CERT --tls-key KEY": {command.ExitOK, "There are no limiters"},
		"": {command.ExitDown, "--tls-ca names the file of those who signed it"},
		"--tls-ca CA --redis rediss://localhost:" + port: {command.ExitDown, "its certificate has another name"},
		"--tls-ca CA":                     {command.ExitDown, "--tls-cert and --tls-key"},
		"--tls-cert CERT":                 {command.ExitUsage, "--tls-cert and --tls-key go together"},
		"--tls-ca KEY":                    {command.ExitUsage, "there is no certificate in"},
		"--tls-cert CERT --tls-key OTHER": {command.ExitUsage, "--tls-cert"},
		"--tls-ca CA --redis redis://" + plain.Addr(): {command.ExitUsage, "need a URL that begins with rediss"},
	} {
		l := &live{T: t, url: "rediss://127.0.0.1:" + port}
		args := strings.NewReplacer("CA", ca.CertFile, "CERT", client.CertFile, "KEY", client.KeyFile, "OTHER", server.KeyFile).Replace(args)
		l.ends(c.code, c.want, append([]string{"ls"}, strings.Fields(args)...)...)
	}
}

// A server that wants a certificate of the client may close the connection before its alert is read.
func TestResetConnectionMayWantACertificate(t *testing.T) {
	for _, text := range []string{"EOF", "write tcp 127.0.0.1:1->127.0.0.1:2: write: connection reset by peer", "write: broken pipe"} {
		require.Contains(t, advise(errors.New(text)).Error(), "--tls-cert and --tls-key", text)
	}
}

// TestFirstMinutes checks that a Redis that cannot be reached is one line, with the next step, within three seconds.
func TestFirstMinutes(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	secret, plain := redistest.Start(t, "--requirepass", "secret").Addr(), redistest.Start(t).Addr()
	tls := httptest.NewTLSServer(nil)
	t.Cleanup(tls.Close)
	mute := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // the system accepts, and nobody replies
	t.Cleanup(func() { _ = mute.Close() })
	for url, want := range map[string]string{
		"redis://127.0.0.1:1":                      "nothing listens there; check host and port",
		"redis://" + secret:                        "set REDIS_PASSWORD",
		"redis://:wrong@" + secret:                 "the user or the password is wrong",
		"redis://" + tls.Listener.Addr().String():  "check that rediss:// is used",
		"rediss://" + tls.Listener.Addr().String(): "--tls-ca names the file",
		"redis://" + mute.Addr().String():          "check the network, and that rediss://",
		"rediss://" + plain:                        "and only then",
	} {
		begun := time.Now()
		out := (&live{T: t, url: url}).ends(command.ExitDown, want, "ls")
		took := time.Since(begun)
		require.Regexp(t, `^rrl: [^\n]*\(.*\)\n$`, out, url)
		redistest.Prompt(t, took, 3*time.Second, "%s", url)
	}
}

// An error of a server is one line whose control characters are escaped.
func TestErrorsAreVisible(t *testing.T) {
	addr := redistest.Listen(t, func(c net.Conn) {
		for buf := make([]byte, 4096); ; {
			if _, err := c.Read(buf); err != nil {
				return
			}
			_, _ = io.WriteString(c, "-ERR \x1b[31mred\r\n")
		}
	})
	l := &live{T: t, url: "redis://" + addr}
	requireVisible(t, l.ends(command.ExitDown, `\x1b[31mred`, "ls"))
}

// far returns a Redis of its own with limiters that are in use, each round trip to which takes that long.
func far(t *testing.T, limiters int, rtt time.Duration) *live {
	redistest.NeedReal(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Judge(func([]string) redistest.Fault { return redistest.Fault{Hold: rtt} })
	l := &live{T: t, rdb: server.Client(t), url: "redis://" + proxy.Addr(), base: "limiter"}
	_, err := l.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range limiters {
			name := fmt.Sprintf("%s%05d", l.base, i)
			p.HSet(t.Context(), name, "rate", 5, "interval", 60_000, "type", 0, "keepAliveTime", 0)
			p.Set(t.Context(), "{"+name+"}:value", 5, 0)
		}
		return nil
	})
	require.NoError(t, err)
	return l
}

// TestFarAway bounds how long commands take of which each round trip takes 300 ms: a site on the other side of the world.
func TestFarAway(t *testing.T) {
	redistest.Repeats(t)
	l := far(t, 100, 300*time.Millisecond)
	for command, most := range map[string]time.Duration{"doctor": time.Minute, "doctor limiter00001": 20 * time.Second, "ls --limit 0": 15 * time.Second, "inspect limiter00001": 6 * time.Second} {
		begin := time.Now()
		out := l.ok(strings.Fields(command)...)
		t.Logf("%s took %v", command, time.Since(begin))
		redistest.Prompt(t, time.Since(begin), most, "%s", command)
		require.NotEmpty(t, out)
	}
}

// TestManyLimitersAcrossARegion lists and examines limiters, each round trip to which takes 20 ms: 10,000 in half a minute.
func TestManyLimitersAcrossARegion(t *testing.T) {
	redistest.Repeats(t)
	n := redistest.Cases(1_000, 10_000)
	l := far(t, n, 20*time.Millisecond)
	for _, command := range []string{"ls --limit 0 --json", "doctor --max 10000"} {
		begin := time.Now()
		require.NotEmpty(t, l.ok(strings.Fields(command)...))
		t.Logf("%s took %v", command, time.Since(begin))
		redistest.Prompt(t, time.Since(begin), time.Duration(n)*3*time.Millisecond, "%s", command)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestTargets(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h:1/2": "h:1, database 2", "rediss://h:1": "h:1, database 0", "unix:///tmp/s?db=3": "/tmp/s, database 3",
		"redis+sentinel://h:1/2?master_name=m": `the master "m" of the sentinel h:1, database 2`,
		"rediss+cluster://h:1?addr=h:2":        "the cluster of h:1, h:2",
	} {
		g, err := targetOf(raw, "", "")
		require.NoError(t, err, raw)
		require.Equal(t, want, g.where)
		rdb := g.client()
		require.NoError(t, rdb.Close())
	}
	for raw, want := range map[string]string{
		"http://h": "invalid URL scheme", "redis+ring://h:1": `the scheme "redis+ring" is not known`,
		"redis+sentinel://h:1": "there is no master_name", "redis+cluster://h:1/1": "leave /1 out of the URL",
		"redis://u:secret@h:port": "invalid port",
	} {
		_, err := targetOf(raw, "", "")
		require.ErrorAs(t, err, new(command.UsageError), raw)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, raw := range []string{"redis://a:b@h:1", "redis+sentinel://a:b@h:1?master_name=m", "redis+cluster://a:b@h:1"} {
		g := redistest.Must(targetOf(raw, "eve", "secret"))(t)
		user, password := "", ""
		switch {
		case g.single != nil:
			user, password = g.single.Username, g.single.Password
		case g.sentinel != nil:
			user, password = g.sentinel.Username, g.sentinel.Password
		default:
			user, password = g.cluster.Username, g.cluster.Password
		}
		require.Equal(t, "eve secret", user+" "+password)
	}
}

func TestNoRedisGiven(t *testing.T) {
	code, _, errs := rrl(t, "ls")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, "no Redis: give --redis URL, or set REDIS_URL")
}

// freePorts returns n ports on which nothing listens at the moment.
func freePorts(t *testing.T, n int) (ports []string) {
	for range n {
		l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// TestPasswords connects as a user of an ACL, with the password from each of its sources.
func TestPasswords(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).Do(t.Context(), "acl", "setuser", "eve", "on", ">sec ret", "~*", "+@all").Err())
	require.NoError(t, s.Client(t).ConfigSet(t.Context(), "requirepass", "other").Err())
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("sec ret\r\nmore\n"), 0o600))
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
	code, _, errs := l.run("ls")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "it wants a password: set REDIS_PASSWORD")
	t.Setenv("REDIS_PASSWORD", "wrong")
	code, _, errs = l.run("ls", "--user", "eve")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "the user or the password is wrong")
	require.NotContains(t, errs, "wrong:")
	code, _, errs = l.run("ls", "--password-file", file+"x")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, errs, "--password-file")
}

func TestUnixSocket(t *testing.T) {
	redistest.NeedReal(t)
	dir := redistest.Must(os.MkdirTemp("", "rrl"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	redistest.Start(t, "--unixsocket", path)
	l := &live{T: t, url: "unix://" + path}
	require.Contains(t, l.ok("ls"), "There are no such limiters in "+path)
}

// A node of a cluster is enough to see all of it, whether the URL says that it is one or not.
func TestClusterIsFound(t *testing.T) {
	redistest.NeedReal(t)
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	for i := range 10 {
		require.NoError(t, rdb.HSet(t.Context(), fmt.Sprint("limiter", i), "rate", 5, "interval", 1000, "type", 0).Err())
	}
	for _, scheme := range []string{"redis", "redis+cluster"} {
		l := &live{T: t, rdb: rdb, url: scheme + "://" + cluster.Nodes()[1].Addr()}
		require.Contains(t, l.ok("ls"), "\n10 limiters in the cluster of ")
		l.ok("inspect", "limiter3")
		l.ok("doctor", "limiter3", "--sample", "0")
		l.url += "/1"
		code, _, errs := l.run("ls")
		require.Equal(t, command.ExitUsage, code)
		require.Regexp(t, `database 0 only: leave /1 out of the URL`, errs)
		l.url = strings.TrimSuffix(l.url, "1") + "0"
		l.ok("inspect", "limiter3")
	}
}

func TestSentinel(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	master := redistest.Start(t)
	require.NoError(t, master.Client(t).HSet(t.Context(), "limiter", "rate", 5, "interval", 1000, "type", 0).Err())
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	own := freePorts(t, 1)[0]
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\nsentinel monitor mymaster %s %s 1\n", own, host, port), 0o600))
	cmd := exec.Command("redis-server", config, "--sentinel")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+own)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	l := &live{T: t, url: "redis+sentinel://127.0.0.1:" + own + "/0?master_name=mymaster"}
	require.Contains(t, l.ok("ls"), "limiter  OVERALL")
	l.ok("peek", "limiter", "5")

	// What is shown is the address of the master.
	require.Regexp(t, `(?m)limiter .* `+regexp.QuoteMeta(master.Addr())+`$`, l.ok("ls"))
	require.Contains(t, l.ok("inspect", "limiter"), "by the clock of "+master.Addr())
	out := l.ok("doctor")
	require.Contains(t, out, "server "+master.Addr()+": neither RDB nor AOF is on")
	require.NotContains(t, out, "FailoverClient")

	// The URL of a sentinel, and others that do not fit: the error has the one that does.
	for url, want := range map[string]string{
		"redis://127.0.0.1:" + own:                                      "127.0.0.1:" + own + " is a sentinel, which has no limiters; give --redis 'redis+sentinel://127.0.0.1:" + own + "/0?master_name=mymaster'",
		"redis://127.0.0.1:" + own + "/1":                               "'redis+sentinel://127.0.0.1:" + own + "/1?master_name=mymaster'",
		"redis+cluster://127.0.0.1:" + own:                              "use redis:// in place of redis+cluster://",
		"redis+cluster://" + master.Addr():                              "use redis:// in place of redis+cluster://",
		"redis+sentinel://" + master.Addr() + "/0?master_name=mymaster": "check the addresses of the sentinels and master_name",
		"redis://" + master.Addr() + "/99":                              "/0 is the first",
	} {
		l.url = url
		code, out, errs := l.run("ls")
		require.NotEqual(t, command.ExitOK, code, url)
		require.Empty(t, out, url)
		require.Contains(t, errs, want, url)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
		code, _, _ = l.run("doctor")
		require.Equal(t, exitNoAccess, code, url)
	}
	next := regexp.MustCompile(`'(.*)'`)
	l.url = "redis://127.0.0.1:" + own
	_, _, errs := l.run("ls")
	l.url = next.FindStringSubmatch(errs)[1]
	require.Contains(t, l.ok("ls"), "limiter  OVERALL")
	master.Pause()
	l.blind("it did not reply in time")
	master.Resume()
	l.url = "redis+sentinel://127.0.0.1:" + own + "/0?master_name=another"
	code, _, errs := l.run("ls")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "check the addresses of the sentinels and master_name")
}

// certificate writes a certificate and its key, signed by the parent or by itself.
func certificate(t *testing.T, dir, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	key := redistest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: parent == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if parent == nil {
		parent, parentKey = c, key
	}
	der := redistest.Must(x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey))(t)
	pkcs8 := redistest.Must(x509.MarshalPKCS8PrivateKey(key))(t)
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600))
	}
	made := redistest.Must(x509.ParseCertificate(der))(t)
	return made, key
}

func TestTLS(t *testing.T) {
	redistest.NeedReal(t)
	dir := t.TempDir()
	ca, key := certificate(t, dir, "ca", nil, nil)
	certificate(t, dir, "server", ca, key)
	certificate(t, dir, "client", ca, key)
	file := func(name string) string { return filepath.Join(dir, name) }
	port := freePorts(t, 1)[0]
	plain := redistest.Start(t, "--tls-port", port, "--tls-cert-file", file("server.crt"), "--tls-key-file", file("server.key"), "--tls-ca-cert-file", file("ca.crt"))
	l := &live{T: t, url: "rediss://127.0.0.1:" + port}
	out := l.ok("ls", "--tls-ca", file("ca.crt"), "--tls-cert", file("client.crt"), "--tls-key", file("client.key"))
	require.Contains(t, out, "There are no such limiters")
	for _, c := range []struct {
		url  string
		args []string
		code int
		want string
	}{
		{l.url, nil, command.ExitFailed, "--tls-ca names the file of those who signed it"},
		{l.url, []string{"--tls-ca", file("ca.crt")}, command.ExitFailed, "--tls-cert and --tls-key"},
		{l.url, []string{"--tls-cert", file("client.crt")}, command.ExitUsage, "--tls-cert and --tls-key go together"},
		{l.url, []string{"--tls-ca", file("client.key")}, command.ExitUsage, "there is no certificate in"},
		{l.url, []string{"--tls-cert", file("client.crt"), "--tls-key", file("server.key")}, command.ExitUsage, "--tls-cert"},
		{"redis://" + plain.Addr(), []string{"--tls-ca", file("ca.crt")}, command.ExitUsage, "need a URL that begins with rediss"},
	} {
		l.url = c.url
		code, _, errs := l.run(append([]string{"ls"}, c.args...)...)
		require.Equal(t, c.code, code, errs)
		require.Contains(t, errs, c.want)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}

// An error of a server is one line whose control characters are escaped.
func TestErrorsAreVisible(t *testing.T) {
	ln := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 4096)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
					_, _ = c.Write(bytes.Repeat([]byte("-ERR \x1b[31mred\r\n"), 1))
				}
			}()
		}
	}()
	l := &live{T: t, url: "redis://" + ln.Addr().String()}
	code, _, errs := l.run("ls")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, `\x1b[31mred`)
	require.NotContains(t, errs, "\x1b")
	require.Equal(t, 1, strings.Count(errs, "\n"))
}

// SPDX-License-Identifier: Apache-2.0

// Package examples_test uses the examples as somebody does who copies them.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// copied copies files of an example into a module outside of this repository, and builds it. It returns the program, if it is one.
// Package fleet stays a package, with the path that it has there.
func copied(t *testing.T, globs ...string) string {
	t.Helper()
	dir := t.TempDir()
	repository := redistest.Must(filepath.Abs(".."))(t)
	mod := redistest.Must(os.ReadFile("go.mod"))(t)
	mod = regexp.MustCompile(`(?m)^module .*`).ReplaceAll(mod, []byte("module example.com/outside"))
	mod = regexp.MustCompile(`=> \.\.`).ReplaceAll(mod, []byte("=> "+repository))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600))
	sum := redistest.Must(os.ReadFile("go.sum"))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
	n := 0
	for _, glob := range globs {
		files := redistest.Must(filepath.Glob(glob))(t)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text := redistest.Must(os.ReadFile(file))(t)
			require.NotContains(t, string(text), "ratelimiter/internal/", file)
			text = bytes.ReplaceAll(text, []byte("github.com/goredisson/ratelimiter/examples/dingtalk/"), []byte("example.com/outside/"))
			to := dir
			if filepath.Base(filepath.Dir(file)) == "fleet" {
				to = filepath.Join(dir, "fleet")
			}
			require.NoError(t, os.MkdirAll(to, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600))
			n++
		}
	}
	require.NotZero(t, n)
	program := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", program, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestExamplesCompileOutside builds each example, or the parts that are to be copied, in a module of somebody else.
func TestExamplesCompileOutside(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it compiles")
	ours := redistest.Must(os.ReadFile("server/redis.go"))(t)
	for _, name := range []string{"worker", "dingtalk"} { // each program is whole, so this file is in all of them
		require.Equal(t, string(ours), string(redistest.Must(os.ReadFile(name+"/redis.go"))(t)), name)
	}
	for name, globs := range map[string][]string{
		"server": {"server/*.go"}, "worker": {"worker/*.go"}, "dingtalk": {"dingtalk/*.go", "dingtalk/fleet/*.go"},
	} {
		t.Run(name, func(t *testing.T) { copied(t, globs...) })
	}
}

// A process is a server of its own.
type process struct {
	*testing.T
	cmd  *exec.Cmd
	url  string
	logs *logs
}

type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve starts the program as a server of a name.
func serve(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	p := &process{T: t, cmd: exec.CommandContext(context.Background(), program, append([]string{"-serve"}, args...)...), logs: &logs{}}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), p.logs
	out := redistest.Must(p.cmd.StdoutPipe())(t)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "curl -i "); ok {
			p.url = url
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return p
		}
	}
	require.Fail(t, "it does not serve", p.logs.String())
	return nil
}

func (p *process) get() int {
	p.Helper()
	resp, err := http.Get(p.url)
	require.NoError(p, err, p.logs.String())
	require.NoError(p, resp.Body.Close())
	return resp.StatusCode
}

// TestTwoProcessesShareOneLimit starts two processes of the server, built outside, on a Redis with a password and TLS: each
// client gets 5 requests of both, and those of another name have a limit of their own. A server that is told to end answers what is
// in flight.
func TestTwoProcessesShareOneLimit(t *testing.T) {
	redistest.NeedReal(t)
	program := copied(t, "server/*.go")
	dir := t.TempDir()
	certificate(t, dir)
	port := freePort(t)
	redistest.Start(t, "--requirepass", "secret", "--tls-port", port, "--tls-auth-clients", "no", "--tls-cert-file", filepath.Join(dir, "crt"),
		"--tls-key-file", filepath.Join(dir, "key"), "--tls-ca-cert-file", filepath.Join(dir, "crt"))
	url := "rediss://127.0.0.1:" + port + "/3"
	env := []string{"REDIS_URL=" + url, "REDIS_PASSWORD=secret", "SSL_CERT_FILE=" + filepath.Join(dir, "crt")}
	a, b := serve(t, program, env, "-name", "orders", "-interval", "1h"), serve(t, program, env, "-name", "orders", "-interval", "1h")
	for i := range 5 {
		require.Equal(t, http.StatusOK, []*process{a, b}[i%2].get(), a.logs.String())
	}
	require.Equal(t, http.StatusTooManyRequests, a.get())
	require.Equal(t, http.StatusTooManyRequests, b.get())
	other := serve(t, program, env, "-name", "refunds", "-interval", "1h", "-busy", "1s")
	require.Equal(t, http.StatusOK, other.get())

	// It ends in order: with the request that is in flight.
	status := make(chan int)
	go func() {
		resp, err := http.Get(other.url)
		if err != nil {
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	require.Eventually(t, func() bool {
		resp, err := http.Get(strings.TrimSuffix(other.url, "/orders/1") + "/metrics")
		if err != nil {
			return false
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return strings.Contains(string(body), `outcome="granted",policy="orders"} 2`)
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, other.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, http.StatusOK, <-status)
	require.NoError(t, other.cmd.Wait())
	require.Contains(t, other.logs.String(), `msg="the server ends"`)

	// What is wrong is logged, and no log has the password.
	wrong := serve(t, program, append(env, "REDIS_PASSWORD=another"), "-name", "orders")
	require.Equal(t, http.StatusServiceUnavailable, wrong.get())
	require.Eventually(t, func() bool { return strings.Contains(wrong.logs.String(), "WRONGPASS") }, time.Minute, 10*time.Millisecond)
	for _, p := range []*process{a, b, other, wrong} {
		require.NotContains(t, p.logs.String(), "secret")
		require.NotContains(t, p.logs.String(), "another")
	}
	out, err := exec.CommandContext(t.Context(), program, "-redis", "redis://u:secret@h:port").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "invalid port")
	require.NotContains(t, string(out), "secret")
}

// certificate writes a certificate of 127.0.0.1, which signs itself, and its key.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key := redistest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der := redistest.Must(x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key))(t)
	pkcs8 := redistest.Must(x509.MarshalPKCS8PrivateKey(key))(t)
	for name, block := range map[string]*pem.Block{"crt": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { require.NoError(t, ln.Close()) }()
	return fmt.Sprint(ln.Addr().(*net.TCPAddr).Port)
}

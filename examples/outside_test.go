// SPDX-License-Identifier: Apache-2.0

// Package examples_test uses the examples as somebody does who copies them.
package examples_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// copied copies files of an example into a module outside of this repository, and builds it. It returns the program, if it is one.
func copied(t *testing.T, example string) string {
	t.Helper()
	dir := t.TempDir()
	repository := redistest.Must(filepath.Abs(".."))(t)
	mod := redistest.Must(os.ReadFile("go.mod"))(t)
	mod = regexp.MustCompile(`(?m)^module .*`).ReplaceAll(mod, []byte("module example.com/outside"))
	mod = regexp.MustCompile(`=> \.\.`).ReplaceAll(mod, []byte("=> "+repository))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600))
	sum := redistest.Must(os.ReadFile("go.sum"))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
	files := redistest.Must(filepath.Glob(example + "/*.go"))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := redistest.Must(os.ReadFile(file))(t)
		require.NotContains(t, string(text), "ratelimiter/internal/", file)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600))
	}
	program := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", program, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestExamplesCompileOutside builds each example, or the parts that are to be copied, in a module of somebody else.
func TestExamplesCompileOutside(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it compiles")
	ours := redistest.Must(os.ReadFile("server/redis.go"))(t)
	for _, name := range []string{"worker", "dingtalk", "demo"} { // each program is whole, so this file is in all of them
		require.Equal(t, string(ours), string(redistest.Must(os.ReadFile(name+"/redis.go"))(t)), name)
	}
	for _, name := range []string{"server", "worker", "dingtalk", "compare", "demo"} {
		t.Run(name, func(t *testing.T) { copied(t, name) })
	}
}

// A process is a server of its own.
type process struct {
	*testing.T
	cmd  *exec.Cmd
	url  string
	logs redistest.Log // and what it prints
}

// serve starts the program as a server of a name.
func serve(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	p := &process{T: t, cmd: exec.CommandContext(context.Background(), program, append([]string{"-serve"}, args...)...)}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), env...), &p.logs, &p.logs
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	p.url = p.logs.Await(t, `curl -i (\S+)`)[1]
	return p
}

func (p *process) get() int {
	p.Helper()
	return p.status(p.url)
}

func (p *process) status(url string) int {
	p.Helper()
	resp, err := http.Get(url)
	require.NoError(p, err, p.logs.String())
	require.NoError(p, resp.Body.Close())
	return resp.StatusCode
}

// TestTwoProcessesShareOneLimit starts two processes of the server, built outside, on a Redis with a password and TLS: each
// client gets 5 requests of both, and those of another name have a limit of their own. A server that is told to end answers what is
// in flight.
func TestTwoProcessesShareOneLimit(t *testing.T) {
	redistest.NeedReal(t)
	program := copied(t, "server")
	cert, port := redistest.NewCertificate(t, nil), fmt.Sprint(redistest.FreePort())
	redistest.Start(t, "--requirepass", "secret", "--tls-port", port, "--tls-auth-clients", "no", "--tls-cert-file", cert.CertFile,
		"--tls-key-file", cert.KeyFile, "--tls-ca-cert-file", cert.CertFile)
	url := "rediss://127.0.0.1:" + port + "/3"
	env := []string{"REDIS_URL=" + url, "REDIS_PASSWORD=secret", "SSL_CERT_FILE=" + cert.CertFile}
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
	wrong.logs.Await(t, "WRONGPASS")
	for _, p := range []*process{a, b, other, wrong} {
		require.NotContains(t, p.logs.String(), "secret")
		require.NotContains(t, p.logs.String(), "another")
	}
	out, err := exec.CommandContext(t.Context(), program, "-redis", "redis://u:1/secret@h:1").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "cannot be parsed")
	require.NotContains(t, string(out), "secret")
}

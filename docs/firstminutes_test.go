// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"bytes"
	"net"
	"net/http/httptest"
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

// TestFirstMinutes runs the programs of the README and of the quickstart with a Redis that is not there, wants another
// password, or does not speak what they do. Each ends with one line that says what happened and what to check, besides lines
// of go-redis itself, which begin with "redis: ".
func TestFirstMinutes(t *testing.T) {
	secret, plain := redistest.Start(t, "--requirepass", "secret"), redistest.Start(t)
	tls := httptest.NewTLSServer(nil)
	t.Cleanup(tls.Close)
	mute := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // the system accepts, and nobody replies
	t.Cleanup(func() { _ = mute.Close() })
	closed := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, closed.Close())

	for _, page := range []string{"README.md", "docs/quickstart.md"} {
		program := build(t, page)
		for _, c := range []struct{ name, url, what, check string }{
			{"no Redis", "redis://" + closed.Addr().String(), "connection refused", "nothing listens there; check host and port"},
			{"no password", "redis://" + secret.Addr(), "NOAUTH", "set Password"},
			{"a wrong password", "redis://:wrong@" + secret.Addr(), "WRONGPASS", "check Username and Password"},
			{"TLS is wanted", "redis://" + tls.Listener.Addr().String(), "redis is unavailable", "check that TLSConfig, or rediss://, is used"},
			{"a certificate of nobody's", "rediss://" + tls.Listener.Addr().String(), "x509:", "RootCAs in TLSConfig"},
			{"a mute port", "redis://" + mute.Addr().String(), "no reply from Redis", "check the network, and that TLSConfig"},
			{"TLS is not wanted", "rediss://" + plain.Addr(), "did not reply in time", "and only then"},
		} {
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), "FIRST_URL="+c.url)
			begun := time.Now()
			out, err := cmd.CombinedOutput()
			took := time.Since(begun)
			require.Error(t, err, "%s, %s", page, c.name)
			var ours [][]byte
			for line := range bytes.Lines(out) {
				if !bytes.HasPrefix(line, []byte("redis: ")) && !bytes.Contains(line, []byte(" INFO rate limiter: started ")) {
					ours = append(ours, line)
				}
			}
			require.Len(t, ours, 1, "%s, %s:\n%s", page, c.name, out)
			require.Contains(t, string(ours[0]), c.what, c.name)
			require.Contains(t, string(ours[0]), c.check, c.name)
			redistest.Prompt(t, took, 3*time.Second, "%s, %s", page, c.name)
			t.Logf("%s, %s: %v: %s", page, c.name, took.Round(time.Millisecond), ours[0])
		}
	}
}

// build compiles the first program of a page, for the Redis whose URL is in the environment and with replacements in its text, and
// returns its path.
func build(t *testing.T, page string, oldnew ...string) string {
	text := string(redistest.Must(os.ReadFile(page))(t))
	src := ""
	for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
		if src == "" && strings.Contains(m[1], "package main") {
			src = m[1]
		}
	}
	const options = `&redis.Options{Addr: "localhost:6379"}`
	require.Contains(t, src, options, page)
	for i := 0; i < len(oldnew); i += 2 {
		require.Contains(t, src, oldnew[i], page)
	}
	src = strings.NewReplacer(oldnew...).Replace(src)
	dir := redistest.Must(os.MkdirTemp(".", "_docs"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("main.go", strings.ReplaceAll(src, options, "options()"))
	write("options.go", `package main

import (
	"os"

	"github.com/redis/go-redis/v9"
)

func options() *redis.Options {
	o, err := redis.ParseURL(os.Getenv("FIRST_URL"))
	if err != nil {
		panic(err)
	}
	return o
}
`)
	program := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("go", "build", "-o", program, "./"+dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestQuickstartOutlivesAnOutage runs the program of the quickstart, with an outage limit that is shorter than the outage. It
// says so, goes on when Redis is back, does not flood the log, and ends at once and without an error when it is told to.
func TestQuickstartOutlivesAnOutage(t *testing.T) {
	redistest.NeedReal(t)
	server := redistest.Start(t)
	program := build(t, "docs/quickstart.md",
		"ratelimiter.New(rdb, ", "ratelimiter.New(rdb, ratelimiter.WithOutageLimit(300*time.Millisecond), ",
		"Interval: 10 * time.Second", "Interval: 500 * time.Millisecond")
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "FIRST_URL=redis://"+server.Addr())
	lines, out := make(chan string), redistest.Must(cmd.StdoutPipe())(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for range 7 {
		require.NotEmpty(t, <-lines)
	}
	server.Kill()
	for deadline := time.After(3 * time.Second); deadline != nil; {
		select {
		case <-lines:
		case <-deadline:
			deadline = nil
		}
	}
	server.Restart()
	for range 7 {
		require.NotEmpty(t, <-lines)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	begun := time.Now()
	for range lines { // until it has ended
	}
	require.NoError(t, cmd.Wait())
	redistest.Prompt(t, time.Since(begun), time.Second, "it ends")
	ours := regexp.MustCompile(`(?m)^\d{4}/.*rate limiter: (.*)$`).FindAllString(stderr.String(), -1)
	require.Contains(t, stderr.String(), "rate limiter: outage began")
	require.Contains(t, stderr.String(), "rate limiter: outage ended")
	require.LessOrEqual(t, len(ours), 4, "%s", stderr.String())
}

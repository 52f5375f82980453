// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A java is a JVM with Redisson, the peer of compat_test. Its class path is what compat_test/prepare.sh leaves.
type java struct {
	*testing.T
	stdin  io.WriteCloser
	stdout *bufio.Reader
	n      int
}

// startJava starts the newest Redisson of the matrix. It skips the test if prepare.sh has not been run, or found no Java.
func startJava(t *testing.T, addr string) *java {
	t.Helper()
	target := filepath.Join("..", "compat_test", "java", "target")
	jars, err := os.ReadFile(filepath.Join(target, "classpath", "4.7.0"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("compat_test/prepare.sh has not been run")
		}
		t.Skip("compat_test/prepare.sh has not been run: there is no Redisson")
	}
	classPath := filepath.Join(target, "classes") + ":" + strings.Join(strings.Fields(string(jars)), ":")
	cmd := exec.Command("java", "-Xmx128m", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "--add-opens", "java.base/java.lang=ALL-UNNAMED",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Dio.netty.noPreferDirect=true", "-cp", classPath, "peer.Peer", "--address", "redis://"+addr)
	cmd.Stderr = os.Stderr
	j := &java{T: t}
	j.stdin = redistest.Must(cmd.StdinPipe())(t)
	out := redistest.Must(cmd.StdoutPipe())(t)
	j.stdout = bufio.NewReader(out)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = j.stdin.Close() // which ends it
		end := time.AfterFunc(hangs, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		_ = cmd.Wait()
	})
	line := redistest.Must(j.stdout.ReadString('\n'))(t)
	require.True(t, strings.HasPrefix(line, "ready "), line)
	return j
}

// call runs an operation, and returns its reply.
func (j *java) call(words ...string) string {
	j.Helper()
	j.n++
	redistest.Must(fmt.Fprintf(j.stdin, "%d %s\n", j.n, strings.Join(words, " ")))(j)
	line := redistest.Must(j.stdout.ReadString('\n'))(j)
	reply, ok := strings.CutPrefix(strings.TrimSpace(line), fmt.Sprint(j.n, " ="))
	require.True(j, ok, "%v: %s", words, line)
	return reply
}

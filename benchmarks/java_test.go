// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// The versions of Redisson that are measured. prepare.sh writes the class path of each.
const (
	newestRedisson = "4.7.0"
	olderRedisson  = "3.15.5"
)

// A jvm is a process with a Redisson client. It handles one request at a time, and ends with its stdin, so with this process.
type jvm struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func startJava(t require.TestingT, version, addr string) *jvm {
	jars, err := os.ReadFile(filepath.Join("../compat_test/java/target/classpath", version))
	require.NoError(t, err, "run prepare.sh first")
	path := strings.Join(append(strings.Fields(string(jars)), "java/target/classes"), string(filepath.ListSeparator))
	p := &jvm{cmd: exec.Command("java", "-Xss256k", "--add-opens", "java.base/java.lang=ALL-UNNAMED",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, "bench.Bench", "redis://"+addr)}
	p.cmd.Stderr = os.Stderr
	p.stdin = redistest.Must(p.cmd.StdinPipe())(t)
	p.out = bufio.NewReader(redistest.Must(p.cmd.StdoutPipe())(t))
	require.NoError(t, p.cmd.Start())
	require.Equal(t, "ready", p.read(t))
	return p
}

func (p *jvm) ask(t require.TestingT, format string, args ...any) string {
	redistest.Must(fmt.Fprintf(p.stdin, format+"\n", args...))(t)
	return p.read(t)
}

func (p *jvm) read(t require.TestingT) string {
	line := strings.TrimSuffix(redistest.Must(p.out.ReadString('\n'))(t), "\n")
	require.False(t, strings.HasPrefix(line, "!"), line)
	return line
}

// openJava returns the open of real Redisson with its default configuration and a thread for each caller.
func openJava(version string) func(require.TestingT, place, job) *session {
	return func(t require.TestingT, at place, j job) *session {
		p := javaOf(t, version)
		s := openRedisson(t, at, j)
		s.held = func(ctx context.Context, told []int64) error {
			return heldIn(ctx, s.rdb, j, told, version == olderRedisson) // four random bytes, read as a float, tell its grants apart
		}
		s.load = func(t require.TestingT, callers, n int, clock timer) tally {
			clock.ResetTimer()
			answer := p.ask(t, "load %d %d %d %s", callers, n, j.Limiters, prefix)
			clock.StopTimer()
			out := tally{Told: []int64{0}}
			redistest.Must(fmt.Sscan(answer, &out.Told[0], &out.Rejected, &out.Elapsed, &out.P99))(t)
			return out
		}
		s.wait = func(t require.TestingT, callers int, apart time.Duration) (returned []time.Time) {
			for word := range strings.FieldsSeq(p.ask(t, "wait %d %d %s", callers, apart.Microseconds(), j.name(0))) {
				returned = append(returned, time.UnixMicro(redistest.Must(strconv.ParseInt(word, 10, 64))(t)))
			}
			return returned
		}
		return s
	}
}

// javas are the JVMs that have been started, by version.
var javas = map[string]*jvm{}

// javaOf returns the JVM of a version. A JVM compiles what it runs, so what is measured is run before.
func javaOf(t require.TestingT, version string) *jvm {
	if javas[version] == nil {
		javas[version] = startJava(t, version, local.addrs[0])
		require.NoError(t, local.nodes[0].HSet(context.Background(), "warm0", "rate", 1<<30, "interval", 3_600_000, "type", 0).Err())
		javas[version].ask(t, "load 64 %d 1 warm", short(60_000, 64))
		local.empty(t)
	}
	return javas[version]
}

// scriptText returns the acquire script that real Redisson sends: it runs once behind a recording proxy. This repository holds
// no copy of Redisson's scripts.
func scriptText(t require.TestingT) string {
	if captured != "" {
		return captured
	}
	proxy := redistest.Must(redistest.NewProxy(local.addrs[0]))(t)
	var sent [][]string
	proxy.Judge(func(words []string) redistest.Fault { sent = append(sent, words); return redistest.Fault{} })
	j := job{Limiters: 1, Permits: 7, Interval: time.Minute}
	s := openRedisson(t, local, j)
	defer s.close()
	p := startJava(t, newestRedisson, proxy.Addr())
	require.Equal(t, "true", p.ask(t, "try 3 %s", j.name(0)))
	_ = p.stdin.Close()
	require.NoError(t, p.cmd.Wait())
	proxy.Close() // now sent is complete
	local.empty(t)
	captured = redistest.Must(scriptIn(sent, j.name(0), "3"))(t)
	return captured
}

var captured string

// scriptIn returns the script that ran on a limiter; Redisson runs another one when it connects. It may have been loaded first
// and then sent by its digest. Its KEYS and ARGV must be in the order in which openScript sends them.
func scriptIn(sent [][]string, name, permits string) (text string, err error) {
	loaded := map[string]string{}
	for _, c := range sent {
		if len(c) == 3 && strings.EqualFold(c[0]+c[1], "SCRIPTLOAD") {
			loaded[redis.NewScript(c[2]).Hash()] = c[2]
		}
		found := ""
		if strings.EqualFold(c[0], "EVAL") {
			found = c[1]
		} else if strings.EqualFold(c[0], "EVALSHA") {
			found = loaded[c[1]]
		}
		if found == "" || len(c) < 4 || c[3] != name {
			continue
		}
		if text != "" && text != found {
			return "", errors.New("redisson ran more than one script")
		}
		value, set := valueKey(name), permitsKey(name)
		if len(c) != 3+5+3 || c[2] != "5" || c[4] != value || c[6] != set || !strings.HasPrefix(c[5], value+":") || !strings.HasPrefix(c[7], set+":") ||
			c[8] != permits || len(c[9]) != 13 || len(c[10]) != 16 {
			return "", fmt.Errorf("the KEYS and ARGV of Redisson's script are %q", c[3:])
		}
		text = found
	}
	if text == "" {
		return "", errors.New("redisson ran no script")
	}
	return text, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

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
)

// The versions of Redisson that are measured. prepare.sh writes the class path of each.
const (
	newestRedisson = "4.7.0"
	olderRedisson  = "3.15.5"
	classPaths     = "../compat_test/java/target/classpath"
	classes        = "java/target/classes"
)

// A javaProcess is a JVM with a Redisson client. It handles one request at a time.
type javaProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// javaReady returns an error that says what is missing to start a JVM.
func javaReady(version string) error {
	for _, path := range []string{filepath.Join(classPaths, version), filepath.Join(classes, "bench", "Bench.class")} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run prepare.sh first", err)
		}
	}
	return nil
}

func startJava(version, addr string) (*javaProcess, error) {
	if err := javaReady(version); err != nil {
		return nil, err
	}
	jars, err := os.ReadFile(filepath.Join(classPaths, version))
	if err != nil {
		return nil, err
	}
	path := append(strings.Fields(string(jars)), classes)
	p := &javaProcess{cmd: exec.Command("java", "-Xss256k", "--add-opens", "java.base/java.lang=ALL-UNNAMED",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", strings.Join(path, string(filepath.ListSeparator)), "bench.Bench", "redis://"+addr)}
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if greeting, err := p.read(); err != nil || greeting != "ready" {
		return nil, errors.Join(fmt.Errorf("redisson %s does not start: %q, %w", version, greeting, err), p.close())
	}
	return p, nil
}

func (p *javaProcess) ask(request string) (string, error) {
	if _, err := io.WriteString(p.stdin, request+"\n"); err != nil {
		return "", err
	}
	return p.read()
}

func (p *javaProcess) read() (string, error) {
	line, err := p.out.ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	if err == nil && strings.HasPrefix(line, "!") {
		err = errors.New(line[1:])
	}
	return line, err
}

func (p *javaProcess) close() error {
	_ = p.stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(10 * time.Second):
		return errors.Join(errors.New("java did not end with its stdin"), p.cmd.Process.Kill())
	}
}

// redissonJava is real Redisson with its default configuration and a thread for each caller.
type redissonJava struct {
	version string
	addr    string
	process *javaProcess
	control *ours // reads and writes the state in Redis
}

func newRedissonJava(version, addr string) (*redissonJava, error) {
	p, err := startJava(version, addr)
	if err != nil {
		return nil, err
	}
	return &redissonJava{version, addr, p, newOurs(newClient(addr, 0), false)}, nil
}

func (r *redissonJava) about() about {
	return about{key: "java-" + r.version, title: "Redisson, Java threads", version: r.version, keeps: true, java: true,
		lossy: r.version == olderRedisson} // four random bytes, read as a float, tell its grants apart
}

func (r *redissonJava) open(ctx context.Context, j job) (session, error) {
	return &javaSession{r, j}, writeRates(ctx, r.control.rdb, j)
}

func (r *redissonJava) wait(_ context.Context, name string, callers int, stagger time.Duration) ([]time.Time, error) {
	answer, err := r.process.ask(fmt.Sprintf("wait %d %d %s", callers, stagger.Microseconds(), name))
	if err != nil {
		return nil, err
	}
	var returned []time.Time
	for word := range strings.FieldsSeq(answer) {
		micros, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, err
		}
		returned = append(returned, time.UnixMicro(micros))
	}
	return returned, nil
}

func (r *redissonJava) close() error { return errors.Join(r.process.close(), r.control.close()) }

type javaSession struct {
	*redissonJava
	job job
}

func (s *javaSession) load(_ context.Context, j job) (tally, error) {
	answer, err := s.process.ask(fmt.Sprintf("load %d %d %d %d %s", j.callers, j.duration.Milliseconds(),
		j.calls, j.limiters, j.prefix))
	if err != nil {
		return tally{}, err
	}
	words := strings.SplitN(answer, " ", 7)
	var n [6]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(words[min(i, len(words)-1)], 10, 64); err != nil {
			return tally{}, fmt.Errorf("java answered %q: %w", answer, err)
		}
	}
	return tally{
		Granted: n[0], Rejected: n[1], Failed: n[2], Error: words[len(words)-1],
		Elapsed: time.Duration(n[3]), P50: time.Duration(n[4]), P99: time.Duration(n[5]),
	}, nil
}

func (s *javaSession) spent(ctx context.Context) (int64, error) {
	if s.about().lossy {
		return takenPermits(ctx, s.control.rdb, s.job)
	}
	return spentPermits(ctx, s.control.rdb, s.job)
}

func (s *javaSession) keys() []string { return redissonKeys(s.job) }

// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// workEnv is set in the environment of a process of this test binary that is to be a worker, and holds its plan.
const workEnv = "RATELIMITER_FAULTS_WORK"

// A plan is the work of one process: callers that wait for permits of one limiter, again and again.
type plan struct {
	Addr, Name string
	Permits    int64
	Callers    int
	During     time.Duration
}

// An account is what the callers of a process were told.
type account struct {
	Grants  int64
	Permits int64
	Longest time.Duration // of any wait
	Errors  map[string]int
}

func (p plan) run() account {
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr})
	client, err := ratelimiter.New(rdb)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.During)
	defer cancel()
	out := account{Errors: map[string]int{}}
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range p.Callers {
		callers.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				err := client.RateLimiter(p.Name).Acquire(ctx, p.Permits)
				mu.Lock()
				out.Longest = max(out.Longest, time.Since(begin))
				if err == nil {
					out.Grants++
					out.Permits += p.Permits
				} else if ctx.Err() == nil {
					out.Errors[err.Error()]++
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	_ = client.Close()
	return out
}

// work makes this process a worker if it was started as one. In that case it never returns.
func work() {
	text, ok := os.LookupEnv(workEnv)
	if !ok {
		return
	}
	var p plan
	if json.Unmarshal([]byte(text), &p) != nil {
		os.Exit(2)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(3)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(4) // the process that started this one is gone
	}()
	if json.NewEncoder(os.Stdout).Encode(p.run()) != nil {
		os.Exit(5)
	}
	os.Exit(0)
}

// A worker is such a process, as the test sees it.
type worker struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// startWorkers starts a process for each plan, and lets them begin when all of them are ready.
func startWorkers(t testing.TB, plans ...plan) []*worker {
	t.Helper()
	var list []*worker
	for _, p := range plans {
		text := redistest.Must(json.Marshal(p))(t)
		w := &worker{t: t, cmd: exec.Command(os.Args[0])}
		w.cmd.Env = append(os.Environ(), workEnv+"="+string(text))
		w.cmd.Stderr = os.Stderr
		w.stdin = redistest.Must(w.cmd.StdinPipe())(t)
		stdout := redistest.Must(w.cmd.StdoutPipe())(t)
		require.NoError(t, w.cmd.Start())
		t.Cleanup(w.kill)
		w.lines = bufio.NewReader(stdout)
		require.Equal(t, "ready\n", redistest.Must(w.lines.ReadString('\n'))(t))
		list = append(list, w)
	}
	for _, w := range list {
		redistest.Must(io.WriteString(w.stdin, "go\n"))(t)
	}
	return list
}

// result waits for the end of the worker.
func (w *worker) result() (out account) {
	w.t.Helper()
	require.NoError(w.t, json.NewDecoder(w.lines).Decode(&out))
	require.NoError(w.t, w.cmd.Wait())
	require.Empty(w.t, out.Errors)
	return out
}

// kill ends the worker as a crash would.
func (w *worker) kill() {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

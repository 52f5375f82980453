// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// workEnv is set in the environment of a process of this test binary that is to be a worker. It holds the worker's
// plan.
const workEnv = "RATELIMITER_WORK"

// A plan is the work of one process. The result of run goes to the test as JSON.
type plan interface{ run() any }

// plans returns the plans that a worker can be started with.
func plans() map[string]plan {
	return map[string]plan{"soak": &soakPlan{}, "outbound": &outboundPlan{}}
}

// work makes this process a worker if it was started as one. In that case it never returns.
func work() {
	text, ok := os.LookupEnv(workEnv)
	if !ok {
		return
	}
	var order struct {
		Job  string
		Plan json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		os.Exit(2)
	}
	p, ok := plans()[order.Job]
	if !ok || json.Unmarshal(order.Plan, p) != nil {
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
	if err := json.NewEncoder(os.Stdout).Encode(p.run()); err != nil {
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

// startWorker starts a worker process. The worker is ready when startWorker returns, and waits for begin.
func startWorker(t testing.TB, job string, p plan) *worker {
	t.Helper()
	text := redistest.Must(json.Marshal(map[string]any{"Job": job, "Plan": p}))(t)
	w := &worker{t: t, cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), workEnv+"="+string(text))
	w.cmd.Stderr = os.Stderr
	w.stdin = redistest.Must(w.cmd.StdinPipe())(t)
	stdout := redistest.Must(w.cmd.StdoutPipe())(t)
	require.NoError(t, w.cmd.Start())
	t.Cleanup(w.kill)
	w.lines = bufio.NewReader(stdout)
	require.Equal(t, "ready\n", redistest.Must(w.lines.ReadString('\n'))(t))
	return w
}

func (w *worker) begin() {
	w.t.Helper()
	redistest.Must(io.WriteString(w.stdin, "go\n"))(w.t)
}

// result waits for the end of the worker and decodes the result of its run.
func (w *worker) result(into any) error {
	if err := json.NewDecoder(w.lines).Decode(into); err != nil {
		return err
	}
	return w.cmd.Wait()
}

// kill ends the worker as a crash would.
func (w *worker) kill() {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package worker runs the binary of a test as further processes, which use limiters as those of a fleet do.
package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// workEnv is set in the environment of a process that is to be a worker. It holds the worker's plan.
const workEnv = "RATELIMITER_WORK"

// A Plan is the work of one process, as a pointer to what JSON can hold. The result of Run goes to the test as JSON.
type Plan interface{ Run() any }

type order struct {
	Type string
	Plan json.RawMessage
}

// Main makes this process a worker if [Start] has started it. In that case it never returns. The TestMain of a package
// calls it first, with a plan of each type that its tests start.
func Main(plans ...Plan) {
	text, ok := os.LookupEnv(workEnv)
	if !ok {
		return
	}
	var o order
	if json.Unmarshal([]byte(text), &o) != nil {
		os.Exit(2)
	}
	for _, p := range plans {
		if fmt.Sprintf("%T", p) != o.Type {
			continue
		}
		if json.Unmarshal(o.Plan, p) != nil {
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
		if json.NewEncoder(os.Stdout).Encode(p.Run()) != nil {
			os.Exit(5)
		}
		os.Exit(0)
	}
	os.Exit(2)
}

// A Process is such a process, as the test sees it.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	wait   func() error // once
}

// Start starts a process for each plan, and lets them begin when all of them are ready. They end with the test.
func Start(t testing.TB, plans ...Plan) []*Process {
	t.Helper()
	var list []*Process
	for _, p := range plans {
		text := redistest.Must(json.Marshal(order{fmt.Sprintf("%T", p), redistest.Must(json.Marshal(p))(t)}))(t)
		w := &Process{cmd: exec.Command(os.Args[0])}
		w.cmd.Env = append(os.Environ(), workEnv+"="+string(text))
		w.cmd.Stderr = os.Stderr
		w.stdin = redistest.Must(w.cmd.StdinPipe())(t)
		w.stdout = bufio.NewReader(redistest.Must(w.cmd.StdoutPipe())(t))
		require.NoError(t, w.cmd.Start())
		w.wait = sync.OnceValue(w.cmd.Wait)
		t.Cleanup(w.Kill)
		list = append(list, w)
	}
	for _, w := range list {
		require.Equal(t, "ready\n", redistest.Must(w.stdout.ReadString('\n'))(t))
	}
	for _, w := range list {
		redistest.Must(io.WriteString(w.stdin, "go\n"))(t)
	}
	return list
}

// Result waits for the end of the worker and decodes the result of its plan.
func (w *Process) Result(into any) error {
	if err := json.NewDecoder(w.stdout).Decode(into); err != nil {
		return err
	}
	return w.wait()
}

// Kill ends the worker as a crash would.
func (w *Process) Kill() {
	_ = w.cmd.Process.Kill()
	_ = w.wait()
}

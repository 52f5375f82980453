// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// workerVariable is the environment variable that is set in workers, processes that this program starts to put load
// on a limiter together.
const workerVariable = "RATELIMITER_BENCH_WORKER"

// An order is the job that a worker reads. A line after it lets the worker begin.
type order struct {
	Addr, Script, Contestant string
	Pool                     int
	Prefix                   string
	Permits                  int64
	Interval, Duration       time.Duration
	Callers, Limiters        int
}

// work runs a worker.
func work(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	var o order
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	list, err := goContestants(o.Addr, o.Pool, o.Script)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.about().key != o.Contestant {
			continue
		}
		j := job{prefix: o.Prefix, limiters: o.Limiters, permits: o.Permits, interval: o.Interval, callers: o.Callers, duration: o.Duration}
		s, err := c.open(ctx, j)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(stdout, "ready"); err != nil {
			return err
		}
		if _, err := in.ReadBytes('\n'); err != nil {
			return err
		}
		t, err := s.load(ctx, j)
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(t)
	}
	return fmt.Errorf("there is no contestant %q", o.Contestant)
}

// A workerProcess is a worker, for its parent.
type workerProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// workers runs a job in several processes that begin at the same instant.
func (b *bench) workers(ctx context.Context, count int, c contestant, j job) (total tally, err error) {
	script := ""
	for _, other := range b.contestants {
		if s, ok := other.(*redissonScript); ok {
			script = s.text
		}
	}
	o := order{b.server.Addr(), script, c.about().key, b.options.pool, j.prefix, j.permits, j.interval, j.duration, j.callers, j.limiters}
	var crew []*workerProcess
	defer func() {
		for _, w := range crew {
			_ = w.stdin.Close()
			err = errors.Join(err, w.cmd.Wait())
		}
	}()
	for range count {
		w, err := startWorker(ctx, o)
		if err != nil {
			return tally{}, err
		}
		crew = append(crew, w)
		if _, err := w.out.ReadString('\n'); err != nil {
			return tally{}, err
		}
	}
	for _, w := range crew {
		if _, err := fmt.Fprintln(w.stdin, "go"); err != nil {
			return tally{}, err
		}
	}
	total.Latency = new(histogram)
	for _, w := range crew {
		var t tally
		if err := json.NewDecoder(w.out).Decode(&t); err != nil {
			return tally{}, err
		}
		if t.Granted == 0 {
			return tally{}, errors.New("a worker was granted nothing")
		}
		total.Granted += t.Granted
		total.Rejected += t.Rejected
		total.Failed += t.Failed
		total.Error += t.Error
		total.Elapsed = max(total.Elapsed, t.Elapsed)
		total.Latency.merge(t.Latency)
	}
	total.P50, total.P99 = total.Latency.quantile(0.50), total.Latency.quantile(0.99)
	return total, nil
}

func startWorker(ctx context.Context, o order) (*workerProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &workerProcess{cmd: exec.CommandContext(ctx, program)}
	w.cmd.Env = append(os.Environ(), workerVariable+"=1")
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = dieWithParent()
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(stdout)
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	return w, json.NewEncoder(w.stdin).Encode(o)
}

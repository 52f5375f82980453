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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
)

// A fleet starts the worker processes, kills some, and counts the jobs.
type fleet struct {
	*settings
	rdb            *redis.Client
	stdout, stderr io.Writer

	begin   time.Time
	events  chan event
	readers sync.WaitGroup
	living  map[string]*process
	started int
	killed  int
}

type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	begun int // jobs
}

// shared is a writer for concurrent use by the workers' stderr and ours.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// An event is a line of output of a worker.
type event struct{ worker, what, job string }

// run runs the example. It returns an error that says what went wrong.
func (f *fleet) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.longest())
	defer cancel()
	f.begin, f.events, f.living = time.Now(), make(chan event), map[string]*process{}

	client, err := ratelimiter.New(f.rdb)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	limiter := client.RateLimiter(f.name)
	if _, err := limiter.TrySetRate(ctx, f.rate()); err != nil {
		return err
	}
	defer f.cleanUp(ctx)
	q := f.queue(f.rdb)
	if err := q.create(ctx); err != nil {
		return err
	}
	for i := range f.jobs {
		if err := q.add(ctx, "job-"+strconv.Itoa(i+1)); err != nil {
			return err
		}
	}

	p := &pace{limiter: limiter, grants: map[string]grant{}}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go p.watch(watching, f.interval)

	defer f.stop()
	for range f.workers {
		if err := f.start(); err != nil {
			return err
		}
	}
	if err := f.await(ctx, q); err != nil {
		return err
	}
	took := time.Since(f.begin)
	p.look(ctx)
	return f.sumUp(ctx, p, took)
}

// longest returns the time after which a run has failed: four times what the limit makes it take, and what
// every kill may add.
func (f *fleet) longest() time.Duration {
	intervals := 1 + int64(f.jobs)/f.permits
	return 10*time.Second + 4*time.Duration(intervals)*f.interval + time.Duration(f.kills)*(f.abandoned+f.interval)
}

// start starts one more worker.
func (f *fleet) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.started++
	name := "w" + strconv.Itoa(f.started)
	cmd := exec.Command(self, f.args(name)...)
	cmd.Env = append(os.Environ(), "REDIS_URL="+f.redis)
	cmd.Stderr = f.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.living[name] = &process{cmd: cmd, stdin: stdin}
	f.readers.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			what, job, _ := strings.Cut(lines.Text(), " ")
			f.events <- event{name, what, job}
		}
		// Its exit status does not matter: it was killed, or the jobs show how it went.
		_ = cmd.Wait()
	})
	return nil
}

// await blocks until every job is done. Meanwhile it kills workers, each in the middle of its third job.
func (f *fleet) await(ctx context.Context, q *queue) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case e := <-f.events:
			if err := f.hear(e); err != nil {
				return err
			}
		case <-tick.C:
			left, err := q.left(ctx)
			if err == nil && left == 0 && f.killed == f.kills {
				return nil
			}
			if err == nil && left == 0 {
				return fmt.Errorf("all jobs are done and %d of %d workers were killed: give it more jobs", f.killed, f.kills)
			}
		case <-ctx.Done():
			return fmt.Errorf("not over after %v: %w", time.Since(f.begin).Round(time.Second), context.Cause(ctx))
		}
	}
}

// hear handles one event.
func (f *fleet) hear(e event) error {
	p := f.living[e.worker]
	switch {
	case e.what == eventAgain || e.what == eventFailed:
		f.say("%s %s %s", e.worker, map[string]string{eventAgain: "does again", eventFailed: "could not do"}[e.what], e.job)
	case e.what == eventBegins && p != nil:
		if p.begun++; p.begun == 3 && f.killed < f.kills {
			f.killed++
			delete(f.living, e.worker)
			f.say("%s is killed in the middle of %s", e.worker, e.job)
			err := p.cmd.Process.Kill()
			_ = p.stdin.Close() // after the kill, since a worker ends in order at the end of its stdin
			if err != nil {
				return err
			}
			return f.start()
		}
	}
	return nil
}

// stop ends the remaining workers by closing their stdin, and handles their last events.
func (f *fleet) stop() {
	f.kills = f.killed
	for _, p := range f.living {
		_ = p.stdin.Close()
	}
	go func() {
		f.readers.Wait()
		close(f.events)
	}()
	for e := range f.events {
		_ = f.hear(e)
	}
}

// sumUp writes the last line, from what is in Redis, and returns an error if something was wrong.
func (f *fleet) sumUp(ctx context.Context, p *pace, took time.Duration) error {
	results, err := f.rdb.HGetAll(ctx, f.results()).Result()
	if err != nil {
		return err
	}
	lost, times := 0, int64(0)
	for i := range f.jobs {
		n, _ := strconv.ParseInt(results["job-"+strconv.Itoa(i+1)], 10, 64)
		if n == 0 {
			lost++
		}
		times += n
	}
	most := p.most(f.interval)
	f.say("%d of %d jobs done, %d lost, %d more than once; %d of %d workers killed; most in any %v: %d (limit %d)",
		f.jobs-lost, f.jobs, lost, times-int64(f.jobs-lost), f.killed, f.started, f.interval, most, f.permits)
	switch {
	case lost > 0:
		return fmt.Errorf("%d jobs were lost", lost)
	case most > f.permits:
		return fmt.Errorf("%d jobs in one window of %v, where %d are allowed", most, f.interval, f.permits)
	case took < time.Duration(times-1)*f.rate().MinGap:
		return fmt.Errorf("%d jobs took only %v, with %v between two", times, took, f.rate().MinGap)
	}
	return nil
}

func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(f.stdout, "%5.1fs  %s\n", time.Since(f.begin).Seconds(), fmt.Sprintf(format, args...))
}

// cleanUp deletes all keys of the run.
func (f *fleet) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	client, err := ratelimiter.New(f.rdb)
	if err == nil {
		defer func() { _ = client.Close() }()
		_, err = client.RateLimiter(f.name).Admin().Delete(ctx)
	}
	err = errors.Join(err, f.rdb.Del(ctx, f.queue(f.rdb).stream, f.results()).Err())
	if err != nil {
		fmt.Fprintln(f.stderr, "worker: could not clean up:", err)
	}
}

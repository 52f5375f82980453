// SPDX-License-Identifier: Apache-2.0

// Command worker drains a queue at the pace of a limiter: jobs enter a Redis Stream at any rate, and workers,
// each a process, take them out as fast as the limit that they share allows. Together they are a leaky bucket.
//
//	go run ./examples/worker
//
// It starts an embedded Redis (or uses the one at REDIS_URL, 6.2 or later for XAUTOCLAIM), adds jobs to the
// stream, starts the workers and kills one in the middle of a job. The last line says whether no job was lost
// and the pace was kept. A worker that is told to end, by SIGTERM, finishes its job and takes no other.
//
//	export REDIS_URL=redis://localhost:6379/0    # rediss:// for TLS; REDIS_PASSWORD for the password
//	go run ./examples/worker -name jobs
//
// The parts to copy into a program are queue.go and worker.go, and redis.go without the embedded Redis. They compile outside this
// repository.
//
// The exit code is 0 on success, 1 on failure, and 2 on wrong usage.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/goredisson/ratelimiter"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	// go-redis also logs the errors that it returns.
	logging.Disable()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settings holds the settings of a run. Workers get them as flags.
type settings struct {
	redis     string
	name      string // of the limiter; the stream and the results begin with it
	jobs      int
	workers   int
	kills     int
	permits   int64
	interval  time.Duration
	busy      time.Duration
	abandoned time.Duration
	worker    string // the name of the worker that this process is; empty for the one that starts them
}

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	f.StringVar(&s.redis, "redis", "", "`URL` of a Redis, or host:port; empty for that of REDIS_URL, or else an embedded one")
	f.StringVar(&s.name, "name", "worker-example:"+uuid.NewString(), "of the limiter")
	f.IntVar(&s.jobs, "jobs", 60, "how many jobs there are to do")
	f.IntVar(&s.workers, "workers", 4, "how many work at a time")
	f.IntVar(&s.kills, "kills", 1, "how many workers to kill in the middle of a job; each is replaced")
	s.permits, s.interval = 20, time.Second
	f.Func("rate", "`RATE` of the jobs, at most 100 in an interval, such as 20/s or 10/200ms (default 20/s)", func(text string) error {
		r, err := ratelimiter.ParseRate(text)
		s.permits, s.interval = r.Permits, r.Interval
		return err
	})
	f.DurationVar(&s.busy, "busy", 100*time.Millisecond, "how long a job takes")
	f.DurationVar(&s.abandoned, "abandoned", 3*time.Second, "after which a job that somebody has taken is given to another;\nlonger than a job takes with its wait for a permit")
	f.StringVar(&s.worker, "worker", "", "be this worker, until stdin ends")
	return f
}

// args returns the flags for a worker of this run, but for the Redis, whose URL may hold a password.
func (s *settings) args(worker string) []string {
	return []string{"-name", s.name, "-rate", fmt.Sprintf("%d/%v", s.permits, s.interval),
		"-busy", s.busy.String(), "-abandoned", s.abandoned.String(), "-worker", worker}
}

func (s *settings) check() error {
	if s.jobs < 1 || s.workers < 1 || s.kills < 0 || s.permits < 1 || s.permits > 100 || s.busy < 0 || s.abandoned < time.Millisecond {
		return fmt.Errorf("%d jobs, %d workers, %d kills, rate %d, busy %v, abandoned %v: one of them is out of its range",
			s.jobs, s.workers, s.kills, s.permits, s.busy, s.abandoned)
	}
	return nil
}

// rate returns a rate at which jobs leave one by one. Without MinGap the number of jobs would be the same,
// but the first of them would come in a burst.
func (s *settings) rate() ratelimiter.Rate {
	gap := (s.interval / time.Duration(s.permits)).Truncate(time.Millisecond)
	return ratelimiter.Rate{Type: ratelimiter.Overall, Permits: s.permits, Interval: s.interval, MinGap: gap}
}

// run runs the command and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var s settings
	f := s.flags()
	f.SetOutput(stderr)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	s.redis = cmp.Or(s.redis, os.Getenv("REDIS_URL")) // not as the default of the flag, which -help would print with its password
	err := s.check()
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("it takes no argument %q", f.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return 2
	}
	if s.worker != "" {
		err = s.runWorker(ctx, stdin, stdout, stderr)
	} else {
		err = s.runFleet(ctx, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return 1
	}
	return 0
}

// runFleet runs the example on a Redis.
func (s *settings) runFleet(ctx context.Context, stdout, stderr io.Writer) error {
	var embeddedIn string
	if s.redis == "" {
		m, err := embedded()
		if err != nil {
			return err
		}
		defer m.Close()
		s.redis, embeddedIn = m.Addr(), "an embedded Redis"
	}
	rdb, err := newRedis(s.redis)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	where := cmp.Or(embeddedIn, "the Redis at "+rdb.Options().Addr)
	fmt.Fprintf(stdout, "%d jobs for %d workers on %s, %s\n", s.jobs, s.workers, where, s.rate())
	fl := &fleet{settings: s, rdb: rdb, stdout: stdout, stderr: &shared{w: stderr}}
	return fl.run(ctx)
}

// runWorker runs one worker until ctx or stdin ends. Stdin ends when the parent process dies, too.
func (s *settings) runWorker(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	rdb, err := newRedis(s.redis)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	client, err := ratelimiter.New(rdb, ratelimiter.WithHook(ratelimiter.LogHook(logger)))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	limiter := client.RateLimiter(s.name)
	if _, err := limiter.TrySetRate(ctx, s.rate()); err != nil {
		return err
	}
	w := &worker{
		jobs:    &consumer{queue: s.queue(rdb), name: s.worker},
		limiter: limiter,
		handle:  s.handler(rdb),
		report:  func(event string, j *job) { fmt.Fprintln(stdout, event, j.Payload) },
	}
	w.run(ctx)
	return nil
}

func (s *settings) queue(rdb redis.UniversalClient) *queue {
	return &queue{rdb: rdb, stream: s.name + ":jobs", group: "workers", abandoned: s.abandoned, block: 250 * time.Millisecond}
}

// handler returns the work on a job: it sleeps for a while and then counts the job in Redis.
func (s *settings) handler(rdb redis.UniversalClient) func(context.Context, *job) error {
	return func(ctx context.Context, j *job) error {
		if err := sleep(ctx, s.busy); err != nil {
			return err
		}
		return rdb.HIncrBy(ctx, s.results(), j.Payload, 1).Err()
	}
}

func (s *settings) results() string { return s.name + ":results" }

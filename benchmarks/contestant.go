// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A contestant is a way of acquiring permits that is measured.
type contestant interface {
	about() about
	// open creates a job's limiters, with all permits available, and sends what the first call needs.
	open(ctx context.Context, j job) (session, error)
	close() error
}

// about describes a contestant.
type about struct {
	key, title, version string
	// ceiling reports whether it limits nothing that processes share, and only shows what is possible.
	ceiling bool
	// keeps reports whether Redis holds its permits in Redisson's keys.
	keeps bool
	// lossy reports whether two of its grants may become one member, so that the set holds too few.
	lossy bool
	// fallible reports whether it may return errors under load. For others an error ends the program.
	fallible bool
	// unlimited reports whether it grants every request.
	unlimited bool
	// again reports whether it is another contestant with other settings, for the load rows alone.
	again bool
	// limit reports whether it is a limiter of package limit, for the rows about those. GCRA is in a few others, too.
	limit bool
	// beside reports whether it is in the rows about package limit, too: it does the same, one request a call.
	beside bool
	// pipelined reports whether its calls share pipelines. It is in the rows of many limiters alone.
	pipelined bool
	// ahead reports whether it grants one permit more than it has, for which the next request waits.
	ahead bool
	// reads reports whether it sends other commands than its script, too.
	reads bool
	// java reports whether it runs in a JVM: its allocations are unknown, and it has no workers.
	java bool
}

// A session is a contestant that works on a job.
type session interface {
	// load runs the callers of a job, which may be others than those of the job that was opened.
	load(ctx context.Context, j job) (tally, error)
	// spent returns how many permits are granted, by what is in Redis.
	spent(ctx context.Context) (int64, error)
	// keys returns the keys of the job's only limiter.
	keys() []string
}

// A movable contestant can be had on another client of Redis, too. Closing what on returns closes that client.
type movable interface {
	contestant
	on(rdb redis.UniversalClient) (contestant, error)
}

// A waiter can block until it is granted. It returns the instant of each return, in order of arrival.
type waiter interface {
	wait(ctx context.Context, name string, callers int, stagger time.Duration) ([]time.Time, error)
}

// A job is work for a contestant.
type job struct {
	prefix   string // the name of the limiter; if there are several, a number follows
	limiters int
	permits  int64 // of each limiter
	interval time.Duration
	logs     time.Duration // what a SlidingLog has for interval, unless 0
	// flows reports whether permits come back at the rate of the job, as in use. Otherwise limiters without a
	// window get one permit back each emission, so that the permits that they lack were granted.
	flows    bool
	callers  int
	duration time.Duration
	calls    int64 // of each caller, instead of a duration
}

func (j job) name(i int) string {
	if j.limiters == 1 {
		return j.prefix
	}
	return fmt.Sprintf("%s%d", j.prefix, i)
}

// refill returns the rate at which permits come back to a limiter without a window.
func (j job) refill() (permits int64, interval time.Duration) {
	if j.flows {
		return j.permits, j.interval
	}
	return 1, emission
}

// held returns how many permits a contestant's limiter of the job grants at once.
func (a about) held(j job) int64 {
	if a.ahead {
		return j.permits + 1
	}
	return j.permits
}

func (j job) names() []string {
	names := make([]string, j.limiters)
	for i := range names {
		names[i] = j.name(i)
	}
	return names
}

// A goSession is a session of a limiter in this process.
type goSession struct {
	ask   try
	count func(ctx context.Context) (int64, error)
	in    []string
}

func (s *goSession) load(ctx context.Context, j job) (tally, error) {
	t := drive(ctx, j, s.ask)
	return t, ctx.Err()
}

func (s *goSession) spent(ctx context.Context) (int64, error) { return s.count(ctx) }

func (s *goSession) keys() []string { return s.in }

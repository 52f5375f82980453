package main

import (
	"context"
	"fmt"
	"time"
)

// A contestant is one way to ask for permits.
type contestant interface {
	about() about
	// open makes a job's limiters, with all their permits, and sends what the first call needs.
	open(ctx context.Context, j job) (session, error)
	close() error
}

// about names a contestant.
type about struct {
	key, title, version string
	// ceiling says that it limits nothing that processes share: it is there to say what is possible.
	ceiling bool
	// keeps says that Redis holds its permits in Redisson's keys.
	keeps bool
	// lossy says that two of its grants may become one member, so that the set holds too few.
	lossy bool
	// fallible says that it may answer errors under load; for others one error ends the program.
	fallible bool
	// unlimited says that it grants whatever it is asked.
	unlimited bool
	// again says that it is another in other circumstances, for the load rows alone.
	again bool
	// limit says that it is one of package limit's, for the rows about those.
	limit bool
	// beside says that it stands in the rows about package limit, too: it does the same, each request by itself.
	beside bool
	// ahead says that a limiter grants one permit more than it has, which the next one waits for.
	ahead bool
	// reads says that it asks Redis outside of its script, too.
	reads bool
	// java says that it is no Go code of this process: allocations are unknown, workers impossible.
	java bool
}

// A session is a contestant at work on a job.
type session interface {
	// load has the job's callers ask; the job may have other callers than the one that was opened.
	load(ctx context.Context, j job) (tally, error)
	// spent is how many permits the limiters hold as granted, by what is in Redis.
	spent(ctx context.Context) (int64, error)
	// keys are the keys of the job's only limiter.
	keys() []string
}

// A waiter can block until it is granted. It answers the instant of each return, in order of arrival.
type waiter interface {
	wait(ctx context.Context, name string, callers int, stagger time.Duration) ([]time.Time, error)
}

// A job is work for a contestant.
type job struct {
	prefix   string // the name of the limiter, or of all of them before their number
	limiters int
	permits  int64 // of each limiter
	interval time.Duration
	logs     time.Duration // what a SlidingLog has for interval, unless 0
	// flows says that the permits come back at permits an interval, as users have it. Else those that count
	// no window give one back each emission, so that what is gone from them was granted.
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

// refill is the rate at which permits come back to a limiter that counts no window.
func (j job) refill() (permits int64, interval time.Duration) {
	if j.flows {
		return j.permits, j.interval
	}
	return 1, emission
}

// held is how many permits a contestant's limiter of that job grants at once.
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

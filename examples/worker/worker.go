package main

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A worker does jobs, each for one permit.
type worker struct {
	jobs    *consumer
	limiter *ratelimiter.RateLimiter
	handle  func(context.Context, *job) error
	report  func(event string, j *job)
}

// The events of a worker.
const (
	eventAgain  = "again"  // it has taken a job that somebody left behind
	eventBegins = "begins" // it has a permit and begins to work
	eventFailed = "failed" // the work or Redis failed; the job is taken again later
	eventDone   = "done"
)

// run takes jobs and does them until ctx ends. A job that it has then and has not done is somebody
// else's when the queue takes it for abandoned, as is one whose work has failed.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		j, err := w.jobs.take(ctx)
		if err == nil && j != nil {
			err = w.do(ctx, j)
		}
		if err != nil && ctx.Err() == nil {
			if j != nil {
				w.report(eventFailed, j)
			}
			_ = retry.Sleep(ctx, time.Second) // Redis is away, as a rule
		}
	}
}

// do waits for a permit, does the job, and only then says that it is done.
func (w *worker) do(ctx context.Context, j *job) error {
	if j.Again {
		w.report(eventAgain, j)
	}
	if err := w.limiter.Acquire(ctx, 1); err != nil {
		return err
	}
	w.report(eventBegins, j)
	if err := w.handle(ctx, j); err != nil {
		return err
	}
	if err := w.jobs.done(ctx, j); err != nil {
		return err
	}
	w.report(eventDone, j)
	return nil
}

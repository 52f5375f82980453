// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter"
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
	eventAgain  = "again"  // it has taken a job that another worker abandoned
	eventBegins = "begins" // it has a permit and begins to work
	eventFailed = "failed" // the work or Redis failed; the job is taken again later
	eventDone   = "done"
)

// run takes jobs and does them until ctx ends. A job that has begun then is finished. One that waits for its permit, or whose
// work failed, goes to another worker once it counts as abandoned.
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
			_ = sleep(ctx, time.Second) // usually Redis cannot be reached
		}
	}
}

// do waits for a permit, does the job, and then removes it from the queue.
func (w *worker) do(ctx context.Context, j *job) error {
	if j.Again {
		w.report(eventAgain, j)
	}
	if err := w.limiter.Acquire(ctx, 1); err != nil {
		return err
	}
	w.report(eventBegins, j)
	// The permit is spent, so the work goes on although the worker is told to end, until another one would take the job.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.jobs.abandoned)
	defer cancel()
	if err := w.handle(ctx, j); err != nil {
		return err
	}
	if err := w.jobs.done(ctx, j); err != nil {
		return err
	}
	w.report(eventDone, j)
	return nil
}

// sleep returns after d, or with the error of ctx when it ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

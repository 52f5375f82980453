// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/hibiken/asynq"
)

// A deferred task has had no permit. It goes back into the queue instead of waiting, so that its worker is free for other tasks.
type deferred struct {
	limiter string
	by      time.Duration
}

func (e *deferred) Error() string {
	return fmt.Sprintf("limiter %q has no permit, again in %v", e.limiter, e.by.Round(time.Millisecond))
}

// AsynqLimit has each task of a handler take a permit of l, or go back into the queue until there may be one. In its last
// attempt a task waits here for its permit, because asynq archives what comes back from that one.
func AsynqLimit(l *ratelimiter.RateLimiter) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if err := permit(ctx, l); err != nil {
				return err // other than a deferred it is an ordinary failure: asynq tries again, later each time
			}
			return next.ProcessTask(ctx, task)
		})
	}
}

func permit(ctx context.Context, l *ratelimiter.RateLimiter) error {
	tried, _ := asynq.GetRetryCount(ctx)
	if most, _ := asynq.GetMaxRetry(ctx); tried >= most {
		return l.Acquire(ctx, 1)
	}
	r, err := l.Allow(ctx, 1)
	if err == nil && !r.Granted {
		err = &deferred{l.Name(), r.Wait + rand.N(r.Wait+time.Second)} // not all of them at once
	}
	return err
}

// AsynqDefers returns c with what AsynqLimit needs: a deferred task comes back when its error says so, and that is no failure,
// so it does not count towards the task's MaxRetry.
func AsynqDefers(c asynq.Config) asynq.Config {
	failed, delay := c.IsFailure, c.RetryDelayFunc
	if failed == nil {
		failed = func(err error) bool { return err != nil }
	}
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	c.IsFailure = func(err error) bool {
		var d *deferred
		return !errors.As(err, &d) && failed(err)
	}
	c.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		var d *deferred
		if errors.As(err, &d) {
			return d.by
		}
		return delay(n, err, task)
	}
	return c
}

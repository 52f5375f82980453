// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// tell calls f with each Hook. It tells the others of one that panics.
func (c *Limiter) tell(f func(*ratelimiter.Hook)) {
	retry.Each(c.Hooks, f, func(i int, err error) {
		e := ratelimiter.Event{Kind: ratelimiter.Panicked, Limiter: c.Name, Time: time.Now(), Err: err}
		for j := range c.Hooks {
			if told := c.Hooks[j].Event; told != nil && j != i {
				_ = retry.Contain("a Hook", func() { told(e) })
			}
		}
	})
}

// Event tells the Hooks of an event.
func (c *Limiter) Event(e ratelimiter.Event) {
	e.Limiter, e.Time = c.Name, time.Now()
	c.tell(func(h *ratelimiter.Hook) {
		if h.Event != nil {
			h.Event(e)
		}
	})
}

// asked calls ask, which is a request for n permits, and tells the Hooks of it. It returns what ask returns.
func (c *Limiter) asked(ctx context.Context, op ratelimiter.Operation, n int64, ask func() (Outcome, error)) (Outcome, error) {
	if len(c.Hooks) == 0 {
		return ask()
	}
	waits := op == ratelimiter.OperationAcquire
	if waits {
		c.waiting(1)
	}
	if ctx == nil { // which is the error
		ctx = context.Background()
	}
	begin := time.Now()
	r, err := ask()
	if waits {
		c.waiting(-1)
	}
	info := ratelimiter.RequestInfo{Limiter: c.Name, Operation: op, Permits: n, Begin: begin, Duration: time.Since(begin), Err: err}
	// It is rejected also if its time is known to be too short.
	info.Degraded = r.Degraded
	info.Outcome = ratelimiter.RequestOutcome(permit.Outcome(r.Granted, string(ratelimiter.RequestRejected), err))
	c.tell(func(h *ratelimiter.Hook) {
		if h.Request != nil {
			h.Request(ctx, info)
		}
	})
	return r, err
}

func (c *Limiter) waiting(delta int) {
	c.tell(func(h *ratelimiter.Hook) {
		if h.Waiting != nil {
			h.Waiting(c.Name, delta)
		}
	})
}

// called tells the Hooks of an attempt at a call.
func (c *Limiter) called(script string, requests int, begin time.Time, err error) {
	if len(c.Hooks) == 0 {
		return
	}
	info := ratelimiter.CallInfo{Script: script, Limiter: c.Name, Requests: int64(requests), Duration: time.Since(begin), Err: err}
	c.tell(func(h *ratelimiter.Hook) {
		if h.Call != nil {
			h.Call(info)
		}
	})
}

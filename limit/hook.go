// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// WithHook adds a Hook that the limiter calls as a ratelimiter.Client does: once for each request, and once for each attempt
// at a call. The operation of [Shared.Allow] is OperationAllow, and that of [Wait] and [WaitTimeout] is OperationAcquire. The
// Hook gets the name of the limiter and never a key. For a request that is rejected without a call, Replied is false. If a
// Hook panics, the others get an event of kind ratelimiter.Panicked, and nothing else happens.
func WithHook(h ratelimiter.Hook) Option {
	return func(c *config) { c.hooks = append(c.hooks, h) }
}

// tell calls f with each Hook. It tells the others of one that panics.
func (c *config) tell(f func(*ratelimiter.Hook)) {
	retry.Each(c.hooks, f, func(i int, err error) {
		e := ratelimiter.Event{Kind: ratelimiter.Panicked, Limiter: c.name, Time: time.Now(), Err: err}
		for j := range c.hooks {
			if told := c.hooks[j].Event; told != nil && j != i {
				_ = retry.Contain("a Hook", func() { told(e) })
			}
		}
	})
}

// event tells the Hooks of an event.
func (c *config) event(e ratelimiter.Event) {
	e.Limiter, e.Time = c.name, time.Now()
	c.tell(func(h *ratelimiter.Hook) {
		if h.Event != nil {
			h.Event(e)
		}
	})
}

// asked calls ask, which is a request for n permits, and tells the Hooks of it. It returns what ask returns.
func (c *config) asked(ctx context.Context, op ratelimiter.Operation, n int64, ask func() (ratelimiter.Result, error)) (ratelimiter.Result, error) {
	if len(c.hooks) == 0 {
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
	info := ratelimiter.RequestInfo{Limiter: c.name, Operation: op, Permits: n, Begin: begin, Duration: time.Since(begin), Err: err}
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

func (c *config) waiting(delta int) {
	c.tell(func(h *ratelimiter.Hook) {
		if h.Waiting != nil {
			h.Waiting(c.name, delta)
		}
	})
}

// called tells the Hooks of an attempt at a call.
func (c *config) called(script string, requests int, begin time.Time, err error) {
	if len(c.hooks) == 0 {
		return
	}
	info := ratelimiter.CallInfo{Script: script, Limiter: c.name, Requests: int64(requests), Duration: time.Since(begin), Err: err}
	c.tell(func(h *ratelimiter.Hook) {
		if h.Call != nil {
			h.Call(info)
		}
	})
}

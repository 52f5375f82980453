// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// This file tells the health of Redis what calls show, and decides the requests on their way when an outage begins
// although nothing has failed.

// markDown records that Redis did not execute a call of h in any attempt, of which the last was sent at that instant.
func (h *Handle) markDown(sent time.Time, failure *retry.Error) {
	if h.Health().MarkDown(sent, failure.Err, failure.ReadOnly) {
		h.observe(Event{Kind: OutageBegan, Err: failure.Err})
	}
}

// noteReply records what the reply to a call shows that was sent at the given instant on behalf of c, which may be
// nil. It does nothing if err shows that there was no reply.
func (h *Handle) noteReply(c *outage.Call, sent time.Time, err error) {
	failure, failed := err.(*retry.Error)
	switch {
	case !failed || failure.Outcome == retry.Executed && failure.Answered:
		h.replied(c, sent, outage.Ran)
	case failure.Answered:
		h.replied(c, sent, outage.NotYet)
	}
}

func (h *Handle) replied(c *outage.Call, sent time.Time, what outage.Reply) {
	if ended, lasted, granted := h.Health().Replied(c, sent, what); ended {
		h.observe(Event{Kind: OutageEnded, Duration: lasted, Granted: granted})
	}
}

// proveBeside makes the probe of any outage on behalf of c. It returns as soon as ctx is done, which does not end the
// probe: the contexts of callers may be too short for it.
func (h *Handle) proveBeside(ctx context.Context, c *outage.Call) error {
	background := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		defer h.Health().End(c)
		return h.proof(background, c)
	}
	done := make(chan error, 1)
	err := h.Background(func() {
		err := h.proof(background, c)
		h.Health().End(c)
		done <- err
	})
	if err != nil {
		h.Health().End(c)
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &retry.Error{Err: ctx.Err(), Outcome: retry.NotExecuted}
	}
}

// prove makes the probe of an outage that not every reply ends, on behalf of c. The error, a *[retry.Error], tells
// why the outage goes on. In other outages the call of c itself is the probe, and prove does nothing.
func (h *Handle) prove(ctx context.Context, c *outage.Call) error {
	if !h.Health().NeedsProof() {
		return nil
	}
	return h.proof(ctx, c)
}

// proof makes a probe, on behalf of c. The error, a *[retry.Error], tells why the outage goes on.
func (h *Handle) proof(ctx context.Context, c *outage.Call) error {
	health := h.Health()
	sent := time.Now()
	// A reply that comes later proves nothing, and whoever waits for it keeps others from probing.
	bounded, cancel := context.WithTimeout(ctx, outage.MaxProof)
	defer cancel()
	err := h.backend.Probe(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = &retry.Error{Err: fmt.Errorf("no reply to a probe within %v", outage.MaxProof), Outcome: retry.NotExecuted}
	}
	if failure, ok := err.(*retry.Error); ok && !(failure.Outcome == retry.Executed && failure.Answered) {
		h.noteReply(c, sent, err)
		return failure
	}
	h.replied(c, sent, outage.Wrote)
	if _, err := health.Since(); err != nil {
		return &retry.Error{Err: err, Outcome: retry.NotExecuted}
	}
	return nil
}

// TooSlow implements [outage.Owner].
func (h *Handle) TooSlow(err error) {
	h.engine.decideAll(h.Health(), err)
	h.observe(Event{Kind: OutageBegan, Err: err})
}

// decideAll decides the requests on their way to the Redis of that health, which is down because of cause: those that
// do not wait, and those that a policy serves. What Redis grants them afterwards goes back.
func (e *Engine) decideAll(health *outage.Health, cause error) {
	for i := range e.shards {
		s := &e.shards[i]
		var ended []*request
		s.lock()
		for _, l := range s.limiters {
			if l.h.Health() == health {
				ended = l.decideAllLocked(cause, ended)
			}
		}
		s.unlock()
		wake(ended)
	}
	e.slowed.Happened()
}

// decideAllLocked is decideAll for one limiter. A caller that makes its call itself, which only a caller without a
// policy and without an end does, gets the reply, however late.
func (l *limiter) decideAllLocked(cause error, ended []*request) []*request {
	err := permit.Unavailable("acquire", l.h.name, withLast(cause, l.lastErr))
	for _, f := range l.flights {
		if f.inline || f.healthProbe {
			continue
		}
		ended = f.answerLocallyLocked(ended)
		ended, _ = f.endCallersLocked(err, ended, func(r *request) bool { return r.want.Wait })
		f.dropSharersLocked()
	}
	if len(l.flights) > 0 {
		for l.tries.n > 0 {
			ended = l.tries.first.failLocked(err, ended)
		}
	}
	return ended
}

// dropSharersLocked removes from the flight the callers in the queue for the local quota, so that Redis grants them nothing
// while the share does.
func (f *flight) dropSharersLocked() {
	for i := range f.Runs {
		for j, r := range f.callers[i] {
			if r != nil && r.live() && r.sharesLocally() {
				r.state = isQueued
				f.callers[i][j] = nil
			}
		}
	}
}

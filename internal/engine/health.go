// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// This file tells the health of Redis what calls show, and decides the requests on their way when an outage begins
// although nothing has failed.

// decideAll decides the requests on their way to the Redis of that health, which is down because of cause: those that
// do not wait, and those that a policy serves. What Redis grants them afterwards goes back.
func (e *Engine) decideAll(health *outage.Health, cause error) {
	for i := range e.shards {
		s := &e.shards[i]
		var ended []*request
		s.lock()
		for _, l := range s.limiters {
			if l.link.Health() == health {
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
	err := permit.Unavailable("acquire", l.link.Name, link.WithLast(cause, l.lastErr))
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

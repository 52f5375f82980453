// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"github.com/goredisson/ratelimiter/internal/link"
	"time"
)

// This file is for tests, including those of package ratelimiter.

// Together takes several requests that do not wait, as if each came from a caller of its own at the same
// instant.
func (h *Handle) Together(ctx context.Context, want []Request) []Outcome {
	requests := make([]*request, len(want))
	h.shard.Lock()
	l := h.shard.limiterLocked(&h.Link)
	for i, w := range want {
		r := h.shard.engine.newRequest()
		r.ctx, r.want = ctx, Request{Permits: w.Permits, TellWait: w.TellWait, Policy: w.Policy}
		requests[i] = r
		l.tries.push(r)
	}
	l.scheduleLocked()
	h.shard.Unlock()
	outcomes := make([]Outcome, len(want))
	for i, r := range requests {
		<-r.done
		outcomes[i] = r.Outcome
	}
	return outcomes
}

// Beside returns a handle of another limiter whose key hashes like that of h.
func (h *Handle) Beside(key, name string, b link.Backend) Handle {
	o := *h
	o.QueueID, o.Name, o.Backend = link.QueueID{Key: key}, name, b
	return o
}

// IsBeside reports whether the keys of h and o hash alike. Of such limiters that are used in turn each is forgotten
// when the other one is used.
func (h *Handle) IsBeside(o *Handle) bool { return h.shard == o.shard }

// A Snapshot is the state of one limiter in this process at one instant.
type Snapshot struct {
	Waiting    int // callers in the queue
	Trying     int // callers that do not wait, in flights or behind them
	Asleep     int // callers in the queue, if no call is in flight and the queue is not due
	Pending    int // grants that Redis has to be told of
	Remembered int // limiters that the shard remembers for outages
}

// Snapshot returns the state of the limiter in this process.
func (h *Handle) Snapshot() (s Snapshot) {
	h.shard.Lock()
	defer h.shard.Unlock()
	if m := h.shard.rememberedLocked(h.Key); m != nil {
		s.Pending = m.Pending()
	}
	if h.shard.memory != nil {
		s.Remembered = h.shard.memory.Len()
	}
	l := h.shard.findLocked(h.QueueID)
	if l == nil {
		return s
	}
	s.Waiting, s.Trying = l.waiters.n, l.tries.n
	for _, f := range l.flights {
		if !f.InOrder {
			s.Trying += int(f.Requests())
		}
	}
	if len(l.flights) == 0 && !l.first.askAt.IsZero() {
		s.Asleep = l.waiters.n
	}
	return s
}

// Idle reports whether nobody waits and no call is in flight.
func (e *Engine) Idle() bool {
	for i := range e.shards {
		s := &e.shards[i]
		s.Lock()
		for _, l := range s.limiters {
			if !l.idleLocked() {
				s.Unlock()
				return false
			}
		}
		s.Unlock()
	}
	return true
}

// CheckIdle returns an error if the Engine is not idle: somebody waits, a call is in flight, a shard keeps
// more than one limiter, or a timer is armed for an idle limiter or for the request of a caller that has left.
// It stops such timers.
func (e *Engine) CheckIdle() error {
	var errs []error
	check := func(what string, t *time.Timer) {
		if t != nil && t.Stop() {
			errs = append(errs, fmt.Errorf("%s has a timer armed", what))
		}
	}
	if !e.system.Idle() {
		errs = append(errs, errors.New("somebody waits for a reply of Redis, or a timer for that is armed"))
	}
	for i := range e.shards {
		s, kept := &e.shards[i], 0
		s.Lock()
		limiters := []*limiter{}
		if s.free != nil {
			limiters = append(limiters, s.free)
		}
		for _, l := range s.limiters {
			if kept++; !l.idleLocked() {
				errs = append(errs, fmt.Errorf("%s is not idle", l.link.Name))
				continue
			}
			limiters = append(limiters, l)
		}
		if kept > 1 {
			errs = append(errs, fmt.Errorf("a shard keeps %d limiters", kept))
		}
		for _, l := range limiters {
			check("the queue of an idle limiter", l.timer)
			check("the local quota of an idle limiter", l.offline.timer)
			if !l.offline.due.IsZero() {
				errs = append(errs, errors.New("the local quota of an idle limiter is due"))
			}
		}
		s.Unlock()
	}
	for r, ok := e.requests.Get().(*request); ok; r, ok = e.requests.Get().(*request) {
		check("a request whose caller left", r.timer)
	}
	return errors.Join(errs...)
}

package ratelimiter

import (
	"context"
	"fmt"
	"time"
)

// This file is what an engine does for the requests of policies that are not closed while Redis is known
// to be away. The bucket's lock is held.

// withoutRedis answers r by its policy, if Redis is away and r need not wait. Otherwise r goes the usual
// way. Here somebody probes when it is time: where requests are answered at once no call leaves, and Redis
// would stay away for ever.
func (e *engine) withoutRedis(r *request) (answered bool) {
	e.remember()
	o := e.l.outage()
	since, cause := o.begun()
	if cause == nil {
		return false
	}
	if e.trying < maxSlow && o.claim() {
		e.probe(r.ctx)
	}
	now := time.Now()
	behind := time.Time{}
	if e.shareLine() && r.policy.kind == localShare {
		behind = e.shareDue
	}
	at, answered := e.decide(r, now, since, cause, behind)
	if !answered && (!e.shareDue.After(now) || at.Before(e.shareDue)) {
		e.setShareTimer(at)
	}
	return answered
}

// probe asks Redis for nothing.
func (e *engine) probe(ctx context.Context) {
	c := e.newCall()
	c.ghost, c.ask.probe, c.ctx = true, true, context.WithoutCancel(ctx)
	c.runs = append(c.runs[:0], run{permits: 1, count: 1})
	e.trying++
	e.start(c)
}

// decide answers r as its policy says, if that can be done now. Otherwise r is a blocking one, and at is
// when. Where behind is not zero, others wait for the share until then at least, before r.
func (e *engine) decide(r *request, now, since time.Time, cause error, behind time.Time) (at time.Time, answered bool) {
	m := e.remember()
	at, left, err := m.when(r.policy, r.permits, now, since)
	if err != nil {
		r.err = fmt.Errorf("%w: acquire of %q: %w: %w", ErrUnavailable, e.l.name, err, cause)
		return at, true
	}
	r.degraded = true
	if behind.After(at) {
		at = behind
	}
	if behind.IsZero() && !at.After(now) {
		m.take(r.policy, r.permits, now)
		e.l.outage().granted()
		r.granted, r.available = true, max(0, left-r.permits)
		r.answer = m.answer(r.policy, now)
		return at, true
	}
	tooLate := e.l.client.cfg.refuseEarly && !r.deadline.IsZero() && r.deadline.Before(at)
	if r.blocking && !tooLate {
		return at, false
	}
	r.wait, r.available = max(at.Sub(now), time.Millisecond), left
	r.answer = m.answer(r.policy, now)
	return at, true
}

// shareLine says whether callers stand in line for the local share.
func (e *engine) shareLine() bool {
	r := e.waiters.first
	for r != nil && (r.policy == nil || r.policy.kind != localShare) {
		r = r.next
	}
	return r != nil
}

// serve answers those in line whom their policy can answer, in their order, and sets the timer for the
// next. With all it looks at everybody, otherwise no further than to the first who has to wait.
func (e *engine) serve(all bool, ended []*request) []*request {
	since, cause := e.l.outage().begun()
	if cause == nil {
		e.setShareTimer(time.Time{})
		return ended
	}
	var (
		now    = time.Now()
		head   = e.waiters.first
		due    time.Time // the first of them
		behind time.Time // the first of those who wait for the share
	)
	for r := head; r != nil && (all || due.IsZero()); {
		next := r.next
		if p := r.policy; p != nil {
			before := behind
			if p.kind != localShare {
				before = time.Time{}
			}
			at, answered := e.decide(r, now, since, cause, before)
			switch {
			case answered:
				ended = r.end(ended)
			case due.IsZero() || at.Before(due):
				due = at
			}
			if !answered && p.kind == localShare && behind.IsZero() {
				behind = at
			}
		}
		r = next
	}
	if e.waiters.first != head {
		e.headSince = now
	}
	if len(ended) > 0 {
		e.dropEnded()
	}
	e.setShareTimer(due)
	return ended
}

// dropEnded takes those who were answered without Redis out of the line's call: once they are woken they
// may be somebody else's requests.
func (e *engine) dropEnded() {
	for _, c := range e.calls {
		for i := range c.runs {
			for j, r := range c.runs[i].callers {
				if r != nil && r.ended {
					c.runs[i].callers[j] = nil
				}
			}
		}
	}
}

// setShareTimer has serve called at due; zero for not at all.
func (e *engine) setShareTimer(due time.Time) {
	e.shareDue = due
	switch {
	case due.IsZero() || e.bucket.closed:
		if e.shareTimer != nil {
			e.shareTimer.Stop()
		}
	case e.shareTimer == nil:
		e.shareTimer = time.AfterFunc(time.Until(due), e.serveShare)
	default:
		e.shareTimer.Reset(time.Until(due))
	}
}

// serveShare is what the timer of the share runs. A timer that has fired cannot be stopped any more: the
// engine may by now have been let go, or be another limiter's, and only shareDue says what it waits for.
func (e *engine) serveShare() {
	e.bucket.mu.Lock()
	var ended []*request
	if !e.shareDue.IsZero() && !time.Now().Before(e.shareDue) {
		ended = e.serve(false, nil)
		e.rest()
	}
	e.bucket.mu.Unlock()
	wake(ended)
}

// degrade answers those in the call and in the queues whom their policy can answer, when Redis is known to
// be away.
func (c *call) degrade(ended []*request) []*request {
	e := c.engine
	since, cause := e.l.outage().begun()
	if cause == nil {
		return ended
	}
	ended = e.serve(true, ended)
	now, behind := time.Now(), time.Time{}
	if e.shareLine() {
		behind = e.shareDue
	}
	decide := func(r *request) {
		before := behind
		if r.policy.kind != localShare {
			before = time.Time{}
		}
		_, _ = e.decide(r, now, since, cause, before)
		ended = r.end(ended)
	}
	for i := range c.runs {
		for j, r := range c.runs[i].callers {
			if r != nil && r.live() && r.policy != nil && !r.blocking {
				decide(r)
				c.runs[i].callers[j] = nil
			}
		}
	}
	for r := e.tries.first; r != nil; {
		next := r.next
		if r.policy != nil {
			decide(r)
		}
		r = next
	}
	return ended
}

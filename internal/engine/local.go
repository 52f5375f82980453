package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// This file is what a limiter does for the requests of policies that are not closed while Redis is known to be away.

// localShareLocked returns what is known of the limiter without Redis, made if need be.
func (l *limiter) localShareLocked() *outage.Share {
	if l.local == nil {
		s, key := l.shard, l.h.key
		m := s.locals[key]
		if m == nil {
			if s.locals == nil {
				s.locals = map[string]*outage.Share{}
			}
			s.forgetLocked()
			m = outage.NewShare(l.rate)
			s.locals[key] = m
		}
		l.local = m
	}
	return l.local
}

// tryLocalLocked decides r by its policy, if Redis is away and r need not wait, and reports whether it did. Otherwise
// r goes the usual way. Here somebody probes when it is time: where requests are decided at once no flight leaves, and
// Redis would stay away for ever.
func (l *limiter) tryLocalLocked(r *request) (decided bool) {
	l.localShareLocked()
	health := l.h.Health()
	since, cause := health.Since()
	if cause == nil {
		return false
	}
	l.probeLocked(r.ctx, health)
	now := time.Now()
	behind := time.Time{}
	if l.hasLocalLineLocked() && r.policy.Kind == outage.LocalShare {
		behind = l.localDue
	}
	at, decided := l.decideLocallyLocked(r, now, since, cause, behind)
	if !decided && (!l.localDue.After(now) || at.Before(l.localDue)) {
		l.setLocalTimerLocked(at)
	}
	return decided
}

// probeLocked asks Redis for nothing, when it is time to.
func (l *limiter) probeLocked(ctx context.Context, health *outage.Health) {
	if l.triesInFlight >= maxSlowTries || !health.TryProbe() {
		return
	}
	f := l.newFlightLocked()
	f.healthProbe, f.DryRun, f.ctx = true, true, context.WithoutCancel(ctx)
	f.Runs = append(f.Runs[:0], permit.Run{Permits: 1, Count: 1})
	if len(f.callers) == 0 {
		f.callers = append(f.callers, nil)
	}
	f.callers[0] = f.callers[0][:0]
	l.triesInFlight++
	l.startLocked(f)
}

// decideLocallyLocked decides r as its policy says, if that can be done now. Otherwise r is a blocking one, and at is
// when. Where behind is not zero, others wait for the share until then at least, before r.
func (l *limiter) decideLocallyLocked(r *request, now, since time.Time, cause error, behind time.Time) (at time.Time, decided bool) {
	m := l.localShareLocked()
	at, left, err := m.When(r.policy, r.permits, now, since)
	if err != nil {
		r.Err = fmt.Errorf("%w: acquire of %q: %w: %w", permit.ErrUnavailable, l.h.name, err, cause)
		return at, true
	}
	r.Degraded = true
	if behind.After(at) {
		at = behind
	}
	if behind.IsZero() && !at.After(now) {
		m.Take(r.policy, r.permits, now)
		l.h.Health().CountGrant()
		r.Granted, r.Available = true, max(0, left-r.permits)
		r.Reply = m.Reply(r.policy, now)
		return at, true
	}
	tooLate := l.h.engine.cfg.RefuseEarly && !r.deadline.IsZero() && r.deadline.Before(at)
	if r.blocking && !tooLate {
		return at, false
	}
	r.Wait, r.Available = max(at.Sub(now), time.Millisecond), left
	r.Reply = m.Reply(r.policy, now)
	return at, true
}

// hasLocalLineLocked reports whether callers stand in line for the local share.
func (l *limiter) hasLocalLineLocked() bool {
	r := l.waiters.first
	for r != nil && (r.policy == nil || r.policy.Kind != outage.LocalShare) {
		r = r.next
	}
	return r != nil
}

// serveLineLocked decides those in line for whom their policy can, in their order, and sets the timer for the
// next. With all it looks at everybody, otherwise no further than to the first who has to wait.
func (l *limiter) serveLineLocked(all bool, ended []*request) []*request {
	since, cause := l.h.Health().Since()
	if cause == nil {
		l.setLocalTimerLocked(time.Time{})
		return ended
	}
	var (
		now    = time.Now()
		head   = l.waiters.first
		due    time.Time // the first of them
		behind time.Time // the first of those who wait for the share
	)
	for r := head; r != nil && (all || due.IsZero()); {
		next := r.next
		if p := r.policy; p != nil {
			before := behind
			if p.Kind != outage.LocalShare {
				before = time.Time{}
			}
			at, decided := l.decideLocallyLocked(r, now, since, cause, before)
			switch {
			case decided:
				ended = r.endLocked(ended)
			case due.IsZero() || at.Before(due):
				due = at
			}
			if !decided && p.Kind == outage.LocalShare && behind.IsZero() {
				behind = at
			}
		}
		r = next
	}
	if l.waiters.first != head {
		l.headSince = now
	}
	if len(ended) > 0 {
		l.dropEndedLocked()
	}
	l.setLocalTimerLocked(due)
	return ended
}

// dropEndedLocked takes those who were decided without Redis out of the line's flight: once they are woken they
// may be somebody else's requests.
func (l *limiter) dropEndedLocked() {
	for _, f := range l.flights {
		for i := range f.Runs {
			for j, r := range f.callers[i] {
				if r != nil && r.ended {
					f.callers[i][j] = nil
				}
			}
		}
	}
}

// setLocalTimerLocked has serveLineLocked called at due; zero for not at all.
func (l *limiter) setLocalTimerLocked(due time.Time) {
	l.localDue = due
	switch {
	case due.IsZero() || l.shard.closed:
		if l.localTimer != nil {
			l.localTimer.Stop()
		}
	case l.localTimer == nil:
		l.localTimer = time.AfterFunc(time.Until(due), l.onLocalTimer)
	default:
		l.localTimer.Reset(time.Until(due))
	}
}

// onLocalTimer is what the timer of the local share runs. A timer that has fired cannot be stopped any more: the
// limiter may by now have been evicted, or be another one, and only localDue says what it waits for.
func (l *limiter) onLocalTimer() {
	l.shard.lock()
	var ended []*request
	if !l.localDue.IsZero() && !time.Now().Before(l.localDue) {
		ended = l.serveLineLocked(false, nil)
		l.rearmLocked()
	}
	l.shard.unlock()
	wake(ended)
}

// answerLocallyLocked decides those in the flight and in the queues for whom their policy can, when Redis is known to
// be away.
func (f *flight) answerLocallyLocked(ended []*request) []*request {
	l := f.limiter
	since, cause := l.h.Health().Since()
	if cause == nil {
		return ended
	}
	ended = l.serveLineLocked(true, ended)
	now, behind := time.Now(), time.Time{}
	if l.hasLocalLineLocked() {
		behind = l.localDue
	}
	decide := func(r *request) {
		before := behind
		if r.policy.Kind != outage.LocalShare {
			before = time.Time{}
		}
		_, _ = l.decideLocallyLocked(r, now, since, cause, before)
		ended = r.endLocked(ended)
	}
	for i := range f.Runs {
		for j, r := range f.callers[i] {
			if r != nil && r.live() && r.policy != nil && !r.blocking {
				decide(r)
				f.callers[i][j] = nil
			}
		}
	}
	for r := l.tries.first; r != nil; {
		next := r.next
		if r.policy != nil {
			decide(r)
		}
		r = next
	}
	return ended
}

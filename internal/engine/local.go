// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// While Redis is down, this file decides requests by their outage policy. It also ends those in flight when Redis
// turns out to be too slow.

// An offline is what a limiter needs for outages, besides its ledger in the memory of the shard.
type offline struct {
	servedFor time.Time // when the outage began for which the whole queue has been looked at; zero for none
	timer     *time.Timer
	due       time.Time // when timer fires; zero if it is not armed
}

// ledgerLocked returns the ledger of the limiter, and creates it if necessary. It returns nil if most ledgers of the
// shard are in use.
func (l *limiter) ledgerLocked(most int) *outage.Ledger {
	if l.shard.memory == nil {
		l.shard.memory = &outage.Memory{}
	}
	return l.shard.memory.Ledger(l.link.Key, most, l.rate, l.shard.usesLocked)
}

// whenLocallyLocked returns the ledger of the limiter, and when it can grant r; see [outage.Ledger.When]. If the shard
// has no room for another ledger, nothing can be counted: then a local quota returns an error, and FailOpen, which
// counts nothing, grants.
func (l *limiter) whenLocallyLocked(p *outage.Policy, permits int64, now, since time.Time, cause error) (ledger *outage.Ledger, at time.Time, left int64, err error) {
	if ledger = l.ledgerLocked(outage.MaxLedgers); ledger == nil && p.Kind == outage.FailOpen {
		ledger = outage.NewLedger(l.rate)
	}
	if ledger == nil {
		err = outage.ErrNoMemory
	} else {
		at, left, err = ledger.When(p, permits, now, since)
	}
	if err != nil {
		err = fmt.Errorf("%w: acquire of %q: %w: %w", permit.ErrUnavailable, l.link.Name, err, cause)
	}
	return ledger, at, left, err
}

// tryLocalLocked decides r by its policy, if Redis is down and r need not wait, and reports whether it did. Otherwise
// r takes the usual path.
func (l *limiter) tryLocalLocked(r *request) (decided bool) {
	health := l.link.Health()
	since, cause := health.Since()
	if cause == nil {
		l.ledgerLocked(outage.MaxLedgers) // it learns what Redis replies
		return false
	}
	now := time.Now()
	behind := time.Time{}
	if l.hasLocalQueueLocked() {
		behind = l.offline.due
	}
	at, decided := l.decideLocallyLocked(r, now, since, cause, behind)
	if !decided && (!l.offline.due.After(now) || at.Before(l.offline.due)) {
		l.setLocalTimerLocked(at)
	}
	return decided
}

// decideLocallyLocked decides r by its policy, if that is possible now. Otherwise r is a blocking request, and at is
// when it can be decided. If behind is not zero, others wait for the local quota, at least until behind, and r comes
// after them if it wants the quota, too.
func (l *limiter) decideLocallyLocked(r *request, now, since time.Time, cause error, behind time.Time) (at time.Time, decided bool) {
	if r.want.Policy.Kind != outage.LocalQuota {
		behind = time.Time{}
	}
	ledger, at, left, err := l.whenLocallyLocked(r.want.Policy, r.want.Permits, now, since, cause)
	if err != nil {
		r.Err = err
		return at, true
	}
	r.Degraded = true
	if behind.After(at) {
		at = behind
	}
	if behind.IsZero() && !at.After(now) {
		ledger.Take(r.want.Policy, r.want.Permits, now)
		l.link.Health().CountGrant()
		r.Granted, r.Available = true, max(0, left-r.want.Permits)
		r.Reply = ledger.Reply(r.want.Policy, now)
		return at, true
	}
	tooLate := l.shard.engine.cfg.RejectEarly && r.hasDeadline() && r.deadline().Before(at)
	if r.want.Wait && !tooLate {
		return at, false
	}
	r.Wait, r.Available = max(at.Sub(now), time.Millisecond), left
	r.Reply = ledger.Reply(r.want.Policy, now)
	return at, true
}

// hasLocalQueueLocked reports whether callers wait in the queue for the local quota.
func (l *limiter) hasLocalQueueLocked() bool { return l.waiters.quotas > 0 }

// serveQueueLocked decides the requests in the queue that their policy can decide now, in order, and sets the timer
// for the next one. With all set it looks at all of them, otherwise only up to the first that has to wait.
func (l *limiter) serveQueueLocked(all bool) {
	since, cause := l.link.Health().Since()
	if cause == nil {
		l.setLocalTimerLocked(time.Time{})
		return
	}
	var (
		now    = time.Now()
		head   = l.waiters.first
		due    time.Time // of the first request that has to wait
		behind time.Time // of the first request that waits for the quota
	)
	for r, policies := head, l.waiters.policies; policies > 0 && (all || due.IsZero()); {
		next := r.next
		if p := r.want.Policy; p != nil {
			policies--
			at, decided := l.decideLocallyLocked(r, now, since, cause, behind)
			switch {
			case decided:
				l.shard.endLocked(r)
			case due.IsZero() || at.Before(due):
				due = at
			}
			if !decided && p.Kind == outage.LocalQuota && behind.IsZero() {
				behind = at
			}
		}
		r = next
	}
	if l.waiters.first != head {
		l.first.since = now
	}
	l.dropEndedLocked()
	l.setLocalTimerLocked(due)
}

// setLocalTimerLocked sets the timer that calls serveQueueLocked at due, or stops it if due is zero.
func (l *limiter) setLocalTimerLocked(due time.Time) {
	l.offline.due = due
	switch {
	case due.IsZero() || l.shard.closed:
		if l.offline.timer != nil {
			l.offline.timer.Stop()
		}
	case l.offline.timer == nil:
		l.offline.timer = time.AfterFunc(time.Until(due), l.onLocalTimer)
	default:
		l.offline.timer.Reset(time.Until(due))
	}
}

// onLocalTimer runs when the timer of the local quota fires. It may run after the timer was stopped, when the
// limiter has been evicted or is another one; only offline.due says whether anything is due.
func (l *limiter) onLocalTimer() {
	l.shard.Lock()
	defer l.shard.Unlock()
	if !l.offline.due.IsZero() && !time.Now().Before(l.offline.due) {
		l.serveQueueLocked(false)
		l.rearmLocked()
	}
}

// answerLocallyLocked decides the requests in the flight and in the queues that their policy can decide, if Redis is
// down.
func (f *flight) answerLocallyLocked() {
	l := f.limiter
	since, cause := l.link.Health().Since()
	if cause == nil {
		return
	}
	if !l.offline.servedFor.Equal(since) { // whoever comes later is looked at then
		l.offline.servedFor = since
		l.serveQueueLocked(true)
	}
	now, behind := time.Now(), time.Time{}
	if l.hasLocalQueueLocked() {
		behind = l.offline.due
	}
	decide := func(r *request) {
		_, _ = l.decideLocallyLocked(r, now, since, cause, behind)
		l.shard.endLocked(r)
	}
	f.dropLocked(func(r *request) bool {
		if r.want.Policy == nil || r.want.Wait {
			return false
		}
		decide(r)
		return true
	})
	for r := l.tries.first; r != nil; {
		next := r.next
		if r.want.Policy != nil {
			decide(r)
		}
		r = next
	}
	for r := l.waiters.first; r != nil && l.waiters.yields > 0; {
		next := r.next
		if r.want.Yields {
			l.shard.failLocked(r, permit.Unavailable("acquire", l.link.Name, cause))
		}
		r = next
	}
	l.dropEndedLocked()
}

// decideAll decides the requests in flight to the Redis with the given health, which is down because of cause: those
// that do not wait, and those that a policy serves. Permits that Redis grants them afterwards go back.
func (e *Engine) decideAll(health *outage.Health, cause error) {
	for i := range e.shards {
		s := &e.shards[i]
		s.Lock()
		for _, l := range s.limiters {
			if l.link.Health() == health {
				l.decideAllLocked(cause)
			}
		}
		s.Unlock()
	}
	e.began.Happened()
}

// decideAllLocked is decideAll for one limiter.
func (l *limiter) decideAllLocked(cause error) {
	err := permit.Unavailable("acquire", l.link.Name, link.WithLast(cause, l.lastErr))
	for _, f := range l.flights {
		f.answerLocallyLocked()
		f.dropLocked(func(r *request) bool {
			switch {
			case !r.want.Wait:
				l.shard.failLocked(r, err)
			case r.usesQuota(): // or Redis would grant it something, too
				r.state = isQueued
			default:
				return false
			}
			return true
		})
	}
	if len(l.flights) > 0 {
		l.failTriesLocked(err)
	}
}

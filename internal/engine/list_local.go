package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// This file is what callers of several limiters do while Redis is known to be away and no policy is
// closed. On a cluster or a ring that means all of the limiters' nodes.

// tryLocal asks the policies for all parts at once. decided is false where they have no say: Redis is
// there, or one of them is closed. A refusal tells how long it takes, if nobody else asks first: nobody
// stands in line for several shares.
func (w *listWaiter) tryLocal(ctx context.Context) (a ListOutcome, decided bool, err error) {
	if !w.decidesLocally() {
		return nothing.ListOutcome, false, nil
	}
	now := time.Now()
	a.Bound = -1
	for i, p := range w.parts {
		at, err := p.takeLocally(ctx, now, false)
		if err != nil {
			return nothing.ListOutcome, true, err
		}
		if wait := at.Sub(now); wait > 0 && (a.Bound < 0 || wait > a.Wait) {
			a = ListOutcome{Bound: i, Wait: wait, Degraded: true}
		}
	}
	for i := 0; a.Bound < 0 && i < len(w.parts); i++ {
		at, err := w.parts[i].takeLocally(ctx, now, true)
		if err == nil && !at.After(now) {
			continue
		}
		// Somebody else was faster. Each lock is held for itself only: all at once would have to be taken in
		// the order of their shards.
		for _, p := range w.parts[:i] {
			p.undoLocally(now)
		}
		if err != nil {
			return nothing.ListOutcome, true, err
		}
		a = ListOutcome{Bound: i, Wait: at.Sub(now), Degraded: true}
	}
	if a.Bound >= 0 {
		return a, true, nil
	}
	w.parts[0].h.Health().CountGrant()
	return ListOutcome{Granted: true, Bound: -1, Degraded: true}, true, nil
}

// decidesLocally reports whether the policies decide.
func (w *listWaiter) decidesLocally() bool {
	for _, p := range w.parts {
		if p.policy == nil || !p.h.Health().Down() {
			return false
		}
	}
	return true
}

// takeLocally returns when the part's policy can grant it; with take it does if that is now.
func (p *part) takeLocally(ctx context.Context, now time.Time, take bool) (at time.Time, err error) {
	h, s := p.h, p.h.shard
	s.lock()
	defer s.unlock()
	if s.closed {
		return at, permit.ErrClosed
	}
	health := h.Health()
	since, cause := health.Since()
	l := s.limiterLocked(h)
	m := l.localShareLocked()
	l.probeLocked(ctx, health)
	at, _, err = m.When(p.policy, p.permits, now, since)
	if err != nil {
		return at, fmt.Errorf("%w: acquire of %q: %w: %w", permit.ErrUnavailable, h.name, err, cause)
	}
	if p.policy.Kind == outage.LocalShare && l.hasLocalLineLocked() && !at.After(now) {
		at = now.Add(max(l.localDue.Sub(now), time.Millisecond)) // those who stand in line come first
	}
	if take && !at.After(now) {
		m.Take(p.policy, p.permits, now)
	}
	return at, nil
}

// undoLocally takes back what takeLocally took at now.
func (p *part) undoLocally(now time.Time) {
	p.h.shard.lock()
	defer p.h.shard.unlock()
	if m := p.h.shard.limiterLocked(p.h).localShareLocked(); p.policy.Kind == outage.LocalShare {
		m.Undo(p.permits, now)
	}
}

// waitForLocal sleeps until the policies may grant, a probe is due, Redis is back, or the caller's
// time is up; false then.
func (w *listWaiter) waitForLocal(ctx context.Context, wait time.Duration) (bool, error) {
	next, over, _ := w.parts[0].h.Health().Next()
	if _, err := w.sleep(ctx, min(wait, time.Until(next)), over); err != nil {
		return false, err
	}
	return !w.isLate(0), nil
}

// reconcileAll tells Redis of what was granted of the parts without it, before more is asked for.
func reconcileAll(ctx context.Context, parts []part) error {
	for _, p := range parts {
		if p.policy == nil {
			continue
		}
		s := p.h.shard
		s.lock()
		m := s.locals[p.h.key]
		busy := m != nil && m.Busy(time.Now())
		s.unlock()
		if !busy {
			continue
		}
		typ := p.h.Type()
		ctx := context.WithoutCancel(ctx)
		err := p.h.gated(ctx, "charge", func(bool) error { return p.h.reconcile(ctx, m, &typ) })
		if err != nil {
			return err
		}
	}
	return nil
}

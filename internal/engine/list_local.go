package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// This file decides lists of limiters during an outage, if none of their policies is closed. On a cluster or a
// ring that requires all of the limiters' nodes to be down.

// tryLocal asks the policies for all parts at once. It reports decided as false if they do not decide, because
// Redis is up or one of them is closed. A refusal reports how long it takes if nobody else asks first, since
// nobody stands in line for several shares.
func (w *listWaiter) tryLocal(ctx context.Context) (a ListOutcome, decided bool, err error) {
	if !w.decidesLocally() {
		return nothing.ListOutcome, false, nil
	}
	now := time.Now()
	a.Bound = -1
	for i, p := range w.parts {
		at, err := p.whenLocally(ctx, now)
		if err != nil {
			return nothing.ListOutcome, true, err
		}
		if wait := at.Sub(now); wait > 0 && (a.Bound < 0 || wait > a.Wait) {
			a = ListOutcome{Bound: i, Wait: wait, Degraded: true}
		}
	}
	for i := 0; a.Bound < 0 && i < len(w.parts); i++ {
		at, err := w.parts[i].takeLocally(ctx, now)
		if err == nil && !at.After(now) {
			continue
		}
		// Somebody else was faster. Each lock is held by itself: to hold all of them, they would have to be
		// taken in the order of their shards.
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

// whenLocally returns when the policy of the part can grant it.
func (p *part) whenLocally(ctx context.Context, now time.Time) (at time.Time, err error) {
	return p.decideLocally(ctx, now, func(*outage.Share) {})
}

// takeLocally is whenLocally, but has the policy grant the part if that can be done now.
func (p *part) takeLocally(ctx context.Context, now time.Time) (at time.Time, err error) {
	return p.decideLocally(ctx, now, func(share *outage.Share) { share.Take(p.policy, p.permits, now) })
}

// decideLocally is whenLocally, but calls grant under the lock if the part can be granted now.
func (p *part) decideLocally(ctx context.Context, now time.Time, grant func(*outage.Share)) (at time.Time, err error) {
	h, s := p.h, p.h.shard
	s.lock()
	defer s.unlock()
	if s.closed {
		return at, permit.ErrClosed
	}
	health := h.Health()
	since, cause := health.Since()
	l := s.limiterLocked(h)
	l.probeLocked(ctx, health)
	share, at, _, err := l.whenLocallyLocked(p.policy, p.permits, now, since, cause)
	if err != nil {
		return at, err
	}
	if p.policy.Kind == outage.LocalShare && l.hasLocalLineLocked() && !at.After(now) {
		at = now.Add(max(l.localDue.Sub(now), time.Millisecond)) // the callers in line come first
	}
	if !at.After(now) {
		grant(share)
	}
	return at, nil
}

// undoLocally takes back what takeLocally granted at now.
func (p *part) undoLocally(now time.Time) {
	p.h.shard.lock()
	defer p.h.shard.unlock()
	if share := p.h.shard.limiterLocked(p.h).localShareLocked(); share != nil && p.policy.Kind == outage.LocalShare {
		share.Undo(p.permits, now)
	}
}

// waitForLocal sleeps until the policies may grant, a probe is due, or Redis is up again. It reports false if
// the time of the caller is up first.
func (w *listWaiter) waitForLocal(ctx context.Context, wait time.Duration) (bool, error) {
	next, over, _ := w.parts[0].h.Health().Next()
	if _, err := w.sleep(ctx, min(wait, time.Until(next)), over); err != nil {
		return false, err
	}
	return !w.isLate(0), nil
}

// reconcileAll tells Redis what was granted without it for the parts, before more is asked for.
func reconcileAll(ctx context.Context, parts []part) error {
	for _, p := range parts {
		if p.policy == nil {
			continue
		}
		s := p.h.shard
		s.lock()
		share := s.memory.shares[p.h.key]
		busy := share != nil && share.Busy(time.Now())
		s.unlock()
		if !busy {
			continue
		}
		typ := p.h.Type()
		ctx := context.WithoutCancel(ctx)
		err := p.h.gated(ctx, "charge", func(bool) error { return p.h.reconcile(ctx, share, &typ) })
		if err != nil {
			return err
		}
	}
	return nil
}

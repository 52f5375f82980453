// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// During an outage, these methods serve callers outside of the queue: they decide requests by policies, report to
// Redis what was granted without it, and set cool-downs.

// WhenLocally returns when the policy can grant the given number of permits to a caller outside of the queue.
func (h *Handle) WhenLocally(p *outage.Policy, permits int64, now time.Time) (at time.Time, err error) {
	return h.decideLocally(p, permits, now, func(*outage.Ledger) {})
}

// TakeLocally is like WhenLocally, but has the policy grant the permits if that is possible now.
func (h *Handle) TakeLocally(p *outage.Policy, permits int64, now time.Time) (at time.Time, err error) {
	return h.decideLocally(p, permits, now, func(ledger *outage.Ledger) { ledger.Take(p, permits, now) })
}

// decideLocally is like WhenLocally, but calls grant under the lock if the permits can be granted now.
func (h *Handle) decideLocally(p *outage.Policy, permits int64, now time.Time, grant func(*outage.Ledger)) (at time.Time, err error) {
	s := h.shard
	s.Lock()
	defer s.Unlock()
	if s.closed {
		return at, permit.ErrClosed
	}
	health := h.Health()
	since, cause := health.Since()
	l := s.limiterLocked(&h.Link)
	ledger, at, _, err := l.whenLocallyLocked(p, permits, now, since, cause)
	if err != nil {
		return at, err
	}
	if p.Kind == outage.LocalQuota && l.hasLocalQueueLocked() && !at.After(now) {
		at = now.Add(max(l.offline.due.Sub(now), time.Millisecond)) // the callers in the queue come first
	}
	if !at.After(now) {
		grant(ledger)
	}
	return at, nil
}

// UndoLocally takes back the permits that TakeLocally granted at now.
func (h *Handle) UndoLocally(p *outage.Policy, permits int64, now time.Time) {
	h.shard.Lock()
	defer h.shard.Unlock()
	if ledger := h.shard.rememberedLocked(h.Key); ledger != nil && p.Kind == outage.LocalQuota {
		ledger.Undo(permits, now)
	}
}

// NoteCoolDown makes the policies of this process obey a cool-down until Redis has been told of it as well. The
// zero time ends it.
func (h *Handle) NoteCoolDown(until time.Time) {
	h.withLedger(func(s *outage.Ledger) { s.NoteCoolDown(until) })
}

// ToldCoolDown records that Redis has been told of a cool-down, so that from now on a reply may say that it is
// over.
func (h *Handle) ToldCoolDown(until time.Time) {
	h.withLedger(func(s *outage.Ledger) { s.ToldCoolDown(until) })
}

// withLedger calls f, under the lock, with the ledger of the limiter, which holds what is known without Redis. It does
// not call f if the shard has no room for it.
func (h *Handle) withLedger(f func(*outage.Ledger)) {
	h.shard.Lock()
	defer h.shard.Unlock()
	l := h.shard.limiterLocked(&h.Link)
	if ledger := l.ledgerLocked(2 * outage.MaxLedgers); ledger != nil {
		f(ledger)
		l.offline.servedFor = time.Time{} // those in the queue may be granted sooner
	}
}

// Reconcile tells Redis of the pending grants of the limiter, if there are any.
func (h *Handle) Reconcile(ctx context.Context) error {
	h.shard.Lock()
	ledger := h.shard.rememberedLocked(h.Key)
	busy := ledger != nil && ledger.Busy(time.Now())
	h.shard.Unlock()
	if !busy {
		return nil
	}
	return h.Link.Reconcile(ctx, ledger)
}

// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"time"
)

// This file decides lists of limiters during an outage, if none of their policies is closed. On a cluster or a
// ring that requires all of the limiters' nodes to be down.

// tryLocal asks the policies for all parts at once. It reports decided as false if they do not decide, because
// Redis is up or one of them is closed. A rejection reports how long it takes if nobody else asks first, since
// nobody waits in the queue for several shares.
func (w *waiter) tryLocal(ctx context.Context) (a Outcome, decided bool, err error) {
	if !w.decidesLocally() {
		return nothing.Outcome, false, nil
	}
	now := time.Now()
	a.Bound = -1
	for i, p := range w.parts {
		at, err := p.Handle.WhenLocally(p.Policy, p.Permits, now)
		if err != nil {
			return nothing.Outcome, true, err
		}
		if wait := at.Sub(now); wait > 0 && (a.Bound < 0 || wait > a.Wait) {
			a = Outcome{Bound: i, Wait: wait, Degraded: true}
		}
	}
	for i := 0; a.Bound < 0 && i < len(w.parts); i++ {
		p := w.parts[i]
		at, err := p.Handle.TakeLocally(p.Policy, p.Permits, now)
		if err == nil && !at.After(now) {
			continue
		}
		// Somebody else was faster. Each lock is held by itself: to hold all of them, they would have to be
		// taken in the order of their shards.
		for _, p := range w.parts[:i] {
			p.Handle.UndoLocally(p.Policy, p.Permits, now)
		}
		if err != nil {
			return nothing.Outcome, true, err
		}
		a = Outcome{Bound: i, Wait: at.Sub(now), Degraded: true}
	}
	if a.Bound >= 0 {
		return a, true, nil
	}
	w.parts[0].Handle.Health().CountGrant()
	return Outcome{Granted: true, Bound: -1, Degraded: true}, true, nil
}

// decidesLocally reports whether the policies decide.
func (w *waiter) decidesLocally() bool {
	for _, p := range w.parts {
		if p.Policy == nil || !p.Handle.Health().Down() {
			return false
		}
	}
	return true
}

// waitForLocal sleeps until the policies may grant, or Redis is up again. It reports false if the time of the caller is up
// first.
func (w *waiter) waitForLocal(ctx context.Context, wait time.Duration) (bool, error) {
	over, _ := w.parts[0].Handle.Health().Outage()
	if _, err := w.sleep(ctx, wait, over); err != nil {
		return false, err
	}
	return !w.isLate(0), nil
}

// reconcileAll tells Redis what was granted without it for the parts, before more is asked for.
func reconcileAll(ctx context.Context, parts []part) error {
	for _, p := range parts {
		if p.Policy == nil {
			continue
		}
		if err := p.Handle.Reconcile(ctx); err != nil {
			return err
		}
	}
	return nil
}

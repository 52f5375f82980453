// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
)

// This file decides lists during an outage. On a cluster or a ring one server may be down while others are up: then the policies of
// the limiters that it holds decide these, and Redis the others.

// split divides the demands into those that Redis decides and those that policies decide, because their server is down. It reports
// whether that has changed; then w stands in no queue.
func (w *waiter) split() (changed bool) {
	decide := w.policiesDecide()
	if !decide && len(w.offline) == 0 {
		return false
	}
	offline := func(p part) bool { return decide && p.isDown() }
	if !slices.ContainsFunc(w.parts, offline) && !slices.ContainsFunc(w.offline, func(p part) bool { return !offline(p) }) {
		return false
	}
	w.leaveQueues()
	w.parts, w.offline = nil, nil
	for _, p := range parts(w.demands) {
		if offline(p) {
			w.offline = append(w.offline, p)
		} else {
			w.parts = append(w.parts, p)
		}
	}
	return true
}

// policiesDecide reports whether policies decide some of the demands, and none is closed whose server is down.
func (w *waiter) policiesDecide() (decide bool) {
	for i := range w.demands {
		if d := &w.demands[i]; d.Handle.Health().Down() {
			if d.Policy == nil {
				return false
			}
			decide = true
		}
	}
	return decide
}

// isDown reports whether the server of the part is down.
func (p *part) isDown() bool { return p.Handle.Health().Down() }

// mayYield reports whether policies decide parts that Redis has been asked for.
func (w *waiter) mayYield() bool {
	return w.policiesDecide() && slices.ContainsFunc(w.parts, func(p part) bool { return p.isDown() })
}

// tryOffline asks the policies for the parts that they decide. It reports decided if one rejects, or if there are no others, so that
// they have granted all. A rejection reports how long it takes if nobody else asks first, since nobody waits in the queue for several
// shares.
func (w *waiter) tryOffline() (a Outcome, decided bool, err error) {
	if a.Bound = -1; len(w.offline) == 0 {
		return a, false, nil
	}
	now := time.Now()
	for _, p := range w.offline {
		at, err := p.Handle.WhenLocally(p.Policy, p.Permits, now)
		if err != nil {
			return nothing.Outcome, true, err
		}
		if wait := at.Sub(now); wait > 0 && (a.Bound < 0 || wait > a.Wait) {
			a = Outcome{Bound: p.index, Wait: wait, Degraded: true}
		}
	}
	if a.Bound < 0 && len(w.parts) == 0 {
		a, err = w.takeOffline(now)
	}
	return a, a.Granted || a.Bound >= 0, err
}

// passOffline returns when no policy rejects the list, as far as policies decide it. It reports ended if they have granted all of it, or
// the caller is not to wait any more, and otherwise whether there was a change of what Redis is to be asked for, or a wait; then w stands
// in no queue.
func (w *waiter) passOffline(ctx context.Context) (a Outcome, changed, ended bool, err error) {
	for {
		changed = w.split() || changed
		a, decided, err := w.tryOffline()
		switch {
		case err != nil || !decided:
			return a, changed, err != nil, err
		case a.Granted || w.engine.Config().RejectEarly && w.isLate(a.Wait):
			return a, changed, true, nil
		}
		w.leaveQueues()
		changed = true
		switch ok, err := w.waitForOffline(ctx, a); {
		case err != nil:
			return nothing.Outcome, changed, true, err
		case !ok:
			return a, changed, true, nil
		}
	}
}

// takeOffline has the policies grant the parts that they decide.
func (w *waiter) takeOffline(now time.Time) (Outcome, error) {
	for i, p := range w.offline {
		at, err := p.Handle.TakeLocally(p.Policy, p.Permits, now)
		if err == nil && !at.After(now) {
			continue
		}
		// Somebody else was faster. Each lock is held by itself: to hold all of them, they would have to be
		// taken in the order of their shards.
		for _, p := range w.offline[:i] {
			p.Handle.UndoLocally(p.Policy, p.Permits, now)
		}
		if err != nil {
			return nothing.Outcome, err
		}
		return Outcome{Bound: p.index, Wait: at.Sub(now), Degraded: true}, nil
	}
	w.offline[0].Handle.Health().CountGrant()
	return Outcome{Granted: true, Bound: -1, Degraded: true}, nil
}

// finish ends a list of which Redis has granted the parts that it decides: it has the policies grant the others. If one rejects by
// now, or its server is up again, which leaves the list undecided, what Redis has granted goes back.
func (w *waiter) finish(ctx context.Context, asked []link.Asked) (a Outcome, decided bool, err error) {
	if len(w.offline) == 0 {
		return Outcome{Granted: true, Bound: -1, Asked: asked}, true, nil
	}
	a = nothing.Outcome
	if !slices.ContainsFunc(w.offline, func(p part) bool { return !p.isDown() }) {
		a, err = w.takeOffline(time.Now())
		decided = true
	}
	granted := slices.Clone(w.parts)
	for i := range granted {
		granted[i].asked = asked[i]
	}
	if !a.Granted {
		refund := func() { refundAll(context.WithoutCancel(ctx), granted) }
		if granted[0].Handle.Queue.Background(refund) != nil {
			refund() // the Engine is closed
		}
		return a, decided, err
	}
	a.Asked = make([]link.Asked, len(w.demands))
	for _, p := range granted {
		a.Asked[p.index] = p.asked
	}
	return a, true, nil
}

// waitForOffline sleeps until the policies may grant what a rejects, or Redis is up again. It reports false if the time of the caller
// is up first.
func (w *waiter) waitForOffline(ctx context.Context, a Outcome) (bool, error) {
	over, _ := w.demands[a.Bound].Handle.Health().Outage()
	if _, err := w.sleep(ctx, a.Wait, over); err != nil {
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

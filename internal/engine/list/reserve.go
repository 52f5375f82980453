// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
)

// This file serves a list that would otherwise starve: limiters that are wanted by many reject it in turns, or
// a peer in another process, which stands in no queue of this one, always takes what the list waits for. The
// list then reserves permits in Redis, one limiter after another, and is granted all of them when it has them.
//
// A reservation is a grant that is moved to the present instant until it is used, so the window that counts it
// is exact. Meanwhile its permits lie idle. That is bounded by maxReserved at a time, and by idleShare in the
// long run.

const (
	// maxReserved is the number of intervals of a limiter for which a list reserves its permits, from when it
	// begins to gather them. If no other process competes, they are gathered after one interval, and so are
	// those of the other limiters.
	maxReserved = 4
	// idleShare is the part of a limiter's rate that may lie idle for lists, and the part of the time for which
	// lists that fail to gather its permits may hold up its callers. After an attempt the limiter is not
	// reserved until that is made up for.
	idleShare = 0.1
	// gatherSteps is the largest number of steps, each of them a call, in which permits are gathered that come
	// back one by one within an interval. In a long interval a step takes maxGatherStep.
	gatherSteps   = 100
	maxGatherStep = 100 * time.Millisecond
)

// starves reports whether the list that a rejects has been passed over: it has waited for an interval, in which every
// permit came back once. A list of a lower class gives way for as long as
// it is one.
func (w *waiter) starves(a reply) bool {
	return a.rejected && !w.isLower() && a.rate.Interval > 0 && time.Since(w.since) > a.rate.Interval
}

// contend is what a starving list does after the reply a, and returns the next reply. The list reserves if it
// may, and otherwise waits until it may, outside of all queues. It reports false if the time of the caller is
// up.
func (w *waiter) contend(ctx context.Context, a reply) (next reply, ok bool, err error) {
	if a.rate.Interval > 0 && a.Wait > a.rate.Interval {
		// In a cool-down nobody gets anything. The queue is the place to wait for its end.
		w.lists.contenders.leave(w)
		return w.standAndTry(ctx, a)
	}
	if i := w.olderAhead(); i >= 0 {
		a.Bound, a.Wait = i, time.Until(w.parts[i].Handle.State().Grant)
		return w.standAndTry(ctx, a)
	}
	w.lists.contenders.enter(w)
	may, at := w.lists.contenders.mayReserve(w)
	w.endTurns()
	if may {
		// What is free by now, in the pause behind another list, needs no reservation.
		if next, err = w.try(ctx); err != nil || next.Granted {
			return next, true, err
		}
		return w.reserve(ctx, next)
	}
	// Trying now and then costs others nothing; all lists together do so at most every other millisecond.
	d := max(a.Wait, a.rate.Interval/8, 2*time.Millisecond*time.Duration(w.lists.Contending()))
	d = min(d, max(w.engine.Config().Recheck, a.Wait), engine.RenewEvery(a.rate))
	if !at.IsZero() {
		d = min(d, time.Until(at))
	}
	slept, err := w.sleep(ctx, d, w.next)
	if err != nil || slept && w.isLate(0) {
		return a, false, err
	}
	if !slept || !at.IsZero() && time.Now().Before(at) || w.behindOthers() {
		return a, true, nil
	}
	next, err = w.try(ctx)
	return next, true, err
}

// reserve gathers the permits of all limiters that reject, so that they are complete at about the same time,
// until all are granted or may not be held any longer. What has not been granted by then goes back at once.
func (w *waiter) reserve(ctx context.Context, a reply) (next reply, ok bool, err error) {
	s := &attempt{w: w, work: w.newWork(), stop: make(chan struct{}), list: make([]listPart, len(w.parts))}
	s.waits = true
	id := w.engine.Config().Backends.NewID().Run(0) // in all of its limiters, so that it has one place among those that came at one instant
	for i, p := range w.parts {
		s.list[i] = listPart{Reservation: link.Reservation{Link: &p.Handle.Link, ID: id, Permits: p.Permits}, handle: p.Handle}
	}
	background := context.WithoutCancel(ctx)
	if err := w.parts[0].Handle.Queue.Background(func() { s.run(background) }); err != nil {
		return a, true, err
	}
	next, err = w.await(ctx, s.work)
	if s.left {
		close(s.stop)
		s.letGo()
		return a, true, err
	}
	return next, true, err
}

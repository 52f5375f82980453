// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// This file decides which flights leave, and when.

func (l *limiter) mayTryLocked() bool {
	n := l.flights.ofTries()
	if n < maxTries || l.link.Health().Down() {
		return true // during an outage a flight makes no call, so that nobody waits for those in flight
	}
	// The clock is not read for every request of a crowd, because that would cost a tenth of an acquire.
	return n < maxSlowTries && (l.tries.n < 8 || l.tries.n%64 == 0) && time.Since(l.flights[0].begin) > slowFlight
}

// scheduleLocked starts the flights that may leave now.
func (l *limiter) scheduleLocked() {
	if l.shard.closed {
		return
	}
	if f := l.takeQueueLocked(); f != nil {
		l.startLocked(f)
	}
	if f := l.takeTriesLocked(); f != nil {
		l.startLocked(f)
	}
}

// queueIsHeldLocked reports whether no flight may leave for the queue even if it is due.
func (l *limiter) queueIsHeldLocked() bool {
	return l.flights.ofQueue() > 0 || l.turn != nil || l.shard.closed
}

// takeQueueLocked returns a flight for the queue, or nil if the queue is not due. If the first waiter has a place, it
// gets its turn instead. While the first waiter has to wait, others may pass it.
func (l *limiter) takeQueueLocked() *flight {
	if l.waiters.n == 0 || l.queueIsHeldLocked() {
		return nil
	}
	if l.gathering != nil || !l.first.askAt.IsZero() && time.Now().Before(l.first.askAt) {
		return l.takePassersLocked()
	}
	switch r := l.waiters.first; {
	case r.place != nil:
		l.giveTurnLocked(r)
		return nil
	case l.first.mayGather && l.mustGatherLocked(r):
		l.gatherLocked(r)
		return l.takePassersLocked()
	}
	f := l.newFlightLocked()
	f.InOrder = true
	for r := l.waiters.first; r != nil && r.place == nil && f.appendLocked(r); r = r.next {
		r.state = isInFlight
	}
	if l.tries.n > 0 && l.headIsStarvingLocked() {
		f.appendTriesLocked(&l.tries)
	}
	f.changes = l.changes
	f.Allowance = l.allowanceLocked(f.Runs[0].Permits)
	return f
}

// allowanceLocked returns the allowance of a flight of the queue whose first request wants the given number of permits. Who waits
// is noted once Redis has rejected the first waiter: most requests that may wait need not.
func (l *limiter) allowanceLocked(permits int64) permit.Allowance {
	head := l.waiters.first
	a := l.share.Allowance(head.want.Permits, permits, l.rate, time.Now())
	a.Waiting = l.waiters.n
	if head.rejected {
		a.NoteFor = l.shard.engine.noteFor(l.rate)
	}
	return a
}

// maxPassed is how many requests in the queue are examined in the search for those that may pass.
const maxPassed = 64

// takePassersLocked returns a flight for requests in the queue that may pass the first waiter, or nil if there are none.
func (l *limiter) takePassersLocked() *flight {
	head := l.waiters.first
	if now := time.Now(); !l.first.pass.Opens(now) {
		return nil
	}
	f, ticket := (*flight)(nil), fair.Ticket{}
	for r, n := head.next, 0; n < maxPassed && head.place == nil && r != nil; r, n = r.next, n+1 {
		if r.place != nil || !l.first.pass.Take(&l.share, r.want.Permits, head.want.Permits, &ticket) {
			continue
		}
		if f == nil {
			f = l.newFlightLocked()
		}
		f.appendLocked(r) // there is room for as many as are looked at
		r.state = isInFlight
	}
	if f == nil {
		l.first.pass.Sleep()
		return nil
	}
	f.ticket = ticket
	f.Allowance = l.allowanceLocked(f.Runs[0].Permits)
	f.InOrder, f.changes = true, l.changes
	return f
}

// takeTriesLocked returns a flight that takes the tries, or nil if there are none or none may leave. If the tries stand behind
// the queue, it is a flight of the queue, which takes them along.
func (l *limiter) takeTriesLocked() *flight {
	if l.tries.n == 0 || l.shard.closed || !l.mayTryLocked() {
		return nil
	}
	reserved, behind := l.permitsAreKeptLocked(), l.triesStandBehindLocked()
	if behind && !reserved && l.gathering == nil {
		if l.flights.ofQueue() > 0 {
			return nil
		}
		l.first.askAt = time.Time{}
		f := l.takeQueueLocked()
		if l.gathering == nil {
			return f
		}
		if f != nil {
			l.startLocked(f) // of those that pass a first waiter whose permits are gathered from now on
		}
	}
	f := l.newFlightLocked()
	f.DryRun = reserved || behind
	f.Renew = f.DryRun
	f.appendTriesLocked(&l.tries)
	f.changes = l.changes
	f.begin = time.Now()
	l.share.Touch(f.begin)
	return f
}

func (l *limiter) newFlightLocked() *flight {
	f, ok := l.shard.engine.flights.Get().(*flight)
	if !ok {
		f = &flight{}
		f.flies = f.fly
	}
	f.limiter, f.Floor = l, l.link.Floor
	return f
}

// recycleFlight keeps f, which nobody uses any more, for reuse.
func (e *Engine) recycleFlight(f *flight) {
	*f = flight{flies: f.flies, Batch: permit.Batch{Runs: f.Runs[:0]}, callers: f.callers, unclaimed: f.unclaimed[:0]}
	e.flights.Put(f)
}

// startLocked makes f leave in a goroutine of its own as soon as the lock is free.
func (l *limiter) startLocked(f *flight) {
	l.launchLocked(f)
	l.shard.ready = append(l.shard.ready, f)
}

func (l *limiter) launchLocked(f *flight) {
	if f.begin.IsZero() {
		f.begin = time.Now()
	}
	f.ledger = l.shard.rememberedLocked(l.link.Key)
	l.flights = append(l.flights, f)
	l.shard.engine.calls.Add(1)
}

// landedLocked removes f from the air, and returns the flight that its goroutine flies next, if any.
func (l *limiter) landedLocked(f *flight) *flight {
	i := slices.Index(l.flights, f)
	l.flights = slices.Delete(l.flights, i, i+1)
	l.first.pass.Return(f.ticket, f.taken)
	l.shard.engine.recycleFlight(f)
	next := l.takeQueueLocked()
	if next == nil {
		next = l.takeTriesLocked()
	}
	if next != nil {
		l.launchLocked(next)
	}
	l.scheduleLocked()
	l.rearmLocked()
	l.shard.engine.calls.Done()
	return next
}

// rearmLocked sets the timer of the queue, and evicts a limiter that nobody needs, with no timer armed.
func (l *limiter) rearmLocked() {
	if l.idleLocked() {
		if l.timer != nil {
			l.timer.Stop()
		}
		if !l.offline.due.IsZero() {
			l.setLocalTimerLocked(time.Time{})
		}
		l.shard.evictIdleLocked(l)
		return
	}
	at, ok := l.wakeAtLocked()
	switch {
	case ok && l.timer == nil:
		l.timer = time.AfterFunc(time.Until(at), l.onTimer)
	case ok:
		l.timer.Reset(time.Until(at))
	case l.timer != nil:
		l.timer.Stop()
	}
}

// wakeAtLocked returns when the queue, or a request in it that may pass, is due. It reports false if no timer is
// needed for that.
func (l *limiter) wakeAtLocked() (at time.Time, ok bool) {
	if l.waiters.n == 0 || l.queueIsHeldLocked() {
		return at, false
	}
	at, passes := l.first.pass.WakeAt()
	passes = passes && l.waiters.n > 1
	if l.gathering == nil && (!passes || l.first.askAt.Before(at)) {
		return l.first.askAt, true
	}
	return at, passes
}

// onTimer runs when the timer of the queue fires. It may run after the timer was stopped, and then for another
// limiter, so it starts only what is due. If nothing is due, the timer was set for a request that could have passed
// the first waiter and has left; then it is set again.
func (l *limiter) onTimer() {
	l.shard.Lock()
	defer l.shard.Unlock()
	l.scheduleLocked()
	if l.waiters.n > 0 {
		l.rearmLocked()
	}
}

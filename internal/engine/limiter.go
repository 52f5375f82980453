package engine

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A limiter is the state of one limiter in this process: which callers wait for it, what is on its way, and
// what the last reply said.
//
// Requests that do not wait, called tries, leave at once, or together with the next flight if enough flights
// are in the air. Requests that wait stand in line, first come, first served: one that does not fit blocks
// those behind it, except as pass.go says. One flight at a time leaves for the line, when the first request in it is
// due, and asks for as many as fit.
//
// While somebody waits, the line is in one of these states:
//
//   - asleep: it is due at nextAskAt, for which timer is set.
//   - in flight: lineInFlight is true, which it is while a flight of the line is among flights.
//   - a list has its turn: turnHolder is the request of its caller, which is no longer in the line. The line is
//     neither in flight nor gathered for.
//   - held up for a list: heldUpFor is set. A flight that left before may still be in the air, or a list have its turn.
//   - gathered for: gathering takes the permits of the head ahead. The line is asleep or in flight for those that may
//     pass the head, and nobody else.
//
// The lock of the shard guards a limiter. There is a goroutine while a flight is in the air, and a timer while
// somebody waits.
type limiter struct {
	h          *Handle // of the caller that made it; others with the same key differ from it in their name at most
	shard      *shard
	prev, next *limiter // in the shard
	listed     bool     // whether it is in the shard

	tries         queue // requests that do not wait
	waiters       queue // the line
	triesInFlight int   // flights of tries
	lineInFlight  bool  // a flight of waiters is in the air
	flights       []*flight
	turnHolder    *request     // the caller of a list whose turn it is; no flight leaves for the line
	heldUpFor     *listAttempt // gathers the permits of a list; no flight leaves for the line
	gathering     *gathering   // takes permits ahead for the head; no flight leaves for the head
	free          *flight      // kept for reuse

	nextAskAt   time.Time // when the line is due; zero for now
	grantableAt time.Time // when the first in line can be served at the soonest, by the last reply
	headSince   time.Time // since when the first in line has been the first
	passing     passing   // what may be taken before the head is served
	mayGather   bool      // the last reply to the line refused its head, and told of no cool-down
	timer       *time.Timer
	changes     int   // made by this process; replies from before are outdated
	lastErr     error // of the last attempt; nil if there was a reply

	typ        permit.Type   // by the last reply, as the fields below
	interval   time.Duration // also as replied to a list
	rate       permit.Rate
	noTTLUntil time.Time // until when the hash is assumed to have no TTL
	checks     checks

	sharing sharing

	local      *outage.Share // for outages; nil as long as all policies are closed
	servedFor  time.Time     // when the outage began for which the whole line has been looked at; zero for none
	localTimer *time.Timer
	localDue   time.Time // when localTimer fires; zero if it is not armed
}

const (
	// maxTries is how many flights of tries are in the air at most. With one, a caller that comes alone while a
	// flight is in the air would have to wait for it; with more, fewer requests share a flight. A flight that takes longer
	// than slowFlight, because of a connection that hangs, does not hold up the others: then there may be up to
	// maxSlowTries.
	maxTries     = 2
	maxSlowTries = 16
	slowFlight   = 100 * time.Millisecond

	// trustNoTTL is how long the hash is assumed to have no TTL after it was found to have none. Whoever gives
	// it one gives one to the other keys, too; only a key that is created within this time could miss it.
	trustNoTTL = time.Second
)

func (l *limiter) mayTryLocked() bool {
	if l.triesInFlight < maxTries || l.h.Health().Down() {
		return true // during an outage a flight makes no call, but for the probe, so that nobody waits for those in the air
	}
	// The clock is not read for every request of a crowd, because that would cost a tenth of an acquire.
	return l.triesInFlight < maxSlowTries && (l.tries.n < 8 || l.tries.n%64 == 0) && time.Since(l.flights[0].begin) > slowFlight
}

// resetLocked makes an idle limiter as good as new, with no timer armed.
func (l *limiter) resetLocked() {
	for _, t := range []*time.Timer{l.timer, l.localTimer} {
		if t != nil {
			t.Stop()
		}
	}
	*l = limiter{shard: l.shard, timer: l.timer, localTimer: l.localTimer, flights: l.flights, free: l.free}
}

func (l *limiter) idleLocked() bool {
	return len(l.flights) == 0 && l.tries.n == 0 && l.waiters.n == 0 && l.turnHolder == nil && l.heldUpFor == nil && l.gathering == nil
}

// addLocked adds a request, or reports that it is refused at once. The caller goes on with scheduleLocked or
// takeInlineLocked.
func (l *limiter) addLocked(r *request) (refused bool) {
	if !r.blocking {
		l.tries.push(r)
		return false
	}
	if l.waiters.n > 0 && !r.Degraded && l.isTooLateLocked(r) {
		return true
	}
	l.waiters.push(r)
	l.watchLocked(r)
	if l.waiters.n == 1 {
		l.newHeadLocked()
	}
	return false
}

// watchLocked makes the line find r by its deadline, if it may be refused early.
func (l *limiter) watchLocked(r *request) {
	if l.h.engine.cfg.RefuseEarly && !r.deadline.IsZero() {
		l.waiters.watch(r)
	}
}

// isTooLateLocked reports whether r should be refused early because its time is up before the first in line can
// be served.
func (l *limiter) isTooLateLocked(r *request) bool {
	return l.h.engine.cfg.RefuseEarly && !r.deadline.IsZero() && r.deadline.Before(l.grantableAt)
}

// newHeadLocked records that another request is the first in line, whose wait is not known: the line is due at once.
func (l *limiter) newHeadLocked() {
	l.headSince, l.nextAskAt, l.grantableAt = time.Now(), time.Time{}, time.Time{}
	l.passing.set(0)
}

// noteHeadLocked records that a reply may have made another request than head the first in line, and returns the first.
// Unlike newHeadLocked it leaves when the line is due to the reply.
func (l *limiter) noteHeadLocked(head *request) *request {
	if l.waiters.first != head {
		l.headSince = time.Now()
		l.passing.set(0)
	}
	return l.waiters.first
}

// abandonLocked removes a request whose caller no longer waits.
func (l *limiter) abandonLocked(r *request) {
	head := l.waiters.first == r
	r.unqueueLocked()
	if head && l.waiters.n > 0 {
		if l.waiters.first.permits == r.permits {
			l.headSince = time.Now() // its wait is as long
		} else {
			l.newHeadLocked()
		}
	}
	l.scheduleLocked()
	l.rearmLocked()
}

// headIsStarvingLocked reports whether the first in line has been passed over for a whole interval, in which
// every permit came back once. Until it is served, the tries of this process stand behind the line, so that a
// large request does not starve behind small ones.
func (l *limiter) headIsStarvingLocked() bool {
	r := l.waiters.first
	return r != nil && r.refused && l.lastErr == nil && l.interval > 0 && time.Since(l.headSince) > l.interval
}

// triesStandBehindLocked reports whether tries stand behind the line, because its head is starving. Beside others the
// head takes its permits ahead instead, and leaves to the tries what comes before.
func (l *limiter) triesStandBehindLocked() bool {
	return l.waiters.n > 0 && !l.sharing.others() && l.headIsStarvingLocked()
}

// reservedForListLocked reports whether free permits are kept for a list of limiters that gathers permits or
// has been passed over for long. Tries then ask without taking anything, and are refused.
func (l *limiter) reservedForListLocked() bool {
	if l.heldUpFor != nil {
		return true
	}
	if l.turnHolder != nil {
		return l.turnHolder.keepsTurn
	}
	return l.waiters.first != nil && l.waiters.first.turn != nil && l.headIsStarvingLocked()
}

// scheduleLocked starts the flights that may leave now.
func (l *limiter) scheduleLocked() {
	if l.shard.closed {
		return
	}
	if f := l.takeLineLocked(); f != nil {
		l.startLocked(f)
	}
	if f := l.takeTriesLocked(); f != nil {
		l.startLocked(f)
	}
}

// lineIsHeldLocked reports whether no flight may leave for the line, even if it is due.
func (l *limiter) lineIsHeldLocked() bool {
	return l.lineInFlight || l.turnHolder != nil || l.heldUpFor != nil || l.shard.closed
}

// takeLineLocked returns a flight for the line, or nil if the line is not due. If a list is the first in line,
// it gets its turn instead. While the head has to wait, others may pass it.
func (l *limiter) takeLineLocked() *flight {
	if l.waiters.n == 0 || l.lineIsHeldLocked() {
		return nil
	}
	if l.gathering != nil || !l.nextAskAt.IsZero() && time.Now().Before(l.nextAskAt) {
		return l.takePassersLocked()
	}
	switch r := l.waiters.first; {
	case r.turn != nil:
		l.giveTurnLocked(r)
		return nil
	case l.mustGatherLocked(r):
		l.gatherLocked(r)
		return l.takePassersLocked()
	}
	f := l.newFlightLocked()
	f.InOrder = true
	for r := l.waiters.first; r != nil && r.turn == nil && f.appendLocked(r); r = r.next {
		r.inFlight = true
	}
	if l.tries.n > 0 && l.headIsStarvingLocked() {
		f.appendTriesLocked(&l.tries)
	}
	f.changes = l.changes
	f.Allowance = l.allowanceLocked(l.waiters.first)
	l.lineInFlight = true
	return f
}

// takeTriesLocked returns a flight for the tries, or nil if there are none or none may leave.
func (l *limiter) takeTriesLocked() *flight {
	if l.tries.n == 0 || l.shard.closed || !l.mayTryLocked() {
		return nil
	}
	reserved, behind := l.reservedForListLocked(), l.triesStandBehindLocked()
	if behind && !reserved && l.gathering == nil {
		if l.lineInFlight {
			return nil
		}
		l.nextAskAt = time.Time{}
		if f := l.takeLineLocked(); f != nil {
			l.startLocked(f)
		}
		if l.gathering == nil {
			return nil
		}
	}
	f := l.newFlightLocked()
	f.DryRun = reserved || behind
	f.Renew = f.DryRun
	f.appendTriesLocked(&l.tries)
	f.changes = l.changes
	l.triesInFlight++
	f.begin = time.Now()
	l.sharing.touched = f.begin
	return f
}

// takeInlineLocked returns the flight that r leaves with, for its caller to fly itself. That saves a switch of
// goroutines, a quarter of the time of a call on loopback. It returns nil if r shares the flight or has to
// wait.
func (l *limiter) takeInlineLocked(r *request) *flight {
	var f *flight
	if r.blocking {
		f = l.takeLineLocked()
	} else {
		f = l.takeTriesLocked()
	}
	switch {
	case f == nil:
		return nil
	case f.size() > 1:
		l.startLocked(f)
		return nil
	}
	l.launchLocked(f)
	return f
}

// giveTurnLocked lets the first in line, the caller of a list, ask by itself. The line waits until the turn
// ends.
func (l *limiter) giveTurnLocked(r *request) {
	r.keepsTurn = r.keepsTurn || l.headIsStarvingLocked()
	r.unqueueLocked()
	r.ended, r.Granted = true, true
	l.turnHolder = r
	r.done <- struct{}{}
}

func (l *limiter) endTurnLocked(r *request) {
	if l.turnHolder == r {
		l.turnHolder = nil
		l.newHeadLocked()
		l.scheduleLocked()
		l.rearmLocked()
	}
}

func (l *limiter) newFlightLocked() *flight {
	f := l.free
	if f == nil {
		f = &flight{limiter: l}
	}
	l.free = nil
	f.Type = l.typ
	return f
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
	f.local = l.local
	f.NoTTL, f.Gap = f.begin.Before(l.noTTLUntil), l.rate.MinGap > 0
	if !f.DryRun {
		f.Check, f.Lowered = l.checks.take(f.begin, l.interval, CheckSample)
	}
	l.flights = append(l.flights, f)
	l.h.engine.calls.Add(1)
}

// landedLocked removes f from the air, and returns the flight that its goroutine flies next, if any.
func (l *limiter) landedLocked(f *flight) *flight {
	if f.InOrder {
		l.lineInFlight = false
	} else {
		l.triesInFlight--
	}
	for i := range l.flights {
		if l.flights[i] == f {
			l.flights = append(l.flights[:i], l.flights[i+1:]...)
			break
		}
	}
	l.returnPassLocked(f)
	f.reset()
	l.free = f
	next := l.takeLineLocked()
	if next == nil {
		next = l.takeTriesLocked()
	}
	if next != nil {
		l.launchLocked(next)
	}
	l.scheduleLocked()
	l.rearmLocked()
	l.h.engine.calls.Done()
	return next
}

// rearmLocked sets the timer of the line, and evicts a limiter that nobody needs, with no timer armed.
func (l *limiter) rearmLocked() {
	at, ok := l.wakeAtLocked()
	switch {
	case !ok:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(at), l.onTimer)
	default:
		l.timer.Reset(time.Until(at))
	}
	if l.idleLocked() {
		l.setLocalTimerLocked(time.Time{})
		l.shard.evictIdleLocked(l)
	}
}

// onTimer runs when the timer of the line fires. It may run after the timer was stopped, and then on behalf of
// another limiter, so it starts only what is due. If nothing is, because it was set for somebody who might have passed
// the head and has left, it is set again.
func (l *limiter) onTimer() {
	l.shard.lock()
	defer l.shard.unlock()
	l.scheduleLocked()
	if l.waiters.n > 0 {
		l.rearmLocked()
	}
}

// closeLocked fails all requests.
func (l *limiter) closeLocked(ended []*request) []*request {
	for _, f := range l.flights {
		ended, _ = f.endCallersLocked(permit.ErrClosed, ended, nil)
	}
	for l.tries.n > 0 {
		ended = l.tries.first.failLocked(permit.ErrClosed, ended)
	}
	for l.waiters.n > 0 {
		ended = l.waiters.first.failLocked(permit.ErrClosed, ended)
	}
	l.rearmLocked()
	l.setLocalTimerLocked(time.Time{})
	return ended
}

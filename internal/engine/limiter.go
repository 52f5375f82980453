package engine

import (
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A limiter is the state of one limiter in this process: which callers wait for it, what is on its way, and
// what the last reply said.
//
// Requests that do not wait, called tries, leave at once, or together with the next flight if enough flights
// are in the air. Requests that wait stand in line, first come, first served: one that does not fit blocks
// those behind it, except as fair.Pass says. One flight at a time leaves for the line, when the first request in it is
// due, and asks for as many as fit.
//
// While somebody waits, the line is in one of these states:
//
//   - asleep: it is due at first.askAt, for which timer is set.
//   - in flight: a flight of the line is among flights.
//   - held: holds is not empty. A caller that asks by itself has its turn, or gathers permits elsewhere, too. A flight that
//     left before may still be in the air.
//   - gathered for: gathering takes the permits of the head ahead. The line is asleep or in flight for those that may
//     pass the head, and nobody else.
//
// The lock of the shard guards a limiter. There is a goroutine while a flight is in the air, and a timer while
// somebody waits.
type limiter struct {
	h     *Handle // of the caller that made it; others with the same key differ from it in their name at most
	shard *shard
	slot  int // its place in the shard, counted from 1; 0 if it is not in the shard

	tries     queue // requests that do not wait
	waiters   queue // the line
	flights   flights
	holds     []*Hold    // no flight leaves for the line
	gathering *gathering // takes permits ahead for the head; no flight leaves for the head

	first   first       // of the line
	timer   *time.Timer // of the line
	changes int         // made by this process; replies from before are outdated
	lastErr error       // of the last attempt; nil if there was a reply
	rate    permit.Rate // by the last reply
	checks  checks
	share   fair.Share // of the rate, beside others
	offline offline
}

// A first is what a limiter knows of the first request in its line.
type first struct {
	since       time.Time // since when it has been the first
	askAt       time.Time // when the line is due; zero for now
	grantableAt time.Time // when it can be served at the soonest, by the last reply
	mayGather   bool      // the last reply refused it, and told of no cool-down
	pass        fair.Pass // what may be taken before it is served
}

// A flights is the flights of one limiter that are in the air, in the order in which they left.
type flights []*flight

// ofLine returns how many are for requests that wait, which is 1 at most, and ofTries how many are for others.
func (fs flights) ofLine() (n int) {
	for _, f := range fs {
		if f.InOrder {
			n++
		}
	}
	return n
}

func (fs flights) ofTries() int { return len(fs) - fs.ofLine() }

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
	n := l.flights.ofTries()
	if n < maxTries || l.h.Health().Down() {
		return true // during an outage a flight makes no call, but for the probe, so that nobody waits for those in the air
	}
	// The clock is not read for every request of a crowd, because that would cost a tenth of an acquire.
	return n < maxSlowTries && (l.tries.n < 8 || l.tries.n%64 == 0) && time.Since(l.flights[0].begin) > slowFlight
}

// resetLocked makes an idle limiter as good as new, with no timer armed.
func (l *limiter) resetLocked() {
	for _, t := range []*time.Timer{l.timer, l.offline.timer} {
		if t != nil {
			t.Stop()
		}
	}
	*l = limiter{shard: l.shard, timer: l.timer, offline: offline{timer: l.offline.timer}, flights: l.flights}
}

func (l *limiter) idleLocked() bool {
	return len(l.flights) == 0 && l.tries.n == 0 && l.waiters.n == 0 && len(l.holds) == 0 && l.gathering == nil
}

// addLocked adds a request, or reports that it is refused at once. The caller goes on with scheduleLocked or
// takeInlineLocked.
func (l *limiter) addLocked(r *request) (refused bool) {
	if !r.want.Wait {
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
	if l.h.engine.cfg.RefuseEarly && r.hasDeadline() {
		l.waiters.watch(r)
	}
}

// isTooLateLocked reports whether r should be refused early because its time is up before the first in line can
// be served.
func (l *limiter) isTooLateLocked(r *request) bool {
	return l.h.engine.cfg.RefuseEarly && r.hasDeadline() && r.deadline().Before(l.first.grantableAt)
}

// newHeadLocked records that another request is the first in line, whose wait is not known: the line is due at once.
func (l *limiter) newHeadLocked() {
	l.first.since, l.first.askAt, l.first.grantableAt = time.Now(), time.Time{}, time.Time{}
	l.first.pass.Close()
}

// noteHeadLocked records that a reply may have made another request than head the first in line, and returns the first.
// Unlike newHeadLocked it leaves when the line is due to the reply.
func (l *limiter) noteHeadLocked(head *request) *request {
	if l.waiters.first != head {
		l.first.since = time.Now()
		l.first.pass.Close()
	}
	return l.waiters.first
}

// abandonLocked removes a request whose caller no longer waits.
func (l *limiter) abandonLocked(r *request) {
	head := l.waiters.first == r
	r.unqueueLocked()
	if head && l.waiters.n > 0 {
		if l.waiters.first.want.Permits == r.want.Permits {
			l.first.since = time.Now() // its wait is as long
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
	return r != nil && r.refused && l.lastErr == nil && l.rate.Interval > 0 && time.Since(l.first.since) > l.rate.Interval
}

// triesStandBehindLocked reports whether tries stand behind the line, because its head is starving. Beside others the
// head takes its permits ahead instead, and leaves to the tries what comes before.
func (l *limiter) triesStandBehindLocked() bool {
	return l.waiters.n > 0 && !l.share.Contended() && l.headIsStarvingLocked()
}

// reservedForListLocked reports whether free permits are kept for a list of limiters that gathers permits or
// has been passed over for long. Tries then ask without taking anything, and are refused.
func (l *limiter) reservedForListLocked() bool {
	if len(l.holds) > 0 {
		return slices.ContainsFunc(l.holds, func(x *Hold) bool { return x.keeps })
	}
	return l.waiters.first != nil && l.waiters.first.place != nil && l.headIsStarvingLocked()
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
	return l.flights.ofLine() > 0 || len(l.holds) > 0 || l.shard.closed
}

// takeLineLocked returns a flight for the line, or nil if the line is not due. If a list is the first in line,
// it gets its turn instead. While the head has to wait, others may pass it.
func (l *limiter) takeLineLocked() *flight {
	if l.waiters.n == 0 || l.lineIsHeldLocked() {
		return nil
	}
	if l.gathering != nil || !l.first.askAt.IsZero() && time.Now().Before(l.first.askAt) {
		return l.takePassersLocked()
	}
	switch r := l.waiters.first; {
	case r.place != nil:
		l.giveTurnLocked(r)
		return nil
	case l.mustGatherLocked(r):
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
	f.Allowance = l.share.Allowance(f.Runs[0].Permits, l.waiters.first.waiter(), l.rate, time.Now())
	return f
}

// maxPassed is how many requests in line are looked at for some that may pass.
const maxPassed = 64

// takePassersLocked returns a flight for requests in line that may pass the head, or nil if there are none.
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
	f.Allowance = l.share.Allowance(head.want.Permits, f.callers[0][0].waiter(), l.rate, time.Now())
	f.InOrder, f.changes = true, l.changes
	return f
}

// takeTriesLocked returns a flight for the tries, or nil if there are none or none may leave.
func (l *limiter) takeTriesLocked() *flight {
	if l.tries.n == 0 || l.shard.closed || !l.mayTryLocked() {
		return nil
	}
	reserved, behind := l.reservedForListLocked(), l.triesStandBehindLocked()
	if behind && !reserved && l.gathering == nil {
		if l.flights.ofLine() > 0 {
			return nil
		}
		l.first.askAt = time.Time{}
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
	f.begin = time.Now()
	l.share.Touch(f.begin)
	return f
}

// takeInlineLocked returns the flight that r leaves with, for its caller to fly itself. That saves a switch of
// goroutines, a quarter of the time of a call on loopback. It returns nil if r shares the flight or has to
// wait.
func (l *limiter) takeInlineLocked(r *request) *flight {
	var f *flight
	if r.want.Wait {
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

func (l *limiter) newFlightLocked() *flight {
	f, ok := l.h.engine.flights.Get().(*flight)
	if !ok {
		f = &flight{}
	}
	f.limiter, f.Type = l, l.rate.Type
	return f
}

// recycleFlight keeps f, which nobody uses any more, for reuse.
func (e *Engine) recycleFlight(f *flight) {
	f.reset()
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
	f.local = l.shard.memory.Find(l.h.key)
	f.NoTTL = f.begin.Before(l.checks.noTTLUntil)
	if !f.DryRun {
		f.Check, f.Lowered = l.checks.take(f.begin, l.rate.Interval, CheckSample)
	}
	l.flights = append(l.flights, f)
	l.h.engine.calls.Add(1)
}

// landedLocked removes f from the air, and returns the flight that its goroutine flies next, if any.
func (l *limiter) landedLocked(f *flight) *flight {
	i := slices.Index(l.flights, f)
	l.flights = slices.Delete(l.flights, i, i+1)
	l.first.pass.Return(f.ticket, f.taken)
	l.h.engine.recycleFlight(f)
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

// wakeAtLocked returns when the line, or somebody in it that may pass, is due. It reports false if that is not
// for a timer to tell.
func (l *limiter) wakeAtLocked() (at time.Time, ok bool) {
	if l.waiters.n == 0 || l.lineIsHeldLocked() {
		return at, false
	}
	at, passes := l.first.pass.WakeAt()
	passes = passes && l.waiters.n > 1
	if l.gathering == nil && (!passes || l.first.askAt.Before(at)) {
		return l.first.askAt, true
	}
	return at, passes
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

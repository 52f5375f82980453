// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A limiter is the state of one limiter in this process: which callers wait for it, what is on its way, and
// what the last reply said.
//
// Requests that do not wait, called tries, leave at once, or together with the next flight if enough flights
// are in flight. Requests that may wait join a queue, first come, first served: one that does not fit blocks
// those behind it, except as fair.Pass says. One flight at a time leaves for the queue, when the first request in it is
// due, and asks for as many as fit.
//
// While somebody waits, the queue is in one of these states:
//
//   - asleep: it is due at first.askAt, for which timer is set.
//   - in flight: a flight of the queue is among flights.
//   - held: a caller that asks by itself has its turn. A flight that left before may still be in flight.
//   - gathered for: gathering takes the permits of the first waiter ahead. The queue is asleep or in flight for those that may
//     pass the first waiter, and nobody else.
//
// The lock of the shard guards a limiter. There is a goroutine while a call is in flight, and a timer while
// somebody waits.
type limiter struct {
	shard *shard // stays the same, so that it may be read without the lock, which is in it
	guarded
}

// A guarded is what the lock guards.
type guarded struct {
	link *link.Link // of the caller that made it; others with the same key differ from it in their name at most
	slot int        // its place in the shard, counted from 1; 0 if it is not in the shard

	tries     queue // requests that do not wait
	waiters   queue // the queue
	flights   flights
	turn      *Place     // asks by itself; no flight leaves for the queue
	gathering *gathering // takes permits ahead for the first waiter; no flight leaves for the first waiter

	first   first       // of the queue
	timer   *time.Timer // of the queue
	changes int         // made by this process; replies from before are outdated
	lastErr error       // of the last attempt; nil if there was a reply
	rate    permit.Rate // by the last reply
	share   fair.Share  // of the rate, beside others
	offline offline
}

// A first is what a limiter knows of the first waiter.
type first struct {
	since       time.Time // since when it has been the first
	askAt       time.Time // when the queue is due; zero for now
	grantableAt time.Time // when it can be served at the soonest, by the last reply
	mayGather   bool      // the last reply rejected it, and told of no cool-down
	pass        fair.Pass // what may be taken before it is served
}

// A flights is the calls of one limiter that are in flight, in the order in which they left.
type flights []*flight

// ofQueue returns how many are for requests that wait, which is 1 at most, and ofTries how many are for others.
func (fs flights) ofQueue() (n int) {
	for _, f := range fs {
		if f.InOrder {
			n++
		}
	}
	return n
}

func (fs flights) ofTries() int { return len(fs) - fs.ofQueue() }

const (
	// maxTries is how many calls of tries may be in flight. With one, a single caller would have to wait for any call
	// in flight; with more, fewer requests share a flight. A flight that takes longer than slowFlight, because of a
	// connection that hangs, does not hold up the others: then there may be up to maxSlowTries.
	maxTries     = 2
	maxSlowTries = 16
	slowFlight   = 100 * time.Millisecond
)

// resetLocked makes an idle limiter as good as new, with no timer armed.
func (l *limiter) resetLocked() {
	for _, t := range []*time.Timer{l.timer, l.offline.timer} {
		if t != nil {
			t.Stop()
		}
	}
	l.guarded = guarded{timer: l.timer, offline: offline{timer: l.offline.timer}, flights: l.flights}
}

func (l *limiter) idleLocked() bool {
	return len(l.flights) == 0 && l.tries.n == 0 && l.waiters.n == 0 && l.turn == nil && l.gathering == nil
}

// addLocked adds a request, or reports that it is rejected at once. The caller goes on with scheduleLocked or
// takeInlineLocked.
func (l *limiter) addLocked(r *request) (rejected bool) {
	if !r.want.Wait {
		l.tries.push(r)
		return false
	}
	if l.waiters.n > 0 && !r.Degraded && l.isTooLateLocked(r) {
		return true
	}
	if r.want.ofList() {
		l.waiters.insert(r)
	} else {
		l.waiters.push(r)
	}
	l.watchLocked(r)
	if l.waiters.first == r {
		l.newHeadLocked()
	}
	return false
}

// watchLocked makes the queue find r by its deadline, if it may be rejected early.
func (l *limiter) watchLocked(r *request) {
	if l.shard.engine.cfg.RejectEarly && r.hasDeadline() {
		l.waiters.watch(r)
	}
}

// isTooLateLocked reports whether r should be rejected early because its time is up before the first in the queue can
// be served.
func (l *limiter) isTooLateLocked(r *request) bool {
	return l.shard.engine.cfg.RejectEarly && r.hasDeadline() && r.deadline().Before(l.first.grantableAt)
}

// headWaitLocked returns the wait until the first waiter can be served, as far as that is known.
func (l *limiter) headWaitLocked() time.Duration { return max(time.Until(l.first.grantableAt), 0) }

// newHeadLocked records that another request is the first waiter. Its wait is not known, so the queue is due at once.
func (l *limiter) newHeadLocked() {
	l.first.since, l.first.askAt, l.first.grantableAt = l.headSinceLocked(), time.Time{}, time.Time{}
	l.first.pass.Close()
}

// headSinceLocked returns since when the first in the queue counts as the first: now, or since its caller came elsewhere.
func (l *limiter) headSinceLocked() time.Time {
	if r := l.waiters.first; r != nil && r.want.ofList() {
		return r.want.Came
	}
	return time.Now()
}

// noteHeadLocked records that a reply may have made another request than head the first in the queue, and returns the first.
// Unlike newHeadLocked it leaves when the queue is due to the reply.
func (l *limiter) noteHeadLocked(head *request) *request {
	if l.waiters.first != head {
		l.first.since = l.headSinceLocked()
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
			l.first.since = l.headSinceLocked() // its wait is as long
		} else {
			l.newHeadLocked()
		}
	}
	l.scheduleLocked()
	l.rearmLocked()
}

// failExceedingLocked fails the waiters that came before a call began from whose reply the rate is known, if they ask for more: behind one
// that has a place no call asks for them. Those that are in flight learn it from their own call, which has a hold on them.
func (l *limiter) failExceedingLocked(began time.Time) {
	head := l.waiters.first
	for r, next := head, head; r != nil; r = next {
		next = r.next
		if n := r.want.Permits; r.state == isQueued && n+l.link.Floor > l.rate.Permits && r.came.Before(began) && !r.Degraded {
			l.shard.failLocked(r, permit.Exceeds(l.link.Name, n, l.link.Floor, l.rate.Permits))
		}
	}
	if l.waiters.first != head {
		l.newHeadLocked()
		l.scheduleLocked()
		l.rearmLocked()
	}
}

// headIsStarvingLocked reports whether the first waiter has been passed over for a whole interval, in which every
// permit has expired once. Until it is served, the tries of this process stand behind the queue, so a large request
// does not starve behind small ones.
func (l *limiter) headIsStarvingLocked() bool {
	r := l.waiters.first
	return r != nil && r.rejected && l.lastErr == nil && l.rate.Interval > 0 && time.Since(l.first.since) > l.rate.Interval
}

// triesStandBehindLocked reports whether tries stand behind the queue, because the first waiter is starving. If
// others take part, the first waiter reserves its permits instead, and the tries may take those that are free before.
func (l *limiter) triesStandBehindLocked() bool {
	return l.waiters.n > 0 && !l.share.Contended() && l.headIsStarvingLocked()
}

// permitsAreKeptLocked reports whether free permits are kept for one that has its turn, or waits for it and has been passed
// over for long. Tries then ask without taking anything, and are rejected.
func (l *limiter) permitsAreKeptLocked() bool {
	if l.turn != nil {
		return l.turn.keeps
	}
	return l.waiters.first != nil && l.waiters.first.place != nil && l.headIsStarvingLocked()
}

// closeLocked fails all requests.
func (l *limiter) closeLocked() {
	for _, f := range l.flights {
		f.endCallersLocked(permit.ErrClosed, nil)
	}
	l.failTriesLocked(permit.ErrClosed)
	for l.waiters.n > 0 {
		l.shard.failLocked(l.waiters.first, permit.ErrClosed)
	}
	l.rearmLocked()
	l.setLocalTimerLocked(time.Time{})
}

// failTriesLocked fails the requests that neither wait nor are in flight.
func (l *limiter) failTriesLocked(err error) {
	for l.tries.n > 0 {
		l.shard.failLocked(l.tries.first, err)
	}
}

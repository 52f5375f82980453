// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A QueueState is the state of a wait queue, for a caller outside of it.
type QueueState struct {
	Busy    bool      // somebody waits
	Kept    bool      // free permits are kept for somebody
	Came    time.Time // when the first in the queue came; zero if nobody stands in it
	Grant   time.Time // when the first in the queue can be served at the soonest, as far as that is known
	Rate    permit.Rate
	Changes int // that this process has made so far
}

// State returns the state of the wait queue.
func (h *Handle) State() (s QueueState) {
	h.shard.lock()
	defer h.shard.unlock()
	l := h.shard.findLocked(h.QueueID)
	if l == nil {
		return QueueState{Grant: time.Now()}
	}
	s = QueueState{Busy: l.waiters.n > 0 || len(l.holds) > 0, Kept: len(l.holds) > 0 || l.headIsStarvingLocked(),
		Grant: l.first.grantableAt, Rate: l.rate, Changes: l.changes}
	if s.Grant.IsZero() {
		s.Grant = time.Now()
	}
	if r := l.waiters.first; r != nil {
		s.Came = r.came
	}
	return s
}

// A Hold keeps the flights of a queue on the ground.
type Hold struct {
	l     *limiter
	place *Place // whose turn it is, or nil
	keeps bool   // free permits are kept, too: tries ask without taking any
}

// Hold holds up the callers of this process that wait for the limiter, and those that try, until it is released. A flight
// that left before is not held up.
func (h *Handle) Hold() *Hold {
	h.shard.lock()
	defer h.shard.unlock()
	hold := &Hold{l: h.shard.limiterLocked(&h.Link), keeps: true}
	hold.l.holds = append(hold.l.holds, hold)
	hold.l.rearmLocked()
	return hold
}

// Release lets the callers go on. It does nothing if that has been done.
func (x *Hold) Release() {
	s := x.l.shard
	s.lock()
	defer s.unlock()
	if x.dropLocked() {
		x.l.first.askAt = time.Time{}
		x.l.scheduleLocked()
		x.l.rearmLocked()
	}
}

// dropLocked ends the hold, and reports whether it had not ended yet.
func (x *Hold) dropLocked() bool {
	i := slices.Index(x.l.holds, x)
	if i < 0 {
		return false
	}
	x.l.holds = slices.Delete(x.l.holds, i, i+1)
	return true
}

// A Place is where a caller waits in the queue that does not want the permits of this limiter alone. When it is the first and
// the permits are due, no flight asks for it. Instead it gets its turn: it asks by itself, and until it leaves the place
// or waits in the queue again, no flight leaves for that queue. A Place is used by one goroutine.
type Place struct {
	Handle   *Handle
	Permits  int64
	Came     time.Time // since when the caller has waited, in this queue and elsewhere
	Deadline time.Time // zero for none
	Yields   bool      // it leaves the queue when an outage begins

	hold *Hold    // during its turn, or nil
	r    *request // the same, of the turn
}

// A Rejection is what a caller that is about to wait in the queue was told when it asked; it is zero if it has not asked.
type Rejection struct {
	Wait    time.Duration // 0 for none
	Recheck time.Duration // when the caller wants to ask again at the latest
	Rate    permit.Rate
	Changes int // of the limiter, before the caller asked
}

// Turn waits in the queue until it is the turn of the caller. If the caller has its turn already, it gives it up and stands
// in the queue again. Turn reports false if the time of the caller is up, or the queue is closed to it.
func (p *Place) Turn(ctx context.Context, a Rejection) (bool, error) {
	l, r, err := p.join(ctx, a)
	if err != nil {
		return false, err
	}
	ended, _, err := l.await(ctx, p.Handle.shard, r, Timeout(p.Deadline))
	if ended == nil {
		return false, err
	}
	if ended.Err != nil || !ended.Granted {
		err := ended.Err
		p.Handle.shard.engine.recycle(ended)
		p.hold = nil
		return false, err
	}
	p.r = ended
	return true, nil
}

// Timeout returns the time left until the deadline as Request.Timeout takes it, where 0 stands for no limit.
func Timeout(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// join puts the caller into the queue by the time at which it came.
func (p *Place) join(ctx context.Context, a Rejection) (*limiter, *request, error) {
	h, s := p.Handle, p.Handle.shard
	s.lock()
	defer s.unlock()
	if s.closed {
		return nil, nil, permit.ErrClosed
	}
	l, r := s.limiterLocked(&h.Link), p.r
	if r != nil {
		p.hold.dropLocked()
	} else {
		r = h.shard.engine.newRequest()
	}
	p.hold, p.r = nil, nil
	want := Request{Permits: p.Permits, Wait: true}
	if !p.Deadline.IsZero() {
		want.Timeout = max(p.Deadline.Sub(p.Came), 1)
	}
	*r = request{want: want, ctx: ctx, came: p.Came, done: r.done, timer: r.timer, place: p, rejected: a.Wait > 0}
	if l.rate.Interval == 0 {
		l.rate = link.Bounded(a.Rate)
	}
	l.waiters.insert(r)
	l.watchLocked(r)
	if l.waiters.first == r {
		l.newHeadLocked()
		l.first.since = p.Came // the time in other queues counts
		if a.Wait > 0 && l.changes == a.Changes {
			l.first.grantableAt = time.Now().Add(a.Wait)
			l.first.askAt = time.Now().Add(min(a.Wait, a.Recheck) + l.yield(a.Rate))
		}
	}
	l.scheduleLocked()
	l.rearmLocked()
	return l, r, nil
}

// Leave ends the turn of the caller, if it has one.
func (p *Place) Leave() {
	if p.r == nil {
		return
	}
	s, l := p.Handle.shard, p.hold.l
	s.lock()
	if p.hold.dropLocked() {
		l.newHeadLocked()
		l.scheduleLocked()
		l.rearmLocked()
	}
	s.unlock()
	p.Handle.shard.engine.recycle(p.r)
	p.hold, p.r = nil, nil
}

// giveTurnLocked lets the first in the queue, which has a place, ask by itself. The queue waits until the turn ends.
func (l *limiter) giveTurnLocked(r *request) {
	p := r.place
	p.hold = &Hold{l: l, place: p, keeps: l.headIsStarvingLocked()}
	l.holds = append(l.holds, p.hold)
	r.unqueueLocked()
	r.state, r.Granted = hasEnded, true
	r.done <- struct{}{}
}

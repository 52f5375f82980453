// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A QueueState is the state of a wait queue, for a caller outside of it.
type QueueState struct {
	Busy    bool      // somebody waits
	Kept    bool      // permits that are free are kept for the first in the queue
	Grant   time.Time // when the first in the queue can be served at the soonest, as far as that is known
	Rate    permit.Rate
	Changes int // that this process has made so far
}

// State returns the state of the wait queue.
func (h *Handle) State() (s QueueState) {
	h.shard.Lock()
	defer h.shard.Unlock()
	l := h.shard.findLocked(h.QueueID)
	if l == nil {
		return QueueState{Grant: time.Now()}
	}
	s = QueueState{Busy: l.waiters.n > 0 || l.turn != nil, Kept: l.permitsAreKeptLocked() || l.triesStandBehindLocked(),
		Grant: l.first.grantableAt, Rate: l.rate, Changes: l.changes}
	if s.Grant.IsZero() {
		s.Grant = time.Now()
	}
	return s
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

	r     *request // of its turn, or nil
	l     *limiter // the same
	keeps bool     // during the turn free permits are kept, too: tries ask without taking any
}

// A Rejection is the reply that a caller has got before it waits in the queue, or zero if it has not asked.
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
		return false, err
	}
	p.r, p.l = ended, l
	return true, nil
}

// join puts the caller into the queue by the time at which it came.
func (p *Place) join(ctx context.Context, a Rejection) (*limiter, *request, error) {
	h, s := p.Handle, p.Handle.shard
	s.Lock()
	defer s.Unlock()
	if s.closed {
		return nil, nil, permit.ErrClosed
	}
	l, r := s.limiterLocked(&h.Link), p.r
	if r != nil {
		l.turn = nil
	} else {
		r = h.shard.engine.newRequest()
	}
	p.r = nil
	want := Request{Permits: p.Permits, Wait: true, Yields: p.Yields}
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

// Waits returns who waits in the queue, with the caller of p while it has its turn, for Redis to note; nobody if p is nil.
func (p *Place) Waits() (a permit.Allowance) {
	if p == nil || p.r == nil {
		return a
	}
	s := p.Handle.shard
	s.Lock()
	defer s.Unlock()
	return permit.Allowance{Waiting: p.l.waiters.n + 1, NoteFor: s.engine.noteFor(p.l.rate)}
}

// Leave ends the turn of the caller, if it has one.
func (p *Place) Leave() {
	if p.r == nil {
		return
	}
	s, l := p.Handle.shard, p.l
	s.Lock()
	if l.turn == p {
		l.turn = nil
		l.newHeadLocked()
		l.scheduleLocked()
		l.rearmLocked()
	}
	s.Unlock()
	p.Handle.shard.engine.recycle(p.r)
	p.r = nil
}

// giveTurnLocked lets the first in the queue, which has a place, ask by itself. The queue waits until the turn ends.
func (l *limiter) giveTurnLocked(r *request) {
	l.turn, r.place.keeps = r.place, l.headIsStarvingLocked()
	r.Granted = true
	l.shard.endLocked(r)
}

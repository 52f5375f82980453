package ratelimiter

import (
	"context"
	"time"
)

// A turn is what a caller of several limiters stands in line for: not permits, but that nobody of the
// line asks while it asks for all of its permits. Its request is one whose turn is set, to the engine.

// stand puts w into the line of the limiter that bound, by the time at which it came. r is the turn that it has
// there and gives up for that, or nil.
func (l *RateLimiter) stand(ctx context.Context, r *request, w *allWaiter, a allAnswer) (*request, error) {
	b, part := l.bucket, w.parts[a.bound]
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	e := b.engine(l)
	if r != nil {
		e.held = nil
	} else {
		r = l.client.newRequest()
	}
	*r = request{ctx: ctx, permits: part.Permits, blocking: true, deadline: w.deadline, seq: w.seq, done: r.done,
		timer: r.timer, turn: e, place: a.bound, answered: a.refused}
	if a.rate.Interval > 0 {
		e.interval = a.rate.Interval
	}
	e.waiters.insert(r)
	if e.waiters.first == r {
		e.newHead()
		e.headSince = w.since // it has been passed over wherever it stood
		if a.refused && e.changes == part.changes {
			e.freeAt = time.Now().Add(a.Wait)
			e.askAt = time.Now().Add(min(a.Wait, l.client.cfg.recheck))
		}
	}
	e.kick()
	e.rest()
	return r, nil
}

// giveTurn lets the first in line ask by itself. Until it ends its turn the line waits.
func (e *engine) giveTurn(r *request) {
	r.keeps = r.keeps || e.yield()
	r.unqueue()
	r.ended, r.granted = true, true
	e.held = r
	r.done <- struct{}{}
}

func (e *engine) endTurn(r *request) {
	e.bucket.mu.Lock()
	defer e.bucket.mu.Unlock()
	if e.held == r {
		e.held = nil
		e.newHead()
		e.kick()
		e.rest()
	}
}

// reserved: what is free is kept for a caller of several limiters, who gathers permits or has been passed over for long.
// Requests that do not wait are then asked for without taking anything, and refused.
func (e *engine) reserved() bool {
	if e.reserver != nil {
		return true
	}
	if e.held != nil {
		return e.held.keeps
	}
	return e.waiters.first != nil && e.waiters.first.turn != nil && e.yield()
}

// insert puts r where it belongs by the time at which its caller came.
func (q *queue) insert(r *request) {
	after := q.last
	for after != nil && after.seq > r.seq {
		after = after.prev
	}
	if after == q.last {
		q.push(r)
		return
	}
	r.queue, r.prev = q, after
	if after == nil {
		r.next, q.first = q.first, r
	} else {
		r.next, after.next = after.next, r
	}
	r.next.prev = r
	q.n++
}

// freeAt is when the first in line can be served at the soonest, as far as that is known.
func (l *RateLimiter) freeAt() time.Time {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if e := l.bucket.find(l.keys.hash); e != nil && !e.freeAt.IsZero() {
		return e.freeAt
	}
	return time.Now()
}

// changesSeen is how often this process has changed the limiter, for a caller that is about to ask.
func (l *RateLimiter) changesSeen() int {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if e := l.bucket.find(l.keys.hash); e != nil {
		return e.changes
	}
	return 0
}

package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A request is that of one caller on its way through a limiter. What the caller reads, it reads after done; the
// rest is guarded by the shard's lock.
type request struct {
	permits  int64
	ctx      context.Context // the caller's, for what hooks of the redis client find in it
	blocking bool
	policy   *outage.Policy // nil for FailClosed
	deadline time.Time      // of a blocking one; zero for none
	done     chan struct{}  // one send, when the request has ended
	timer    *time.Timer

	seq       uint64   // in the order of their coming, where it may wait
	turn      *limiter // it waits for its turn there, and not for permits
	index     int      // of that limiter in its caller's list
	keepsTurn bool     // it has been passed over: what is free is kept for its caller while that has the turn

	prev, next *request
	queue      *queue // that it stands in
	inFlight   bool
	refused    bool // at least once
	overdue    bool // its time is up, it takes the reply that is on its way
	ended      bool // it has its outcome
	gone       bool // its caller left

	tellWait bool // when it is refused
	Outcome
}

// live reports whether somebody waits for the outcome.
func (r *request) live() bool { return !r.ended && !r.gone }

// A queue is a list of requests in the order of their coming.
type queue struct {
	first, last *request
	n           int
}

func (q *queue) push(r *request) {
	r.queue, r.prev = q, q.last
	if q.last == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
	q.n++
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

// unqueue takes r out of the queue that it stands in, if any.
func (r *request) unqueue() {
	q := r.queue
	if q == nil {
		return
	}
	if r.prev == nil {
		q.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.queue = nil, nil, nil
	q.n--
}

// endLocked gives r its outcome and appends it to ended. Its caller learns of it by wake, after the lock is free.
func (r *request) endLocked(ended []*request) []*request {
	r.unqueue()
	r.ended, r.inFlight = true, false
	return append(ended, r)
}

func (r *request) failLocked(err error, ended []*request) []*request {
	r.Err = err
	return r.endLocked(ended)
}

func (r *request) refuseLocked(a *permit.Reply, ended []*request) []*request {
	r.Degraded, r.Available, r.Wait, r.Reply = false, a.Available, a.Wait, a
	return r.endLocked(ended)
}

func (r *request) grantLocked(a *permit.Reply, left int64, ended []*request) []*request {
	r.Granted, r.Degraded, r.Available, r.Reply = true, false, left, a
	return r.endLocked(ended)
}

// wake lets the callers of ended requests go on. They may use the requests for something else at
// once, so nobody else may look at them any more.
func wake(ended []*request) {
	for _, r := range ended {
		r.done <- struct{}{}
	}
}

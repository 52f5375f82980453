package ratelimiter

import (
	"context"
	"fmt"
	"time"
)

// A request is one caller's wish for permits on its way through an engine. What the caller reads, it
// reads after done; the rest is guarded by the bucket's lock.
type request struct {
	permits  int64
	ctx      context.Context // the caller's, for what hooks of the redis client find in it
	blocking bool
	policy   *OutagePolicy // nil for FailClosed
	deadline time.Time     // of a blocking one; zero for none
	done     chan struct{} // one send, when the request has ended
	timer    *time.Timer

	seq   uint64  // of its coming, where it may wait
	turn  *engine // it waits for its turn there, and not for permits
	place int     // of that limiter in its caller's list
	keeps bool    // it has been passed over: what is free is kept for its caller while that has the turn

	prev, next *request
	queue      *queue // that it stands in
	inCall     bool
	answered   bool // refused at least once
	overdue    bool // its time is up, it takes the answer that is on its way
	ended      bool // it has its answer
	gone       bool // its caller left

	wantsWait bool // when it is refused
	outcome
}

// An outcome is how a request ended.
type outcome struct {
	granted   bool
	degraded  bool // its policy has answered it, or has it wait for the local share
	available int64
	wait      time.Duration
	answer    *answer // what the call said; shared, nil when it made none
	err       error
}

// live: somebody waits for an answer.
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

// end gives r its answer. Its caller learns of it by wake, after the lock is free.
func (r *request) end(ended []*request) []*request {
	r.unqueue()
	r.ended, r.inCall = true, false
	return append(ended, r)
}

func (r *request) fail(err error, ended []*request) []*request {
	r.err = err
	return r.end(ended)
}

func (r *request) refuse(a *answer, ended []*request) []*request {
	r.available, r.wait, r.answer = a.available, a.wait, a
	return r.end(ended)
}

// wake lets the callers of ended requests go on. They may use the requests for something else at
// once, so nobody else may look at them any more.
func wake(ended []*request) {
	for _, r := range ended {
		r.done <- struct{}{}
	}
}

// newRequest is an empty one. The pool is the client's and not a global one: channels must not leave a
// test's bubble.
func (c *Client) newRequest() *request {
	if r, ok := c.requests.Get().(*request); ok {
		return r
	}
	return &request{done: make(chan struct{}, 1)}
}

// recycle takes a request back that has ended and been woken.
func (c *Client) recycle(r *request) {
	*r = request{done: r.done, timer: r.timer}
	c.requests.Put(r)
}

// grace is how long a caller whose time is up waits for an answer that is on its way: so that a
// timeout shorter than a round trip is a try, and one that ends just when the permits come back is
// served.
const grace = 10 * time.Millisecond

// await waits for the answer of a request that an engine has. When the caller's time is up or ctx is
// done it returns at once, whatever is in flight; the engine passes on what was granted.
func (e *engine) await(ctx context.Context, r *request, timeout time.Duration) (*request, error) {
	var timeUp <-chan time.Time
	if r.blocking && !r.deadline.IsZero() {
		if r.timer == nil {
			r.timer = time.NewTimer(timeout)
		} else {
			r.timer.Reset(timeout)
		}
		timeUp = r.timer.C
		defer r.timer.Stop()
	}
	if timeUp == nil && ctx.Done() == nil {
		<-r.done
		return r, nil
	}
	for {
		select {
		case <-r.done:
			return r, nil
		case <-ctx.Done():
			return e.leave(r, ctx.Err())
		case <-timeUp:
			if timeUp = e.graceFor(r); timeUp == nil {
				return e.leave(r, nil)
			}
		}
	}
}

// graceFor starts the grace of a request whose time is up, once, where an answer is on its way.
func (e *engine) graceFor(r *request) <-chan time.Time {
	e.bucket.mu.Lock()
	defer e.bucket.mu.Unlock()
	if r.overdue || r.degraded || e.trouble != nil {
		return nil
	}
	if !time.Now().Before(e.freeAt) {
		e.kick() // the permits may be due at this very instant
	}
	if !r.ended && !e.asking {
		return nil
	}
	r.overdue = true
	r.timer.Reset(grace)
	return r.timer.C
}

// leave takes a request out whose caller waits no longer: because of err, or because its time is up.
// An answer that came first counts.
func (e *engine) leave(r *request, err error) (*request, error) {
	e.bucket.mu.Lock()
	var ended []*request
	if r.degraded && !r.ended && err == nil {
		ended = e.serve(false, nil) // its share may be due at this very instant
		e.rest()
	}
	if r.ended {
		e.bucket.mu.Unlock()
		wake(ended)
		<-r.done
		return r, nil
	}
	r.gone = true
	if err == nil && !r.degraded && (e.asking && !r.answered && r.turn == nil || e.trouble != nil || e.l.outage().known()) {
		// Nobody knows whether it was refused.
		err = fmt.Errorf("%w: acquire of %q: no answer in time", ErrUnavailable, e.l.name)
		if e.trouble != nil {
			err = fmt.Errorf("%w: %w", err, e.trouble)
		}
	}
	e.left(r)
	if r.degraded {
		ended = e.serve(false, ended) // who stood behind it
		e.rest()
	}
	e.bucket.mu.Unlock()
	wake(ended)
	return nil, err
}

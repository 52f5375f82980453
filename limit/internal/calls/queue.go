// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// Callers of one process that wait for permits of one key stand in a queue, first come, first served. Only for
// the head of the queue, and for those right behind it who want as many permits, is the limiter asked, when the
// head can be served. So the others cost no calls, and a large request does not starve behind small ones.
//
// Other processes may take the permits for which the head waits. When it has been rejected in this way, the next
// call asks for all in the queue, in their order: what is too little for the head goes to those behind it. So a
// large request that cannot get through holds up the small ones behind it for two of its waits at most.
//
// When another process settles a grant to less, the key is deleted or lost, or the clock of Redis is put forward, permits are
// available earlier than the head was told. Nobody tells the process so. Therefore it looks: it asks for the head once a second.

// BookAhead is how far ahead a caller that waits reserves its turn.
const BookAhead = time.Second

// LeastWait is the pause before a limiter that rejects without a wait is asked again.
const LeastWait = time.Millisecond

// lookEvery is how often the limiter is asked for permits that are not due. A wait that ends at most lookSlack later than
// the next look does without it.
const (
	LookEvery = time.Second
	lookSlack = 100 * time.Millisecond
)

// A waiter is a caller in a queue.
type waiter struct {
	ctx       context.Context
	n         int64
	deadline  time.Time // zero for none
	byContext bool      // it is that of ctx
	due       time.Time // when it can be served, if it has been told
	asked     time.Time // when the call was made that is in flight and asks for it; zero if there is none
	overdue   bool      // the deadline has passed while it was
	ended     bool
	done      chan struct{} // closed when ended
	mark      *Mark         // of a grant that is to be settled
	result    ratelimiter.Result
	err       error
}

// A queue holds the waiters of one key. A goroutine asks for them as long as there are any.
type queue struct {
	limiter *Shared
	waiters []*waiter
	due     time.Time // when the head can be served, as far as is known
	asked   time.Time // when the limiter was last asked about it
	told    bool      // the head was told that
	passed  bool      // it was rejected all the same, the last time
	freed   bool      // permits were given back since the limiter was last asked
	changed chan struct{}
}

// queues are the queues of all keys of a limiter.
type queues struct {
	mu     sync.Mutex
	queues map[string]*queue
}

// Busy reports whether anybody waits.
func (qs *queues) Busy(key string) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.queues[key] != nil
}

// again has the limiter asked for the head at once, if anybody waits.
func (qs *queues) again(key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.queues[key]; q != nil {
		q.due = time.Now()
		q.tellLocked()
	}
}

// look has the limiter asked for the head before it is due, if anybody waits.
func (qs *queues) look(key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.queues[key]; q != nil {
		q.freed = true
		q.tellLocked()
	}
}

// tellLocked tells run that something has changed.
func (q *queue) tellLocked() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// WaitFor blocks until n permits may be used, it is known that they will not be in time, or ctx is done, as WaitTimeout of package
// limit does. The mark of the grant goes to m, unless that is nil.
func (s *Shared) WaitFor(ctx context.Context, n int64, timeout time.Duration, m *Mark) (ratelimiter.Result, error) {
	return s.config.asked(ctx, ratelimiter.OperationAcquire, n, func() (ratelimiter.Result, error) { return s.wait(ctx, n, timeout, m) })
}

// wait is waitFor without the Hooks. The mark of the grant goes to m, unless that is nil.
func (s *Shared) wait(ctx context.Context, n int64, timeout time.Duration, m *Mark) (ratelimiter.Result, error) {
	if ctx == nil {
		return ratelimiter.Result{}, ContextError(ctx)
	}
	begin := time.Now()
	left, byContext := TimeLeft(ctx, timeout)
	qs, key := &s.config.Queues, s.slot
	w := &waiter{ctx: ctx, n: n, byContext: byContext, mark: m, done: make(chan struct{})}
	if left < math.MaxInt64 {
		w.deadline = begin.Add(left)
	}
	if left <= 0 || !qs.Busy(key) {
		r, err := s.Ask(ctx, w.demand(begin))
		if err != nil {
			return ratelimiter.Result{}, err
		}
		if r.Granted {
			return r, Sleep(ctx, r.Wait)
		}
		rejected := max(r.Wait, LeastWait)
		if s.Now().Reserves {
			p, err := s.Ask(ctx, Demand{N: n}) // see lateLocked
			if err != nil {
				return ratelimiter.Result{}, err
			}
			rejected = max(rejected, p.Wait)
		}
		if left <= 0 || !r.Degraded && rejected > left-time.Since(begin) {
			return ratelimiter.Result{}, TooLate(byContext)
		}
		w.due = begin.Add(max(r.Wait, LeastWait))
	} else {
		if err := ctx.Err(); err != nil {
			return ratelimiter.Result{}, err
		}
		if err := (&Demand{N: n}).Check(&s.Now().Model); err != nil {
			return ratelimiter.Result{}, err
		}
		if left < math.MaxInt64 {
			r, err := s.Ask(ctx, Demand{N: n})
			if err != nil {
				return ratelimiter.Result{}, err
			}
			if !r.Granted && !r.Degraded && r.Wait > left-time.Since(begin) {
				return ratelimiter.Result{}, TooLate(byContext)
			}
		}
	}
	q := qs.join(s, w)
	qs.wait(q, w)
	if w.err != nil || !w.result.Granted {
		return ratelimiter.Result{}, w.err
	}
	return w.result, Sleep(ctx, w.result.Wait)
}

// join puts w at the end of the queue of s.
func (qs *queues) join(s *Shared, w *waiter) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	key := s.slot
	q := qs.queues[key]
	if q == nil {
		q = &queue{limiter: s, changed: make(chan struct{}, 1)}
		if qs.queues == nil {
			qs.queues = map[string]*queue{}
		}
		qs.queues[key] = q
		go q.run(qs, key)
	}
	q.waiters = append(q.waiters, w)
	return q
}

// wait blocks until w is served, cannot be served in time, or leaves.
func (qs *queues) wait(q *queue, w *waiter) {
	var timeout <-chan time.Time
	if !w.deadline.IsZero() && !w.byContext {
		t := time.NewTimer(time.Until(w.deadline))
		defer t.Stop()
		timeout = t.C
	}
	for {
		select {
		case <-w.done:
			return
		case <-timeout:
			// Who is due at this very instant may still be served.
			qs.mu.Lock()
			w.overdue = true
			if w.asked.IsZero() && !(q.heads(w) && !q.due.After(time.Now())) {
				q.endLocked(w, ratelimiter.Result{}, nil)
			}
			qs.mu.Unlock()
			timeout = nil
		case <-w.ctx.Done():
			qs.mu.Lock()
			err := w.ctx.Err()
			if s := q.limiter; !w.asked.IsZero() {
				err = s.Left(err, w.asked, s.config.Lines.failure(s.keys[0]))
			}
			q.endLocked(w, ratelimiter.Result{}, err)
			qs.mu.Unlock()
		}
	}
}

// heads reports whether the limiter is asked for w when the head is due.
func (q *queue) heads(w *waiter) bool {
	for _, x := range q.waiters {
		if x == w || x.n != w.n {
			return x == w
		}
	}
	return false
}

// endLocked ends the wait of w, unless it has ended.
func (q *queue) endLocked(w *waiter, r ratelimiter.Result, err error) {
	if w.ended {
		return
	}
	w.ended, w.result, w.err = true, r, err
	close(w.done)
	q.tellLocked()
}

// sweepLocked removes those that have ended.
func (q *queue) sweepLocked() {
	kept := q.waiters[:0]
	for _, w := range q.waiters {
		if !w.ended {
			kept = append(kept, w)
		}
	}
	clear(q.waiters[len(kept):])
	q.waiters = kept
}

// run asks the limiter until nobody waits.
func (q *queue) run(qs *queues, key string) {
	var head *waiter
	for {
		qs.mu.Lock()
		q.sweepLocked()
		if len(q.waiters) == 0 {
			delete(qs.queues, key)
			qs.mu.Unlock()
			return
		}
		now := time.Now()
		if x := q.waiters[0]; x != head {
			head = x
			q.due, q.told, q.passed = x.due, !x.due.IsZero(), false
			if r, _, ok := q.limiter.config.Rejected(key, x.demand(now)); ok {
				q.due, q.told = now.Add(r.Wait), true
			}
		}
		pause := q.pauseLocked(now)
		var asked []*waiter
		if pause <= 0 {
			q.freed = false
			due := !q.due.After(now)
			for _, w := range q.waiters {
				if w.n != head.n && !(q.passed && due) || len(asked) == maxRequests {
					break
				}
				w.asked = now
				asked = append(asked, w)
			}
		}
		qs.mu.Unlock()
		if pause > 0 {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-q.changed:
			}
			t.Stop()
			continue
		}
		q.ask(qs, asked)
	}
}

// pauseLocked returns how long it takes until the limiter is asked for the head.
func (q *queue) pauseLocked(now time.Time) time.Duration {
	if q.freed {
		return 0
	}
	c, key := q.limiter.config, q.limiter.slot
	_, sent, known := c.Rejected(key, q.waiters[0].demand(now))
	switch {
	case known && sent.After(q.asked):
		q.asked = sent
	case q.asked.IsZero():
		q.asked = now
	}
	look := q.asked.Add(LookEvery)
	if look.Add(lookSlack).Before(q.due) {
		return look.Sub(now)
	}
	return q.due.Sub(now)
}

func (w *waiter) demand(now time.Time) Demand {
	left := BookAhead
	if !w.deadline.IsZero() {
		left = min(left, w.deadline.Sub(now))
	}
	return Demand{N: w.n, AtMost: AtMostMicros(left), Spend: true, Mark: w.mark}
}

// ask requests permits for the given waiters, head first, and wakes those that were granted or can no longer make their
// deadline.
func (q *queue) ask(qs *queues, asked []*waiter) {
	s, now := q.limiter, time.Now()
	list := make([]Demand, len(asked))
	for i, w := range asked {
		list[i] = w.demand(now)
	}
	outcomes := s.BatchAll(context.WithoutCancel(asked[0].ctx), list)

	qs.mu.Lock()
	defer qs.mu.Unlock()
	begin, early := now, q.due.After(now)
	now, q.asked = time.Now(), now
	for i, w := range asked {
		r, err := outcomes[i].result, outcomes[i].Err
		w.asked = time.Time{}
		switch {
		case early && permit.WasNotServed(err):
			continue // it could not be told that it need not wait; nobody has asked for its permits yet
		case err != nil || r.Granted:
			q.endLocked(w, r, err)
			continue
		case early && i == 0:
			// What it was told remains the instant at which it is known whether others have taken its permits.
			if due := begin.Add(max(r.Wait, LeastWait)); due.Before(q.due) {
				q.due = due
			}
		case i == 0:
			q.due = begin.Add(max(r.Wait, LeastWait))
			// Less than that is a timer that was early.
			q.passed = q.told && !q.passed && r.Wait > LeastWait
			q.told = true
		}
		if !r.Degraded { // Redis may be back in time
			q.lateLocked(w, max(r.Wait, LeastWait), now)
		}
	}
	for _, w := range q.waiters {
		if w.overdue {
			q.endLocked(w, ratelimiter.Result{}, nil)
		}
		if r, _, ok := s.config.Rejected(s.slot, w.demand(now)); ok {
			q.lateLocked(w, max(r.Wait, LeastWait), now)
		}
	}
}

// lateLocked ends the wait of w if it is rejected for longer than it has time.
func (q *queue) lateLocked(w *waiter, rejected time.Duration, now time.Time) {
	if w.deadline.IsZero() {
		return
	}
	c := q.limiter.config
	if c.Now().Reserves {
		// Its wait ends when a turn can be reserved. The turn itself is at the instant at which a call would be
		// granted at once.
		if r, _, ok := c.Rejected(q.limiter.slot, Demand{N: w.n, Spend: true}); ok {
			rejected = max(rejected, r.Wait)
		}
	}
	if left := w.deadline.Sub(now); rejected > left || w.overdue {
		q.endLocked(w, ratelimiter.Result{}, TooLate(w.byContext))
	}
}

// TimeLeft returns the shorter of timeout and the time until the deadline of ctx, and whether it is the latter.
func TimeLeft(ctx context.Context, timeout time.Duration) (left time.Duration, byContext bool) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) < timeout {
		return time.Until(d), true
	}
	return timeout, false
}

// TooLate returns the error of a wait that would take longer than the time left, which is none if that is not until the deadline of a
// context.
func TooLate(byContext bool) error {
	if byContext {
		return context.DeadlineExceeded
	}
	return nil
}

// Sleep is [retry.Sleep], but looks at ctx only if there is time to sleep.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return retry.Sleep(ctx, d)
}

// Longest is how far in advance permits can be reserved: a year, so that instants are exact in Lua.
const Longest = 365 * 24 * time.Hour

// AtMostMicros returns how long a caller would wait, in µs.
func AtMostMicros(d time.Duration) int64 { return min(max(d, 0), Longest).Microseconds() }

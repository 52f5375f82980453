// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"math"
	"slices"
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
// Wait of package limit says when those behind the head pass it, and why the limiter is asked for the head once a second.

// BookAhead is how far ahead a caller that waits reserves its turn.
const BookAhead = time.Second

// LeastWait is the pause before a limiter that rejects without a wait is asked again.
const LeastWait = time.Millisecond

// LookEvery is how often the limiter is asked for permits that are not due. A wait that ends at most lookSlack later than
// the next look does without it.
const (
	LookEvery = time.Second
	lookSlack = 100 * time.Millisecond
)

// A waiter is a caller in a queue.
type waiter struct {
	ctx       context.Context
	n         int64
	came      time.Time
	deadline  time.Time     // zero for none
	byContext bool          // it is that of ctx
	due       time.Time     // when it can be served, if it has been told; only that of the head is kept up to date
	passed    bool          // it was the head, and rejected when it was due, the last time
	asked     time.Time     // when the call was made that is in flight and asks for it; zero if there is none
	overdue   bool          // the deadline has passed while it was
	done      chan struct{} // closed when ended
	ended     bool
	outcome   Outcome
	err       error
}

// A queue holds the waiters of one key. A goroutine asks for them as long as there are any.
type queue struct {
	limiter *Shared
	waiters []*waiter
	asked   time.Time     // when the limiter was last asked about the head
	freed   bool          // permits were given back since
	changed chan struct{} // has an element when run has to look again
}

// queues are the queues of all keys of a limiter.
type queues struct {
	mu     sync.Mutex
	queues map[string]*queue
}

// busy reports whether anybody waits.
func (qs *queues) busy(key string) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.queues[key] != nil
}

// look has the limiter asked for the head at once, if anybody waits.
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
// limit does.
func (s *Shared) WaitFor(ctx context.Context, n int64, timeout time.Duration) (Outcome, error) {
	return s.config.asked(ctx, ratelimiter.OperationAcquire, n, func() (Outcome, error) { return s.wait(ctx, n, timeout) })
}

// wait is WaitFor without the Hooks.
func (s *Shared) wait(ctx context.Context, n int64, timeout time.Duration) (Outcome, error) {
	if ctx == nil {
		return Outcome{}, ContextError(ctx)
	}
	begin := time.Now()
	left, byContext := TimeLeft(ctx, timeout)
	w := &waiter{ctx: ctx, n: n, came: begin, byContext: byContext, done: make(chan struct{})}
	if left < math.MaxInt64 {
		w.deadline = begin.Add(left)
	}
	var o Outcome
	var err error
	behind := left > 0 && s.config.queues.busy(s.slot)
	if behind {
		err = s.check(ctx, Demand{N: n})
	} else if o, err = s.ask(ctx, w.demand(begin)); err == nil {
		if o.Granted {
			return o, Sleep(ctx, o.Wait)
		}
		o.Wait = max(o.Wait, LeastWait)
		w.due = begin.Add(o.Wait)
	}
	if err == nil && left < math.MaxInt64 && (behind || s.Now().Reserves) { // see lateLocked
		var p Outcome
		p, err = s.ask(ctx, Demand{N: n})
		o.Wait, o.Degraded = max(o.Wait, p.Wait), o.Degraded || p.Degraded
	}
	if err != nil {
		return Outcome{}, err
	}
	if left <= 0 || !o.Degraded && o.Wait > left-time.Since(begin) {
		return Outcome{}, TooLate(byContext)
	}
	s.config.queues.join(s, w).wait(&s.config.queues, w)
	if w.err != nil || !w.outcome.Granted {
		return Outcome{}, w.err
	}
	return w.outcome, Sleep(ctx, w.outcome.Wait)
}

// demand returns what is asked for w.
func (w *waiter) demand(now time.Time) Demand {
	left := BookAhead
	if !w.deadline.IsZero() {
		left = min(left, w.deadline.Sub(now))
	}
	return Demand{N: w.n, AtMost: AtMostMicros(left), Spend: true}
}

// join puts w into the queue of s, before those that came later: who is rejected in one call with others is not woken in their order.
// Nobody gets before one that is being asked for.
func (qs *queues) join(s *Shared, w *waiter) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queues[s.slot]
	if q == nil {
		q = &queue{limiter: s, changed: make(chan struct{}, 1)}
		if qs.queues == nil {
			qs.queues = map[string]*queue{}
		}
		qs.queues[s.slot] = q
		go q.run(qs)
	}
	i := len(q.waiters)
	for i > 0 && q.waiters[i-1].came.After(w.came) && q.waiters[i-1].asked.IsZero() {
		i--
	}
	q.waiters = slices.Insert(q.waiters, i, w)
	if i == 0 && len(q.waiters) > 1 {
		q.tellLocked() // run may look at another head
	}
	return q
}

// wait blocks until w is served, cannot be served in time, or leaves.
func (q *queue) wait(qs *queues, w *waiter) {
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
			if !w.ended && w.asked.IsZero() && !q.dueLocked(w, time.Now()) {
				q.endLocked(w, Outcome{}, nil)
			}
			qs.mu.Unlock()
			timeout = nil
		case <-w.ctx.Done():
			qs.mu.Lock()
			err := w.ctx.Err()
			if s := q.limiter; !w.asked.IsZero() {
				err = s.Left(err, w.asked, s.config.lines.failure(s.keys[0]))
			}
			q.endLocked(w, Outcome{}, err)
			qs.mu.Unlock()
		}
	}
}

// endLocked ends the wait of w, unless it has ended.
func (q *queue) endLocked(w *waiter, o Outcome, err error) {
	if w.ended {
		return
	}
	w.ended, w.outcome, w.err = true, o, err
	close(w.done)
	q.tellLocked()
}

// run asks the limiter until nobody waits.
func (q *queue) run(qs *queues) {
	var head *waiter
	for {
		qs.mu.Lock()
		q.waiters = slices.DeleteFunc(q.waiters, func(w *waiter) bool { return w.ended })
		if len(q.waiters) == 0 {
			delete(qs.queues, q.limiter.slot)
			qs.mu.Unlock()
			return
		}
		now := time.Now()
		if x := q.waiters[0]; x != head {
			head = x
			if r, _, ok := q.rejected(head.demand(now)); ok {
				head.due = now.Add(r.Wait)
			}
		}
		pause := q.pauseLocked(now)
		var asked []*waiter
		if pause <= 0 {
			q.freed = false
			asked = slices.Clone(q.turnLocked(now))
			for _, w := range asked {
				w.asked = now
			}
		}
		qs.mu.Unlock()
		if pause <= 0 {
			q.ask(qs, asked)
			continue
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-q.changed:
		}
		t.Stop()
	}
}

// rejected is Limiter.Rejected for the key of q.
func (q *queue) rejected(d Demand) (ratelimiter.Result, time.Time, bool) {
	return q.limiter.config.Rejected(q.limiter.slot, d)
}

// pauseLocked returns how long it takes until the limiter is asked for the head.
func (q *queue) pauseLocked(now time.Time) time.Duration {
	if q.freed {
		return 0
	}
	head := q.waiters[0]
	_, sent, known := q.rejected(head.demand(now))
	switch {
	case known && sent.After(q.asked):
		q.asked = sent
	case q.asked.IsZero():
		q.asked = now
	}
	look := q.asked.Add(LookEvery)
	if look.Add(lookSlack).Before(head.due) {
		return look.Sub(now)
	}
	return head.due.Sub(now)
}

// turnLocked returns for whom the limiter is asked when it is asked for the head.
func (q *queue) turnLocked(now time.Time) []*waiter {
	head, n := q.waiters[0], 1
	all := head.passed && !head.due.After(now)
	for n < min(len(q.waiters), maxRequests) && (all || q.waiters[n].n == head.n) {
		n++
	}
	return q.waiters[:n]
}

// dueLocked reports whether the limiter is to be asked for w, which has not ended.
func (q *queue) dueLocked(w *waiter, now time.Time) bool {
	return !q.waiters[0].due.After(now) && slices.Contains(q.turnLocked(now), w)
}

// ask requests permits for the given waiters, head first, and wakes those that were granted or can no longer make their
// deadline.
func (q *queue) ask(qs *queues, asked []*waiter) {
	begin := time.Now()
	list := make([]Demand, len(asked))
	for i, w := range asked {
		list[i] = w.demand(begin)
	}
	outcomes, errs := q.limiter.batchAll(context.WithoutCancel(asked[0].ctx), list)

	qs.mu.Lock()
	defer qs.mu.Unlock()
	head, now := asked[0], time.Now()
	early := head.due.After(begin)
	q.asked = begin
	for i, w := range asked {
		o, err := outcomes[i], errs[i]
		rejected := max(o.Wait, LeastWait)
		due := begin.Add(rejected)
		w.asked = time.Time{}
		switch {
		case early && permit.WasNotServed(err):
			continue // it could not be told that it need not wait; nobody has asked for its permits yet
		case err != nil || o.Granted:
			q.endLocked(w, o, err)
			continue
		case w == head && early:
			// What it was told remains the instant at which it is known whether others have taken its permits.
			if due.Before(head.due) {
				head.due = due
			}
		case w == head:
			// Less than that is a timer that was early.
			head.passed = !head.due.IsZero() && !head.passed && o.Wait > LeastWait
			head.due = due
		}
		if !o.Degraded { // Redis may be back in time
			q.lateLocked(w, rejected, now)
		}
	}
	for _, w := range q.waiters {
		if w.overdue {
			q.endLocked(w, Outcome{}, nil)
		}
		if r, _, ok := q.rejected(w.demand(now)); ok {
			q.lateLocked(w, max(r.Wait, LeastWait), now)
		}
	}
}

// lateLocked ends the wait of w if it is rejected for longer than it has time.
func (q *queue) lateLocked(w *waiter, rejected time.Duration, now time.Time) {
	if w.deadline.IsZero() {
		return
	}
	if q.limiter.config.Now().Reserves {
		// Its wait ends when a turn can be reserved. The turn itself is at the instant at which a call would be
		// granted at once.
		if r, _, ok := q.rejected(Demand{N: w.n, Spend: true}); ok {
			rejected = max(rejected, r.Wait)
		}
	}
	if left := w.deadline.Sub(now); rejected > left || w.overdue {
		q.endLocked(w, Outcome{}, TooLate(w.byContext))
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

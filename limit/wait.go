// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// bookAhead is how far ahead a caller that waits reserves its turn.
const bookAhead = time.Second

// leastWait is the pause before a limiter that rejects without a wait is asked again.
const leastWait = time.Millisecond

// Wait blocks until n permits of l may be used, and takes them. It returns nil when they may be used.
//
// It returns ctx.Err() when ctx is done, and context.DeadlineExceeded as soon as it is known that the permits
// will not be available before the deadline of ctx. Wait also returns the errors of l.
//
// Of a limiter that grants in advance ([LeakyQueue], [SmoothBursty], [SmoothWarmingUp]) Wait reserves a turn only when it is no more
// than a second away. A turn that is reserved when ctx ends the wait is not given back. So callers that have left, however many, close the limiter
// for no longer than a second and the time of the permits of one of them.
//
// The callers of one process that wait for a key of a [Shared] form a queue: first come, first served. Redis
// is asked when the first of them can be served, for it and for those right behind it who want as many permits,
// so that a grant takes about one call, however many wait. A large call does not starve behind small ones: those
// behind it wait until it is served. If other processes take the permits for which it waits, and it is rejected
// when it was told to come, the next call asks for all who wait, and what is too little for the first goes to those
// behind it. So a large call holds up a small one for two of the waits that it is told at most, each of which is
// no longer than an unused limiter takes to be full. Allow and Reserve do not stand in the queue.
//
// Permits are available earlier than the first caller was told if a [Grant] is settled to less, the key is deleted, Redis has
// lost its data, or its clock is put forward. So while somebody waits for a Shared for longer than a second, the process asks Redis about the
// key once a second, and those who wait are served in their order as soon as it notices. That Redis does not reply to
// such a question ends no wait.
//
// The callers that wait for a [Local] whose algorithm grants in advance are served in their order, too. Those of other
// algorithms, or of a Limiter of another package, form no queue: the first to ask when permits are available gets them, so
// that small calls can keep a large one waiting. Each of them asks once a second at least. An [Adapter] has the queue of
// its ratelimiter.Client. It knows how long a wait takes at least when it begins, and learns nothing more of it
// until it ends.
func Wait(ctx context.Context, l Limiter, n int64) error {
	_, err := waitFor(ctx, l, n, math.MaxInt64)
	return err
}

// WaitTimeout is like Wait but waits for at most timeout. It reports whether the permits may be used. It
// returns false as soon as it is known that they will not be available in time, and then has taken nothing.
// If timeout is not positive it asks once. It returns the errors of Wait.
func WaitTimeout(ctx context.Context, l Limiter, n int64, timeout time.Duration) (bool, error) {
	return waitFor(ctx, l, n, max(timeout, 0))
}

func waitFor(ctx context.Context, l Limiter, n int64, timeout time.Duration) (bool, error) {
	if ctx == nil || l == nil {
		return false, invalid("the context or the limiter is nil")
	}
	if a, ok := l.(*Adapter); ok {
		return a.waitInQueue(ctx, n, timeout)
	}
	if s, ok := l.(*Shared); ok {
		return s.waitFor(ctx, n, timeout, nil)
	}
	if q, ok := l.(*Local); ok && !q.made() {
		return false, errNotLocal
	}
	begin := time.Now()
	r, byContext, err := take(ctx, l, n, begin, timeout)
	if err != nil {
		return false, err
	}
	if !r.Granted {
		return tooLate(byContext)
	}
	err = sleep(ctx, r.Wait)
	return err == nil, err
}

// take asks l until it grants the permits, or rejects them for longer than is left of the timeout or until the deadline of ctx: then it
// reports whether that was the latter.
func take(ctx context.Context, l Limiter, n int64, begin time.Time, timeout time.Duration) (r Result, byContext bool, err error) {
	reserver := asReserver(l)
	if q, ok := l.(*Local); ok && reserver != nil {
		first, byContext, err := q.queue(ctx, n, timeout)
		if !first {
			return Result{}, byContext, err
		}
		defer q.next()
	}
	for {
		var left time.Duration
		left, byContext = timeLeft(ctx, timeout-time.Since(begin))
		if reserver != nil {
			r, err = reserver.Reserve(ctx, n, min(left, bookAhead))
		} else {
			r, err = l.Allow(ctx, n)
		}
		if err != nil || r.Granted {
			return r, byContext, err
		}
		pause := r.Wait
		if pause <= 0 {
			pause = leastWait
		}
		due := pause
		if reserver != nil {
			// r.Wait ends when a turn can be reserved. The turn itself is at the instant at which a call would be
			// granted at once.
			p, err := l.Peek(ctx, n)
			if err != nil {
				return Result{}, byContext, err
			}
			due = max(due, p.Wait)
		}
		if due > left {
			return r, byContext, nil
		}
		if err := sleep(ctx, min(pause, lookEvery)); err != nil { // the permits may be available earlier
			return Result{}, byContext, err
		}
	}
}

// waitFor is waitFor for a shared limiter. The mark of the grant goes to m, unless that is nil.
func (s *Shared) waitFor(ctx context.Context, n int64, timeout time.Duration, m *mark) (bool, error) {
	if !s.made() {
		return false, errNotShared
	}
	r, err := s.config.asked(ctx, ratelimiter.OperationAcquire, n, func() (Result, error) {
		if ctx == nil {
			return Result{}, contextError(ctx)
		}
		return s.wait(ctx, n, timeout, m)
	})
	return err == nil && r.Granted, err
}

// wait is waitFor for a shared limiter without the Hooks. The mark of the grant goes to m, unless that is nil.
func (s *Shared) wait(ctx context.Context, n int64, timeout time.Duration, m *mark) (Result, error) {
	begin := time.Now()
	left, byContext := timeLeft(ctx, timeout)
	qs, key := &s.config.queues, s.keys[0]
	w := &waiter{ctx: ctx, n: n, byContext: byContext, mark: m, done: make(chan struct{})}
	if left < math.MaxInt64 {
		w.deadline = begin.Add(left)
	}
	if left <= 0 || !qs.busy(key) {
		r, err := s.reserve(ctx, n, min(left, bookAhead), m)
		if err != nil {
			return Result{}, err
		}
		if r.Granted {
			return r, sleep(ctx, r.Wait)
		}
		rejected := max(r.Wait, leastWait)
		if s.config.now().algorithm.reserves() {
			p, err := s.peek(ctx, n) // see lateLocked
			if err != nil {
				return Result{}, err
			}
			rejected = max(rejected, p.Wait)
		}
		if left <= 0 || !r.Degraded && rejected > left-time.Since(begin) {
			_, err := tooLate(byContext)
			return Result{}, err
		}
		w.due = begin.Add(max(r.Wait, leastWait))
	} else {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		if err := checkPermits(s.config.now().algorithm, n); err != nil {
			return Result{}, err
		}
		if left < math.MaxInt64 {
			r, err := s.peek(ctx, n)
			if err != nil {
				return Result{}, err
			}
			if !r.Granted && !r.Degraded && r.Wait > left-time.Since(begin) {
				_, err := tooLate(byContext)
				return Result{}, err
			}
		}
	}
	q := qs.join(s, w)
	qs.wait(q, w)
	if w.err != nil || !w.result.Granted {
		return Result{}, w.err
	}
	return w.result, sleep(ctx, w.result.Wait)
}

// timeLeft returns the shorter of timeout and the time until the deadline of ctx, and whether it is the latter.
func timeLeft(ctx context.Context, timeout time.Duration) (left time.Duration, byContext bool) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) < timeout {
		return time.Until(d), true
	}
	return timeout, false
}

// tooLate returns the outcome of a wait that would take longer than the time left.
func tooLate(byContext bool) (bool, error) {
	if byContext {
		return false, context.DeadlineExceeded
	}
	return false, nil
}

// asReserver returns l as a Reserver if it grants permits in advance, and otherwise nil.
func asReserver(l Limiter) Reserver {
	if a, ok := l.(interface{ Algorithm() Algorithm }); ok && !a.Algorithm().reserves() {
		return nil
	}
	r, _ := l.(Reserver)
	return r
}

// sleep is [retry.Sleep], but looks at ctx only if there is time to sleep.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return retry.Sleep(ctx, d)
}

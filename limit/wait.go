// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// Wait blocks until n permits of l may be used, and takes them. It returns nil when they may be used.
//
// It returns ctx.Err() when ctx is done, and context.DeadlineExceeded as soon as it is known that the permits
// will not be available before the deadline of ctx. Wait also returns the errors of l: if ctx ends while a call for the permits has
// no reply, they may have been taken, and the error of a Shared wraps ctx.Err() and, 10 ms after the call, ratelimiter.ErrUnavailable.
//
// Callers of one process that wait for the same key of a [Shared], with the same parameters, are served first come, first served, and
// share calls of Redis. Each of them may first ask at once, in a call that it shares with others, as in Allow; who is rejected there
// stands in the order of arrival. A large request that waits blocks those behind it, so it does not starve. If other processes take its permits, the next
// call also asks for the smaller requests behind it; a large request therefore delays a small one by at most twice the time
// in which an unused limiter fills. Allow and Reserve do not join the queue. While callers wait for longer than a second, the
// process asks Redis about the key once a second. It notices within that time that permits became free early, because a
// [Grant] was settled, the key was deleted, or Redis lost its data.
//
// Callers that wait for a [Local] are served in order only if its algorithm grants in advance. Otherwise, and with a Limiter
// of another package, whoever asks first gets the permits, each asks at least once a second, and small requests can keep a
// large one waiting. A ratelimiter.RateLimiter has the queue of its Client.
//
// With an algorithm that grants in advance ([LeakyQueue], [SmoothBursty], [SmoothWarmingUp]) Wait reserves a turn at most a
// second ahead. A turn that is reserved when ctx ends the wait is lost, so callers that gave up keep the limiter closed
// for no longer than that second and the time of one request.
func Wait(ctx context.Context, l Limiter, n int64) error {
	_, err := waitFor(ctx, l, n, math.MaxInt64)
	return err
}

// WaitTimeout is like Wait but waits for at most timeout. It reports whether the permits may be used. It
// returns false as soon as it is known that they will not be available in time, and then has taken nothing.
// If timeout is not positive it asks once. It returns the errors of Wait.
func WaitTimeout(ctx context.Context, l Limiter, n int64, timeout time.Duration) (bool, error) {
	o, err := waitFor(ctx, l, n, max(timeout, 0))
	return err == nil && o.Granted, err
}

func waitFor(ctx context.Context, l Limiter, n int64, timeout time.Duration) (o calls.Outcome, err error) {
	if ctx == nil || l == nil {
		return o, calls.Invalid("the context or the limiter is nil")
	}
	switch l := l.(type) {
	case *ratelimiter.RateLimiter:
		o.Granted, err = waitInQueue(ctx, l, n, timeout)
		return o, err
	case *Shared:
		if err := l.unusable(); err != nil {
			return o, err
		}
		return l.calls.WaitFor(ctx, n, timeout)
	}
	begin := time.Now()
	o, byContext, err := take(ctx, l, n, begin, timeout)
	if err != nil {
		return o, err
	}
	if !o.Granted {
		return o, calls.TooLate(byContext)
	}
	return o, calls.Sleep(ctx, o.Wait)
}

// waitInQueue waits in the queue of the RateLimiter, which does not say how long that takes. Where the time is
// limited it peeks first: the wait is at least as long as that says, and longer when other callers wait already.
// If the Peek fails, the RateLimiter decides, which may have an outage policy.
func waitInQueue(ctx context.Context, l *ratelimiter.RateLimiter, n int64, timeout time.Duration) (bool, error) {
	begin := time.Now()
	left, byContext := calls.TimeLeft(ctx, timeout)
	if left > 0 && left < math.MaxInt64 {
		r, err := l.Peek(ctx, n)
		if err == nil && !r.Granted && r.Wait > left-time.Since(begin) {
			return false, calls.TooLate(byContext)
		}
	}
	if timeout == math.MaxInt64 {
		err := l.Acquire(ctx, n)
		return err == nil, err
	}
	return l.TryAcquire(ctx, n, max(timeout-time.Since(begin), 0))
}

// take asks l until it grants the permits, or rejects them for longer than is left of the timeout or until the deadline of ctx: then it
// reports whether that was the latter.
func take(ctx context.Context, l Limiter, n int64, begin time.Time, timeout time.Duration) (o calls.Outcome, byContext bool, err error) {
	local, _ := l.(*Local)
	inAdvance := asReserver(l)
	if local != nil && inAdvance != nil {
		first, byContext, err := local.queue(ctx, n, timeout)
		if !first {
			return o, byContext, err
		}
		defer local.next()
	}
	for {
		var left time.Duration
		left, byContext = calls.TimeLeft(ctx, timeout-time.Since(begin))
		switch {
		case local != nil:
			o, err = local.ask(ctx, "", calls.Demand{N: n, AtMost: calls.AtMostMicros(min(left, calls.BookAhead)), Spend: true})
		case inAdvance != nil:
			o.Result, err = inAdvance.Reserve(ctx, n, min(left, calls.BookAhead))
		default:
			o.Result, err = l.Allow(ctx, n)
		}
		if err != nil || o.Granted {
			return o, byContext, err
		}
		pause := o.Wait
		if pause <= 0 {
			pause = calls.LeastWait
		}
		due := pause
		if inAdvance != nil {
			// o.Wait ends when a turn can be reserved. The turn itself is at the instant at which a call would be
			// granted at once.
			p, err := l.Peek(ctx, n)
			if err != nil {
				return o, byContext, err
			}
			due = max(due, p.Wait)
		}
		if due > left {
			return o, byContext, nil
		}
		if err := calls.Sleep(ctx, min(pause, calls.LookEvery)); err != nil { // the permits may be available earlier
			return o, byContext, err
		}
	}
}

// asReserver returns l as a reserver if it grants permits in advance, and otherwise nil.
func asReserver(l Limiter) reserver {
	switch x := l.(type) {
	case *Local:
		if !x.made() || !x.by.Reserves {
			return nil
		}
	case interface{ Algorithm() Algorithm }:
		if a := pointee(x.Algorithm()); a == nil || !a.model().Reserves {
			return nil
		}
	}
	r, _ := l.(reserver)
	return r
}

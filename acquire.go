// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Result is the outcome of [RateLimiter.Allow] or [RateLimiter.Peek], and of the calls of a limiter of package limit,
// where Rate, Time and ClockSkew are zero, and durations are whole microseconds, rounded up.
type Result struct {
	// Granted reports whether the permits were acquired.
	Granted bool
	// Wait is how long it takes until the same request could be granted, provided that nobody else acquires first. It is
	// 0 if Granted is true, except for a Reserve of package limit: until the permits may be used.
	Wait time.Duration
	// Available is the number of permits left, from 0 to Rate.Permits. One call reclaims a bounded number of expired
	// grants, so it may be less than AvailablePermits returns.
	Available int64
	// Rate is the limiter's rate.
	Rate Rate
	// Time is when the call was decided, by the clock of Redis, or of this process with [WithClientClock].
	Time time.Time
	// Reset is how long it takes until the limiter is as if it had never been used, if no call takes permits: of a
	// RateLimiter one interval while any permit is in use.
	Reset time.Duration
	// ClockSkew is how far the newest grant found lies ahead of Time, or 0 if permits were enough. More than a few
	// milliseconds mean that the clock of some client, such as Redisson's, is fast.
	ClockSkew time.Duration
	// Degraded reports that Redis was unavailable and the [OutagePolicy] decided: with the last rate that Redis
	// reported, or zero, what is left of the local quota, and the clock of this process.
	Degraded bool
}

// resetOf returns Result.Reset after a call that left so many permits of the rate.
func resetOf(r permit.Rate, available int64) time.Duration {
	if available < r.Permits {
		return r.Interval
	}
	return 0
}

// TryAcquire acquires permits, waiting for them until timeout is over, and reports whether it got them. If it did not,
// it has taken nothing.
//
// With timeout <= 0 TryAcquire asks once and never waits. Otherwise it joins the wait queue of this Client's callers
// for the same limiter. If the permits take longer than the time left, it sleeps for the time left and returns false,
// as Redisson does, unless a release or a new rate lets it succeed; see [WithEarlyRejection].
//
// When ctx is done, TryAcquire returns at once with ctx.Err(), together with ErrUnavailable and its cause during an
// outage, after a failed attempt, or if the call has had no reply for at least 10 ms.
//
// It returns ErrInvalidArgument if permits is not in 1..2^32-1, ErrPermitsExceedRate, ErrNotInitialized, ErrMalformed,
// ErrConflict, and the common errors. During an outage the [OutagePolicy] decides.
func (l *RateLimiter) TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	l = l.made()
	want := l.want
	want.Permits, want.Wait, want.Timeout = permits, timeout > 0, timeout
	r, err := l.acquire(ctx, want)
	return r.Granted, err
}

// Acquire is like [RateLimiter.TryAcquire] but waits as long as it takes. Three things end the wait without permits:
// ctx, the Close of the Client, and an outage that has lasted for as long as [WithOutageLimit] says, 30 seconds by
// default. Then Acquire returns ErrUnavailable; call it again to go on waiting.
func (l *RateLimiter) Acquire(ctx context.Context, permits int64) error {
	l = l.made()
	want := l.want
	want.Permits, want.Wait = permits, true
	_, err := l.acquire(ctx, want)
	return err
}

// Allow asks for permits once and never waits. A rejection is not an error and takes nothing. Allow returns the same
// errors as [RateLimiter.TryAcquire], such as ErrUnavailable.
//
// It takes permits that are free even if other callers wait for more than that. Once the first of them has been passed
// over for a whole interval, Allow rejects until that caller has been served.
func (l *RateLimiter) Allow(ctx context.Context, permits int64) (Result, error) {
	l = l.made()
	want := l.want
	want.Permits, want.TellWait = permits, true
	r, err := l.acquire(ctx, want)
	if err != nil || r.Reply == nil {
		return Result{}, err
	}
	return Result{Granted: r.Granted, Wait: r.Wait, Available: r.Available, Rate: rateOf(r.Reply.Rate), Time: r.Reply.Now,
		Reset: resetOf(r.Reply.Rate, r.Available), ClockSkew: r.Reply.Skew, Degraded: r.Degraded}, nil
}

// AllowAtMost acquires as many of the permits as there are now, and returns how many. Permits, which is at least 1, may
// be more than the rate. After 0, Result.Granted is false and Result.Wait is how long one permit takes.
//
// Like Allow, it acquires nothing while a caller that has been passed over for a whole interval waits. It may acquire
// less than there is, because one call reclaims a bounded number of expired grants; with [Rate].MinGap it acquires one
// permit at most. It returns the errors of [RateLimiter.TryAcquire], such as ErrUnavailable; ErrPermitsExceedRate only
// if the handle leaves the whole rate free.
func (l *RateLimiter) AllowAtMost(ctx context.Context, permits int64) (got int64, r Result, err error) {
	l = l.made()
	if l.hooked() {
		told := l.client.hooks.begin(ctx, OperationAllow, l.name, permits, false)
		defer func() {
			told.Degraded, told.Available, told.Rate, told.Replied = r.Degraded, r.Available, r.Rate, err == nil && !r.Degraded
			told.end(got > 0, 0, err)
		}()
	}
	if err = l.checkPermits(ctx, permits); err != nil {
		return 0, Result{}, err
	}
	h := l.handle.Lower(l.want.Floor)
	if s := h.State(); s.Kept && !h.Health().Down() {
		return 0, Result{Wait: max(time.Until(s.Grant), time.Millisecond), Rate: rateOf(s.Rate), Time: time.Now()}, nil
	}
	var a permit.Reply
	for sets := (carriedSets{}); ; {
		a, got, err = h.AskUpTo(ctx, permits)
		if err == nil || !sets.again(ctx, &err, Demand{Limiter: l}) {
			break
		}
	}
	if l.want.Policy != nil && errors.Is(err, ErrUnavailable) {
		if h.Health().Await(ctx.Done(), h.System.Closed); ctx.Err() == nil && h.Health().Down() {
			return l.takeLocally(ctx, permits)
		}
	}
	if err != nil {
		return 0, Result{}, err
	}
	r = Result{Granted: got > 0, Available: a.Available, Rate: rateOf(a.Rate), Time: a.Now, Reset: resetOf(a.Rate, a.Available), ClockSkew: a.Skew}
	if !r.Granted {
		r.Wait = max(a.Wait, time.Millisecond)
	}
	return got, r, nil
}

// takeLocally acquires as many of the permits as the outage policy of l grants now.
func (l *RateLimiter) takeLocally(ctx context.Context, permits int64) (got int64, r Result, err error) {
	now := time.Now()
	r = Result{Degraded: true, Time: now}
	for step := permits; step > 0 && got < permits; step = min(step, permits-got) {
		at, failed := l.handle.TakeLocally(l.want.Policy, step, now)
		if failed == nil && !at.After(now) {
			got += step
			continue
		}
		if step == 1 {
			r.Wait, err = max(at.Sub(now), time.Millisecond), failed
		}
		step /= 2
	}
	if r.Granted = got > 0; r.Granted {
		r.Wait, err = 0, nil
	}
	return got, r, err
}

// CachedRejections returns a handle of the same limiter with a bound of its own, at least 0; see
// [WithCachedRejections].
func (l *RateLimiter) CachedRejections(bound time.Duration) *RateLimiter {
	handle := *l.made()
	handle.want.CachedFor = bound
	if bound < 0 && handle.err == nil {
		handle.err = invalid("CachedRejections: %v is negative", bound)
	}
	return &handle
}

// Peek returns what [RateLimiter.Allow] would return now, without taking any permits: if Granted is true, Available
// still counts them. It ignores the callers that wait in this process, and does not renew Rate.KeepAlive. During an
// outage it returns ErrUnavailable whatever the [OutagePolicy] is. The other errors are those of
// [RateLimiter.TryAcquire].
func (l *RateLimiter) Peek(ctx context.Context, permits int64) (Result, error) {
	a, err := l.made().peek(ctx, permits)
	if err != nil {
		return Result{}, err
	}
	r := Result{Granted: a.Granted[0] > 0, Available: a.Available, Rate: rateOf(a.Rate), Time: a.Now, Reset: resetOf(a.Rate, a.Available), ClockSkew: a.Skew}
	if !r.Granted {
		r.Wait = max(a.Wait, time.Millisecond)
	}
	return r, nil
}

// acquire passes a request on, if it is valid, and tells the hooks.
func (l *RateLimiter) acquire(ctx context.Context, want engine.Request) (got engine.Outcome, err error) {
	err = l.checkPermits(ctx, want.Permits)
	if l.hooked() {
		op := OperationAllow
		if want.Wait {
			op = OperationAcquire
		}
		r := l.client.hooks.begin(ctx, op, l.name, want.Permits, want.Wait && err == nil)
		defer func() {
			if r.Degraded = got.Degraded; err == nil && got.Reply != nil {
				r.learn(got.Reply)
				r.Available = got.Available
			}
			r.end(err == nil && got.Granted, want.Timeout, err)
		}()
	}
	if err != nil {
		return got, err
	}
	deadline, byContext := engine.Deadline(want.Timeout), false
	if want.Wait && l.client.cfg.rejectEarly {
		if deadline, byContext = boundByContext(ctx, deadline); byContext {
			want.Timeout = engine.Timeout(deadline)
		}
	}
	ask := want
	for sets := (carriedSets{}); ; ask.Timeout = engine.Timeout(deadline) {
		got, err = l.handle.Acquire(ctx, ask)
		if err == nil || l.rate == nil || !sets.again(ctx, &err, Demand{Limiter: l}) {
			break
		}
	}
	if byContext && err == nil && !got.Granted {
		err = permit.TooLate(l.name, got.Wait)
	}
	return got, err
}

// boundByContext returns the earlier of a deadline, zero for none, and that of ctx, and reports whether it is the latter.
func boundByContext(ctx context.Context, deadline time.Time) (earlier time.Time, byContext bool) {
	d, ok := ctx.Deadline()
	if !ok || !deadline.IsZero() && !d.Before(deadline) {
		return deadline, false
	}
	return d, true
}

// peek asks without taking permits, if the request is valid, and tells the hooks.
func (l *RateLimiter) peek(ctx context.Context, permits int64) (a permit.Reply, err error) {
	if l.hooked() {
		r := l.client.hooks.begin(ctx, OperationPeek, l.name, permits, false)
		defer func() {
			if err == nil {
				r.learn(&a)
			}
			r.end(err == nil && a.Granted[0] > 0, 0, err)
		}()
	}
	if err = l.checkPermits(ctx, permits); err != nil {
		return a, err
	}
	class := l.handle.Lower(l.want.Floor)
	return class.Peek(ctx, permits)
}

func (l *RateLimiter) hooked() bool { return l.client != nil && l.client.hooked }

// made returns l, or a RateLimiter whose calls return an error if l is nil.
func (l *RateLimiter) made() *RateLimiter {
	if l == nil {
		return &RateLimiter{}
	}
	return l
}

// ready returns the reason why a call cannot be made, if any. An error of the context comes first.
func (l *RateLimiter) ready(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalid("the context is nil")
	case l == nil || l.client == nil && l.err == nil:
		return invalid("the RateLimiter is not one that Client.RateLimiter returned")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.err != nil {
		return l.err
	}
	if l.handle.System.IsClosed() {
		return ErrClosed
	}
	return nil
}

func (l *RateLimiter) checkPermits(ctx context.Context, permits int64) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	if permits < 1 || permits > permit.Max {
		return invalid("asked for %d permits of %q, which is not in 1..%d", permits, l.name, int64(permit.Max))
	}
	return nil
}

package ratelimiter

import (
	"context"
	"errors"
	"math"
	"time"
)

// A Result is the whole answer to one try.
type Result struct {
	// Granted says whether the permits were acquired.
	Granted bool
	// Wait is how long until the same request could be granted, if nobody else acquires first. It is
	// 0 when Granted.
	Wait time.Duration
	// Available is how many permits are left after the call, 0 to Rate.Permits. Where more grants
	// have expired than one call reclaims, it may be less than AvailablePermits would say.
	Available int64
	// Rate is the limiter's rate at the time of the call.
	Rate Rate
	// Time is the instant at which the call was decided, by the limiter's clock: that of Redis unless
	// WithClientClock.
	Time time.Time
	// ClockSkew is how far the newest grant found lies ahead of Time; 0 when none does. It is looked
	// for only when there are too few permits. More than a few ms means that a client which uses its
	// own clock, as Redisson does, is fast.
	ClockSkew time.Duration
}

// TryAcquire acquires permits, waiting for them at most timeout. It answers whether it got them; when
// it did not, the limiter is as if it had not been asked.
//
// With timeout <= 0 it asks once and never waits. Otherwise it sleeps as long as Redis says that the
// permits take, and asks again; when they take longer than the time left it sleeps the time left and
// answers false, as Redisson does, unless a change meanwhile (a release, a new rate) serves it.
//
// Errors: ctx.Err() unchanged when ctx is done (a permit acquired by a call in flight at that moment
// stays spent), ErrInvalidArgument for permits outside 1..2^32-1, ErrPermitsExceedRate,
// ErrNotInitialized, ErrMalformed, ErrClosed, and those of Redis.
func (l *RateLimiter) TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	if timeout <= 0 {
		r, err := l.Try(ctx, permits)
		return r.Granted, err
	}
	return l.wait(ctx, permits, timeout)
}

// Acquire acquires permits, waiting as long as it takes. It answers nil when it has them. Errors are
// those of TryAcquire.
func (l *RateLimiter) Acquire(ctx context.Context, permits int64) error {
	granted, err := l.wait(ctx, permits, math.MaxInt64)
	if err == nil && !granted {
		return errors.New("ratelimiter: gave up after 292 years")
	}
	return err
}

// Try asks for permits once and never waits. Its answer holds what an HTTP middleware or a dashboard
// needs: whether they were granted, how long it would take, what is left. A refusal is no error and
// spends nothing. Errors are those of TryAcquire.
func (l *RateLimiter) Try(ctx context.Context, permits int64) (Result, error) {
	a, err := l.try(ctx, permits, 1)
	if err != nil {
		return Result{}, err
	}
	r := Result{Granted: a.granted == 1, Available: a.available, Rate: a.rate, Time: a.now, ClockSkew: a.skew}
	if !r.Granted {
		r.Wait = a.wait
	}
	return r, nil
}

// wait is TryAcquire with a timeout above 0. Each caller asks for itself.
func (l *RateLimiter) wait(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	if err := l.checkPermits(ctx, permits); err != nil {
		return false, err
	}
	c := l.client
	start := time.Now()
	room := c.enter(l.keys.hash)
	defer c.leave(l.keys.hash, room)
	for {
		change := c.nextChange(room)
		a, err := l.try(ctx, permits, 1)
		if err != nil {
			return false, err
		}
		if a.granted == 1 {
			return true, nil
		}
		left := timeout - time.Since(start)
		if left <= 0 {
			return false, nil
		}
		last := a.wait > left && left <= c.cfg.recheck
		timer := time.NewTimer(min(a.wait, left, c.cfg.recheck))
		select {
		case <-timer.C:
			if last {
				return false, nil
			}
		case <-change:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		case <-c.closed:
			timer.Stop()
			return false, ErrClosed
		}
	}
}

// try runs acquire calls until the answer for count requests of permits each is complete: it sends
// the right keys, the rest of what one call does not do, and the search for lost permits. It never
// waits for permits.
func (l *RateLimiter) try(ctx context.Context, permits, count int64) (answer, error) {
	if err := l.checkPermits(ctx, permits); err != nil {
		return answer{}, err
	}
	c := l.client
	a := ask{permits: permits, count: count}
	granted, audited := int64(0), false
	for {
		begin := time.Now()
		var r answer
		err := l.withType("acquire", func(typ RateType) (err error) {
			a.typ = typ
			r, err = l.runAcquire(ctx, a)
			return err
		})
		if err != nil {
			return answer{}, err
		}
		granted += r.granted
		a.count -= r.granted
		a.walked, a.walkedPermits = 0, 0
		r.granted = granted
		if a.count == 0 && r.again != againAudit {
			return r, nil
		}

		switch r.again {
		case againWalk:
			a.walked, a.walkedPermits = r.walked, r.walkedPermits
		case againAudit:
			if audited {
				// Lost again meanwhile. No wait is known; an instant keeps the caller from spinning.
				r.wait = max(r.wait, time.Millisecond)
				return r, nil
			}
			if _, err := l.audit(ctx, a.typ); err != nil {
				return answer{}, err
			}
			audited, a.check = true, false
			c.learn(hint{l.keys.hash, a.typ, begin.Add(max(auditEvery(r.rate.Interval), 100*time.Since(begin)))})
			if a.count == 0 {
				return r, nil
			}
		case againNot:
			// Refused. Lost permits are looked for now and then: at most once an interval, and in large
			// sets no more than 1 % of the time.
			if a.check || audited || !c.claimAudit(l.keys.hash) {
				return r, nil
			}
			a.check = true
			c.learn(hint{l.keys.hash, a.typ, begin.Add(auditEvery(r.rate.Interval))})
		}
	}
}

// audit looks for permits that are neither left nor in use and gives them back, in calls of bounded
// work, and answers value + used − rate as it was. A set that turns over faster than it can be read
// is left for another time.
func (l *RateLimiter) audit(ctx context.Context, typ RateType) (balance int64, err error) {
	for range 3 {
		var t tally
		for {
			next, done, balance, err := l.runAudit(ctx, typ, t)
			var other *otherTypeError
			if errors.As(err, &other) || errors.Is(err, ErrNotInitialized) {
				return 0, nil // changed meanwhile; the next call will be told
			}
			if err != nil || done {
				return balance, err
			}
			if next.members == 0 {
				break
			}
			t = next
		}
	}
	return 0, nil
}

// ready answers why a call must not be made: context first.
func (l *RateLimiter) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.err != nil {
		return l.err
	}
	if l.client.isClosed() {
		return ErrClosed
	}
	return nil
}

func (l *RateLimiter) checkPermits(ctx context.Context, permits int64) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	if permits < 1 || permits > maxPermits {
		return invalid("%d permits asked of %q are not in 1..%d", permits, l.name, int64(maxPermits))
	}
	return nil
}

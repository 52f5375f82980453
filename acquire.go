package ratelimiter

import (
	"context"
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
	// Degraded says that Redis was away and the outage policy decided: then Rate is the last that Redis
	// told, or zero, Available what is left of the local share, and Time by this process' clock.
	Degraded bool
}

// TryAcquire acquires permits, waiting for them at most timeout. It answers whether it got them; when
// it did not, the limiter is as if it had not been asked.
//
// With timeout <= 0 it asks once and never waits. Otherwise it stands in line behind the callers of
// this Client that wait for the same limiter, until Redis has said that the permits are there. When
// they take longer than the time left it sleeps the time left and answers false, as Redisson does,
// unless a change meanwhile (a release, a new rate) serves it; see [WithEarlyRefusal].
//
// When ctx is done it returns at once with ctx.Err() unchanged; permits that were granted to it at
// that moment go to the next caller that waits or back to Redis. Further errors: ErrInvalidArgument
// for permits outside 1..2^32-1, ErrPermitsExceedRate, ErrNotInitialized, ErrMalformed, ErrClosed,
// ErrUnavailable, and those of Redis. While Redis is away the [OutagePolicy] decides.
func (l *RateLimiter) TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	r, err := l.ask(ctx, wish{permits: permits, blocking: timeout > 0}, timeout)
	return r.granted, err
}

// Acquire acquires permits, waiting as long as it takes. It answers nil when it has them. Errors are
// those of TryAcquire.
func (l *RateLimiter) Acquire(ctx context.Context, permits int64) error {
	_, err := l.ask(ctx, wish{permits: permits, blocking: true}, 0)
	return err
}

// Try asks for permits once and never waits. Its answer holds what an HTTP middleware or a dashboard
// needs: whether they were granted, how long it would take, what is left. A refusal is no error and
// spends nothing. Errors are those of TryAcquire.
//
// It does not stand in line: it takes what is free, also before callers that wait for more than that.
// Only where one of these has been passed over for a whole interval, it is refused until that one is
// served.
func (l *RateLimiter) Try(ctx context.Context, permits int64) (Result, error) {
	r, err := l.ask(ctx, wish{permits: permits, wantsWait: true}, 0)
	if err != nil || r.answer == nil {
		return Result{}, err
	}
	a := r.answer
	return Result{Granted: r.granted, Wait: r.wait, Available: r.available, Rate: a.rate, Time: a.now,
		ClockSkew: a.skew, Degraded: r.degraded}, nil
}

// A wish is what a caller asks for.
type wish struct {
	permits   int64
	blocking  bool
	wantsWait bool // when it is refused
}

// ask takes a wish through the limiter's engine, and answers how it ended. Each copy of a request is felt
// where hundreds ask at once: there is none.
func (l *RateLimiter) ask(ctx context.Context, want wish, timeout time.Duration) (outcome, error) {
	if err := l.checkPermits(ctx, want.permits); err != nil {
		return outcome{}, err
	}
	r := l.client.newRequest()
	r.ctx, r.permits, r.blocking, r.wantsWait, r.policy = ctx, want.permits, want.blocking, want.wantsWait, l.policy
	if want.blocking {
		r.seq = l.client.seq.Add(1)
		if timeout > 0 {
			r.deadline = time.Now().Add(timeout)
		}
	}
	endless := ctx.Done() == nil && r.deadline.IsZero() // nothing ends the call before Redis does

	b := l.bucket
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return outcome{}, ErrClosed
	}
	e := b.engine(l)
	if r.policy != nil && e.withoutRedis(r) {
		b.mu.Unlock()
		got := r.outcome
		l.client.recycle(r)
		return got, got.err
	}
	var alone *call
	refused := e.add(r)
	if endless && !r.degraded {
		alone = e.alone(r)
	} else {
		e.kick()
	}
	b.mu.Unlock()
	if refused {
		return outcome{}, nil
	}
	if alone != nil {
		alone.runAlone()
	}
	ended, err := e.await(ctx, r, timeout)
	if ended == nil {
		return outcome{}, err
	}
	got := ended.outcome
	l.client.recycle(ended)
	return got, got.err
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

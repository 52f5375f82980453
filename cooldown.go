package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A CoolDownOption changes how a cool-down ends.
type CoolDownOption func(*coolDown)

type coolDown struct{ reopen time.Duration }

// Reopen gives the permits back one after another over d, in up to 64 steps, instead of all at once when
// the cool-down ends: a platform that has just lifted a ban meets no burst. It is a whole number of
// milliseconds. The default is all at once.
func Reopen(d time.Duration) CoolDownOption { return func(c *coolDown) { c.reopen = d } }

// maxCoolDown bounds a cool-down: one that is longer is an instant in the wrong unit.
const maxCoolDown = 366 * 24 * time.Hour

// CoolDown lets nobody have a permit before until: no process that uses this package, and no Redisson
// from 3.15.5 on, whose callers find all permits in use. It is for an API that has answered with a
// penalty. The outage policies of this process obey it too, also where Redis could not be told. The
// longest wins: while one lasts that ends later, it changes nothing. It ends by itself.
//
// until is by this process' clock and rounded up to a millisecond; what counts is how far away it is,
// so that clocks need not agree. At its end all permits are free but those whose grants fall due later.
// While it lasts a release has no effect, and SetRate keeps it; LiftCoolDown ends it, and so do Delete and
// a peer that deletes the limiter, for the callers of all processes. What a Java peer frees by its own setRate or release is blocked
// again by the next call of this package, whoever makes it. A limiter with a KeepAlive shorter than the
// cool-down is kept for its length by every call of this package; callers of Redisson alone shorten it
// again, so that a limiter which nobody but they use can expire, cool-down and all. Of a [PerClient] limiter callers of this
// package obey it in all processes, Redisson only where it shares this client's id, which it cannot.
//
// Errors: ErrInvalidArgument for an until more than a year away and for a Reopen that is negative, longer
// than a year or finer than a millisecond; ErrNotInitialized, ErrMalformed, ctx.Err(), ErrClosed,
// ErrUnavailable, and those of Redis, after which it may or may not have begun. An until in the past
// is no error and changes nothing.
func (l *RateLimiter) CoolDown(ctx context.Context, until time.Time, opts ...CoolDownOption) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	var c coolDown
	for _, o := range opts {
		o(&c)
	}
	if _, err := millis("re-opening", c.reopen); err != nil {
		return err
	}
	if c.reopen < 0 || c.reopen > maxCoolDown {
		return invalid("re-opening over %v is not in 0..%v", c.reopen, maxCoolDown)
	}
	left := time.Until(until)
	if left > maxCoolDown {
		return invalid("a cool-down until %v, longer than %v", until, maxCoolDown)
	}
	if left <= 0 {
		return nil
	}
	l.handle.NoteCoolDown(until) // which holds also where Redis is away and cannot be told
	err := l.withType("cool_down", func(typ permit.Type) error {
		return l.redis.CoolDown(ctx, typ, left, c.reopen)
	})
	if err == nil {
		l.handle.ToldCoolDown(until)
		l.handle.Changed() // those who wait learn the new wait
	}
	return err
}

// CoolDownUntil is when the cool-down of the limiter ends, by this process' clock, to the millisecond
// and later by as long as the call took; the zero time when there is none. Errors: ErrNotInitialized, ctx.Err(), ErrClosed,
// ErrUnavailable, and those of Redis.
func (l *RateLimiter) CoolDownUntil(ctx context.Context) (time.Time, error) {
	if err := l.ready(ctx); err != nil {
		return time.Time{}, err
	}
	left, err := l.redis.CoolDownLeft(ctx)
	if err != nil || left == 0 {
		return time.Time{}, err
	}
	return time.Now().Add(left), nil
}

// LiftCoolDown ends the cool-down of the limiter, and its re-opening, before the time, and reports
// whether there was one. It ends at once and for all, whoever set it: permits that were free when it was set are free
// again, and those of grants come back one interval after they were granted, as if there had been no cool-down. Of more
// than 512 grants that would have come back before its end, each may come back a 128th of an interval later,
// and those that were of several permits up to an interval after the newest.
//
// Callers of this Client that wait ask again at once, those of other processes within their [WithRecheck]; an
// outage policy elsewhere learns of it with the next answer of Redis. A caller of Redisson's that has been told to
// sleep until the end sleeps until then.
//
// Errors: ErrNotInitialized, ErrMalformed, ctx.Err(), ErrClosed, ErrUnavailable, and those of Redis.
func (l *RateLimiter) LiftCoolDown(ctx context.Context) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	lifted := false
	l.handle.NoteCoolDown(time.Time{})
	err := l.withType("lift_cool_down", func(typ permit.Type) (err error) {
		lifted, err = l.redis.LiftCoolDown(ctx, typ)
		return err
	})
	if err == nil {
		l.handle.Changed()
	}
	return lifted, err
}

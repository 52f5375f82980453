// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"time"
)

// A CoolDownOption configures [RateLimiter.CoolDown].
type CoolDownOption func(*coolDown)

type coolDown struct{ reopen time.Duration }

// Reopen gives the permits back one after another over d, in up to 64 steps, when the cool-down ends. It spares
// a platform that has just lifted a ban a burst of requests. The duration d must be a whole number of
// milliseconds. The default is to give all permits back at once.
func Reopen(d time.Duration) CoolDownOption { return func(c *coolDown) { c.reopen = d } }

// maxCoolDown is the longest cool-down that is accepted. A longer one is most likely an instant in the wrong
// unit.
const maxCoolDown = 366 * 24 * time.Hour

// CoolDown keeps everybody from getting a permit before until: all processes that use this package, and
// Redisson from 3.15.5 on, whose callers find all permits in use. It is meant for an API that has responded
// with a penalty. The outage policies of this process obey a cool-down, too, even if Redis could not be told of
// it. The longest cool-down wins: CoolDown changes nothing while another one lasts that ends later. A cool-down
// ends by itself.
//
// The instant until is by the clock of this process and is rounded up to a millisecond. What counts is how far
// away it is, so the clocks of the processes need not agree. At the end all permits are free except those of
// grants whose interval is not over. During a cool-down Release has no effect and SetRate keeps it.
// [RateLimiter.LiftCoolDown] and [RateLimiter.Delete] end it for the callers of all processes, as does a peer
// that deletes the limiter. Permits that a Java peer frees with its own setRate or release are blocked again by
// the next call of this package, whoever makes it.
//
// If the limiter has a KeepAlive shorter than the cool-down, every call of this package keeps it alive for the
// length of the cool-down. Calls of Redisson shorten its TTL again, so a limiter that only they use can expire
// together with the cool-down. In a [PerClient] limiter all processes that use this package obey the cool-down;
// Redisson would obey it only with the same client id, which cannot be set there.
//
// CoolDown returns ErrInvalidArgument if until is more than a year away, or if the duration of Reopen is
// negative, longer than a year, or not a whole number of milliseconds. Other errors are ErrNotInitialized,
// ErrMalformed, ErrConflict, ctx.Err(), ErrClosed, ErrUnavailable, and those from Redis, after which the cool-down
// may or may not have begun. If until is in the past, CoolDown does nothing and returns nil.
func (l *RateLimiter) CoolDown(ctx context.Context, until time.Time, opts ...CoolDownOption) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	var c coolDown
	for _, o := range opts {
		o(&c)
	}
	if _, err := millis("Reopen:", c.reopen); err != nil {
		return err
	}
	if c.reopen < 0 || c.reopen > maxCoolDown {
		return invalid("Reopen: %v is not in 0..%v (cool-down of %q)", c.reopen, maxCoolDown, l.name)
	}
	left := time.Until(until)
	// By seconds, too: an absurd instant is in the past by its comparisons with others, which overflow.
	if left > maxCoolDown || until.Unix() > time.Now().Add(maxCoolDown).Unix() {
		return invalid("cool-down of %q until %v is longer than %v", l.name, until, maxCoolDown)
	}
	if left <= 0 {
		return nil
	}
	l.handle.NoteCoolDown(until) // it holds even if Redis is down and cannot be told
	err := l.redis.CoolDown(ctx, left, c.reopen)
	if err == nil {
		l.handle.ToldCoolDown(until)
		l.handle.Changed() // callers that wait learn the new wait
	}
	return err
}

// CoolDownUntil returns the instant at which the limiter's cool-down ends, or the zero time if there is none.
// The instant is by the clock of this process, to the millisecond, and late by as long as the call took.
//
// CoolDownUntil returns ErrNotInitialized, ctx.Err(), ErrClosed, ErrUnavailable, or an error from Redis.
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

// LiftCoolDown ends the limiter's cool-down, and its re-opening, ahead of time and reports whether there was
// one. It ends at once and for everybody, whoever began it: permits that were free when it began are free
// again, and those of grants come back one interval after they were granted, as if there had been no cool-down.
// Of more than 512 grants that would have come back before its end, each may come back up to a 128th of an
// interval later, and those of several permits up to one interval after the newest of them.
//
// Callers of this Client that wait ask again at once; those of other processes do so within their
// [WithRecheck]. The outage policies of other processes learn of the end with the next reply from Redis. A
// caller of Redisson that was told to sleep until the end of the cool-down sleeps until then.
//
// LiftCoolDown returns ErrNotInitialized, ErrMalformed, ErrConflict, ctx.Err(), ErrClosed, ErrUnavailable, or an
// error from Redis.
func (l *RateLimiter) LiftCoolDown(ctx context.Context) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	l.handle.NoteCoolDown(time.Time{})
	lifted, err := l.redis.LiftCoolDown(ctx)
	if err == nil {
		l.handle.Changed()
	}
	return lifted, err
}

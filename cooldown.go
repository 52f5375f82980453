// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A CoolDownOption configures [RateLimiter.CoolDown].
type CoolDownOption func(*coolDown)

type coolDown struct{ reopen time.Duration }

// Reopen gives the permits back one after another over d, in up to 64 steps, when the cool-down ends, so that a
// platform that has lifted a ban meets no burst. The default is 0: all at once. The duration d must be a whole number
// of milliseconds up to 366 days.
func Reopen(d time.Duration) CoolDownOption { return func(c *coolDown) { c.reopen = d } }

// maxCoolDown is the longest cool-down that is accepted. A longer one is most likely an instant in the wrong
// unit.
const maxCoolDown = 366 * 24 * time.Hour

// CoolDown blocks the limiter for everybody until the given instant, for an API that has responded with a penalty. All
// processes that use this package obey it, their outage policies too, as far as they know of it. So does Redisson from
// 3.15.5 on, whose callers find all permits in use, but not in a [PerClient] limiter.
//
// The longest cool-down wins. It ends by itself, or for all processes by [Admin.LiftCoolDown] or [Admin.Delete]. Then
// all permits are free except those of grants whose interval is not over. Meanwhile Release has no effect, SetRate
// keeps the cool-down, and what a Java peer frees the next call of this package blocks again.
//
// The instant is by the clock of this process, rounded up to a millisecond; Redis is sent the time that is left, so
// clocks need not agree. If it is in the past, CoolDown does nothing and returns nil. If the clock of Redis is put back
// then, the cool-down lasts longer by as much.
//
// CoolDown returns ErrInvalidArgument if until is more than 366 days away, ErrNotInitialized, ErrMalformed,
// ErrConflict, and the common errors. After one from Redis, or ErrUnavailable, the cool-down may or may not have begun.
func (l *RateLimiter) CoolDown(ctx context.Context, until time.Time, opts ...CoolDownOption) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	var c coolDown
	for _, o := range opts {
		if o == nil {
			return invalid("the cool-down of %q has a CoolDownOption that is nil", l.name)
		}
		o(&c)
	}
	if _, err := millis("Reopen:", c.reopen); err != nil {
		return err
	}
	if c.reopen < 0 || c.reopen > maxCoolDown {
		return invalid("Reopen: %v is not in 0..%v (cool-down of %q)", c.reopen, maxCoolDown, l.name)
	}
	left := time.Until(until)
	// Compared in seconds as well, because time.Until overflows for an absurd instant, which then seems to be in the
	// past.
	if left > maxCoolDown || until.Unix() > time.Now().Add(maxCoolDown).Unix() {
		return invalid("cool-down of %q until %s is longer than %v", l.name, until.Format(time.RFC3339), maxCoolDown)
	}
	if left <= 0 {
		return nil
	}
	l.handle.NoteCoolDown(until) // it holds even if Redis is down and cannot be told
	_, err := link.Do(ctx, &l.handle.Link, l.redis.CoolDown(left, c.reopen))
	if err == nil {
		l.handle.ToldCoolDown(until)
		l.handle.Changed() // callers that wait learn the new wait
	}
	return err
}

// CoolDownUntil returns when the limiter's cool-down ends, by the clock of this process, to the millisecond, and late
// by at most the duration of the call, or the zero time if there is none. It returns ErrNotInitialized if the limiter
// has no rate.
func (a Admin) CoolDownUntil(ctx context.Context) (time.Time, error) {
	l := a.limiter
	left, err := do(ctx, l, (*redisson.Limiter).CoolDownLeft)
	if err != nil || left == 0 {
		return time.Time{}, err
	}
	return time.Now().Add(left), nil
}

// LiftCoolDown ends the limiter's cool-down and its re-opening, for everybody, and reports whether there was one.
// Permits are in use until one interval after they were granted, as if there had been no cool-down; of more than 512
// some may be in use for up to two. Callers of other processes notice within their [WithRecheck], and a sleeping caller
// of Redisson when the cool-down would have ended. It returns ErrNotInitialized, ErrMalformed, ErrConflict, or a common
// error.
func (a Admin) LiftCoolDown(ctx context.Context) (bool, error) {
	l := a.limiter
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	l.handle.NoteCoolDown(time.Time{})
	lifted, err := do(ctx, l, (*redisson.Limiter).LiftCoolDown)
	if err == nil {
		l.handle.Changed()
	}
	return lifted, err
}

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

// Reopen gives the permits back one after another over d, in up to 64 steps, when the cool-down ends. It protects a
// platform that has just lifted a ban from a burst of requests. The duration d must be a whole number of milliseconds
// and at most 366 days. The default is to give all permits back at once.
func Reopen(d time.Duration) CoolDownOption { return func(c *coolDown) { c.reopen = d } }

// maxCoolDown is the longest cool-down that is accepted. A longer one is most likely an instant in the wrong
// unit.
const maxCoolDown = 366 * 24 * time.Hour

// CoolDown blocks the limiter for everybody until the given instant. It is meant for an API that has responded with a
// penalty. All processes that use this package obey it, and so does Redisson from 3.15.5 on, whose callers find all
// permits in use. The outage policies of this process obey it even if Redis could not be told.
//
// The longest cool-down wins: CoolDown changes nothing while another one lasts that ends later. A cool-down ends by
// itself. Then all permits are free except those of grants whose interval is not over. [Admin.LiftCoolDown] and
// [Admin.Delete] end it earlier for the callers of all processes, as does a peer that deletes the limiter.
// During a cool-down Release has no effect, and SetRate keeps the cool-down. If a Java peer frees permits with its
// setRate or release, the next call of this package, in any process, blocks them again.
//
// The instant until is by the clock of this process and is rounded up to a millisecond. Redis is sent the time that
// is left until then, so the clocks of the processes need not agree.
//
// If the limiter has a KeepAlive shorter than the cool-down, every call of this package keeps it alive for the length
// of the cool-down. Calls of Redisson shorten its TTL again, so a limiter that only they use can expire together with
// its cool-down. In a [PerClient] limiter all processes that use this package obey the cool-down; Redisson would obey
// it only with the same client id, which Redisson does not let you set.
//
// CoolDown returns ErrInvalidArgument if until is more than 366 days away, or if the duration of Reopen is negative,
// longer than 366 days, or not a whole number of milliseconds. Other errors are ErrNotInitialized, ErrMalformed,
// ErrConflict, ctx.Err(), ErrClosed, ErrUnavailable, ErrOverloaded, and those from Redis. After an error from Redis,
// or ErrUnavailable, the cool-down may or may not have begun. If until is in the past, CoolDown does nothing and
// returns nil.
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

// CoolDownUntil returns the instant at which the limiter's cool-down ends, or the zero time if there is none. The
// instant is by the clock of this process, to the millisecond, and is late by at most the duration of the call.
//
// CoolDownUntil returns ErrNotInitialized, ctx.Err(), ErrClosed, ErrUnavailable, ErrOverloaded, or an error from
// Redis.
func (a Admin) CoolDownUntil(ctx context.Context) (time.Time, error) {
	l := a.limiter
	left, err := do(ctx, l, (*redisson.Limiter).CoolDownLeft)
	if err != nil || left == 0 {
		return time.Time{}, err
	}
	return time.Now().Add(left), nil
}

// LiftCoolDown ends the limiter's cool-down and its re-opening early, and reports whether there was one. It ends them
// at once and for everybody, whichever process began them. Permits that were free when the cool-down began are free
// again, and permits in use expire one interval after they were granted, as if there had been no cool-down. If more
// than 512 grants would have expired during the cool-down, they are dated in steps. Then each may expire up to a
// 128th of an interval late, and one of several permits up to one interval after the newest grant.
//
// Callers of this Client that wait ask again at once; those of other processes do so within their [WithRecheck]. The
// outage policies of other processes learn of the end with the next reply from Redis. A caller of Redisson that is
// already sleeping until the end of the cool-down sleeps until then.
//
// LiftCoolDown returns ErrNotInitialized, ErrMalformed, ErrConflict, ctx.Err(), ErrClosed, ErrUnavailable,
// ErrOverloaded, or an error from Redis.
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

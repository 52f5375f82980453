// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// An Admin has the methods of a limiter that its operator uses. Each may return the common errors; see
// [ErrUnavailable]. The zero value is not usable; use [RateLimiter.Admin] to make one. Methods are safe for concurrent
// use.
type Admin struct{ limiter *RateLimiter }

// Admin returns the methods of the limiter that its operator uses.
func (l *RateLimiter) Admin() Admin { return Admin{l} }

// Exists reports whether the limiter exists in Redis, as it does once it has a rate; it does not check the rate.
func (a Admin) Exists(ctx context.Context) (bool, error) {
	return do(ctx, a.limiter, (*redisson.Limiter).Exists)
}

// Delete removes the limiter with its cool-down and its permits in use, in a [PerClient] limiter those of this client,
// and reports whether there was anything. If the limiter is set again, its other clients find their permits as
// [Admin.LiftCoolDown] leaves them. Callers of this Client that wait get ErrNotInitialized at once.
func (a Admin) Delete(ctx context.Context) (bool, error) {
	l := a.limiter
	deleted, err := do(ctx, l, (*redisson.Limiter).Delete)
	if err == nil {
		l.wasReset()
	}
	return deleted, err
}

// Heal makes the permits that are left and the permits in use add up to the rate: lost permits are free again, and
// surplus ones are taken from those that are left, whose number may be negative then. Grants that have expired go, so
// that a Redisson that cannot read them goes on. In a [PerClient] limiter it heals the permits of this client.
//
// It is for limiters that only Java uses, or nobody at the moment; the acquires of this package heal by themselves. It
// also takes back what a release by Redisson up to 4.7.0 has freed and nobody has acquired yet, because that looks the
// same. A set of grants that changes faster than it can be read stays as it is.
//
// Heal returns ErrNotInitialized, ErrMalformed, and the common errors. After one from Redis the limiter may be healed,
// or hold fewer permits than before until it is.
func (a Admin) Heal(ctx context.Context) error {
	l := a.limiter
	r, err := l.Rate(ctx)
	if err != nil {
		return err
	}
	if _, err := link.Do(ctx, &l.handle.Link, l.redis.Heal(permit.Type(r.Type), permit.Ordered)); err != nil {
		return err
	}
	l.handle.Changed()
	return nil
}

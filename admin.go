// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// An Admin has the methods of a limiter that its operator uses: they look at what Redis holds, repair it, let it
// expire, and delete it. None of them is needed to acquire permits. The zero value is not usable; use
// [RateLimiter.Admin] to make one. Methods are safe for concurrent use.
type Admin struct{ limiter *RateLimiter }

// Admin returns the methods of the limiter that its operator uses.
func (l *RateLimiter) Admin() Admin { return Admin{l} }

// Exists reports whether the limiter exists in Redis, as it does once it has a rate; it does not check the rate. It
// returns ctx.Err(), ErrClosed, ErrUnavailable, ErrOverloaded, or an error from Redis.
func (a Admin) Exists(ctx context.Context) (bool, error) {
	return do(ctx, a.limiter, (*redisson.Limiter).Exists)
}

// Delete removes the limiter and its permits in use, in a [PerClient] limiter those of this client. It reports
// whether there was anything to remove. A cool-down ends with it for the callers of all processes. If the limiter is
// set again, the other clients of a PerClient limiter find their permits as [Admin.LiftCoolDown] leaves them.
// Callers of this Client that wait for the limiter ask again at once and get ErrNotInitialized.
//
// Delete returns ctx.Err(), ErrClosed, ErrUnavailable, ErrOverloaded, or an error from Redis.
func (a Admin) Delete(ctx context.Context) (bool, error) {
	l := a.limiter
	deleted, err := do(ctx, l, (*redisson.Limiter).Delete)
	if err == nil {
		l.handle.Changed()
	}
	return deleted, err
}

// Heal makes the permits that are left and the permits in use add up to the rate. If permits were lost, they are free
// again. If there are too many, Heal first takes those that are left, and then those of the oldest grants, so that no
// window holds more than the rate because of Heal. It rebuilds a value that is missing or no number from the grants.
// In a [PerClient] limiter it heals the permits of this client; see [WithClientID].
//
// Heal also takes back what a release by Redisson has freed and nobody has acquired yet. Redisson up to 4.7.0 keeps
// the grants that it releases, so the state looks the same as with a wrong number of permits left.
//
// The acquires of this package heal as far as they need to, but let a release by Redisson have its effect. Heal is
// for limiters that only Java uses, or that nobody uses at the moment.
//
// The number of calls grows with the set of grants; the work of each call is bounded. Heal leaves a set as it is if
// the set changes faster than it can be read. Callers of this Client that wait for the limiter ask again at once.
//
// Heal returns ErrNotInitialized, ErrMalformed, ctx.Err(), ErrClosed, ErrUnavailable, ErrOverloaded, or an error from
// Redis. After an error from Redis the limiter may be healed, or may hold fewer permits than before until it is.
func (a Admin) Heal(ctx context.Context) error {
	l := a.limiter
	r, err := l.Rate(ctx)
	if err != nil {
		return err
	}
	if _, err := link.Do(ctx, &l.handle.Link, l.redis.Heal(permit.Type(r.Type), permit.Lowered)); err != nil {
		return err
	}
	l.handle.Changed()
	return nil
}

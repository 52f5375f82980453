// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Heal makes the permits that are left and those in use add up to the rate. Permits that were lost come back. If there
// are too many, those that are left go first, and then those of the oldest grants, so that no window holds more than
// the rate because of Heal. That takes back what a release by Redisson has freed and nobody has acquired yet: Redisson
// up to 4.7.0 keeps the grants that it releases, so the state is the same as with a number of permits left that is
// wrong. A value that is missing or no number is rebuilt from the grants. The acquires of this package do the same as
// far as they need to, but let a release by Redisson have its effect; Heal is for limiters that only Java uses, or that
// nobody uses at the moment. In a [PerClient] limiter it heals the permits of this client; see [WithClientID].
//
// It takes as many calls as the set is large, each of bounded work. A set that changes faster than it can be read is
// left as it is. Callers of this Client that wait for the limiter ask again at once.
//
// Heal returns ErrNotInitialized, ErrMalformed, ctx.Err(), ErrClosed, ErrUnavailable, or an error from Redis. After
// an error from Redis the limiter may be healed, or hold fewer permits than before until it is.
func (l *RateLimiter) Heal(ctx context.Context) error {
	r, err := l.Rate(ctx)
	if err != nil {
		return err
	}
	if err := l.redis.Heal(ctx, permit.Type(r.Type), permit.Lowered); err != nil {
		return err
	}
	l.handle.Changed()
	return nil
}

package ratelimiter

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Heal makes the permits that are left and those in use add up to the rate: permits that were lost come back, and
// of those that are too many the oldest grants are forgotten, so that permits which a release by Redisson has freed
// stay free. A value that is missing or no number is rebuilt from the grants. Every acquire of this package does the
// same as far as it needs to; Heal is for limiters that only Java uses, or that nobody uses at the moment. In a
// [PerClient] limiter it heals the permits of this client; see [WithClientID].
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
	if err := l.redis.Audit(ctx, permit.Type(r.Type), false); err != nil {
		return err
	}
	l.handle.Changed()
	return nil
}

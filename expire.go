package ratelimiter

import (
	"context"
	"time"
)

// What TTL answers besides a duration, as Redis and Redisson do.
const (
	// NoTTL: the limiter does not expire.
	NoTTL time.Duration = -1
	// NoLimiter: the limiter does not exist.
	NoLimiter time.Duration = -2
)

// An ExpireCondition makes Expire depend on the TTL that a key has. A key without one counts as
// living for ever. The zero value is no condition.
type ExpireCondition struct{ flag string }

// IfSet: only a key that has a TTL. Redisson: expireIfSet.
func IfSet() ExpireCondition { return ExpireCondition{"XX"} }

// IfNotSet: only a key that has none. Redisson: expireIfNotSet.
func IfNotSet() ExpireCondition { return ExpireCondition{"NX"} }

// IfGreater: only if the new TTL is longer. Redisson: expireIfGreater.
func IfGreater() ExpireCondition { return ExpireCondition{"GT"} }

// IfLess: only if the new TTL is shorter. Redisson: expireIfLess.
func IfLess() ExpireCondition { return ExpireCondition{"LT"} }

// Expire deletes the limiter after ttl, and the permits in use of all and of this client with it. It
// answers whether any key took the TTL: the condition, of which there is at most one, holds for each
// key alone. A rate with KeepAlive sets the TTL anew at the next acquire.
//
// Errors: ErrInvalidArgument for a ttl below or finer than a millisecond or for two conditions,
// ctx.Err(), ErrClosed, and those of Redis.
func (l *RateLimiter) Expire(ctx context.Context, ttl time.Duration, cond ...ExpireCondition) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	n, err := millis("TTL", ttl)
	if err != nil {
		return false, err
	}
	if n < 1 {
		return false, invalid("TTL %v is shorter than a millisecond", ttl)
	}
	return l.expire(ctx, n, "", cond)
}

// ExpireAt is Expire for an instant, to the millisecond below. One that is past deletes at once; the
// zero time is ErrInvalidArgument. The other errors are those of Expire.
func (l *RateLimiter) ExpireAt(ctx context.Context, at time.Time, cond ...ExpireCondition) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	if at.IsZero() {
		return false, invalid("the instant to expire at is the zero time")
	}
	return l.expire(ctx, "", at.UnixMilli(), cond)
}

func (l *RateLimiter) expire(ctx context.Context, ttl, at any, cond []ExpireCondition) (bool, error) {
	if len(cond) > 1 {
		return false, invalid("%d conditions of which there can be one", len(cond))
	}
	var c ExpireCondition
	if len(cond) == 1 {
		c = cond[0]
	}
	set, err := l.redis.Expire(ctx, ttl, at, c.flag)
	l.handle.ForgetTTL()
	return set, err
}

// ClearExpire takes the TTL from the limiter's keys and answers whether any had one. Errors: ctx.Err(),
// ErrClosed, and those of Redis.
func (l *RateLimiter) ClearExpire(ctx context.Context) (bool, error) {
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	return l.redis.ClearExpire(ctx)
}

// TTL is how long the limiter still lives, to the millisecond, or [NoTTL] or [NoLimiter]. Errors:
// ctx.Err(), ErrClosed, ErrUnavailable, and those of Redis.
func (l *RateLimiter) TTL(ctx context.Context) (time.Duration, error) {
	if err := l.ready(ctx); err != nil {
		return 0, err
	}
	return l.redis.TTL(ctx)
}

// ExpireTime is when the limiter expires, by the clock of Redis, to the millisecond; the zero time
// when it does not, or does not exist. Errors: ctx.Err(), ErrClosed, and those of Redis.
func (l *RateLimiter) ExpireTime(ctx context.Context) (time.Time, error) {
	if err := l.ready(ctx); err != nil {
		return time.Time{}, err
	}
	return l.redis.ExpireTime(ctx)
}

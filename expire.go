// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// An ExpireCondition makes [Admin.Expire] depend on the TTL of each key, where none counts as forever. The zero value
// is no condition.
type ExpireCondition struct{ flag string }

// IfSet returns the condition that a key has a TTL, like Redisson's expireIfSet.
func IfSet() ExpireCondition { return ExpireCondition{"XX"} }

// IfNotSet returns the condition that a key has no TTL, like Redisson's expireIfNotSet.
func IfNotSet() ExpireCondition { return ExpireCondition{"NX"} }

// IfGreater returns the condition that the new TTL is longer, like Redisson's expireIfGreater.
func IfGreater() ExpireCondition { return ExpireCondition{"GT"} }

// IfLess returns the condition that the new TTL is shorter, like Redisson's expireIfLess.
func IfLess() ExpireCondition { return ExpireCondition{"LT"} }

// Expire has Redis delete the limiter and its permits in use after ttl, in a [PerClient] limiter those of this client.
// It reports whether any key took the TTL, and takes at most one condition, which is checked for each key separately.
// If the rate has a KeepAlive, the next acquire sets the TTL anew. Expire returns ErrInvalidArgument unless ttl is a
// whole number of milliseconds above 0.
func (a Admin) Expire(ctx context.Context, ttl time.Duration, cond ...ExpireCondition) (bool, error) {
	l := a.limiter
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	n, err := millis("TTL", ttl)
	if err != nil {
		return false, err
	}
	if n < 1 {
		return false, invalid("TTL %v for %q is shorter than a millisecond", ttl, l.name)
	}
	return a.expire(ctx, n, "", cond)
}

// ExpireAt is like [Admin.Expire] with an instant instead of a TTL, rounded down to a millisecond. An instant in the
// past deletes the limiter at once. It returns ErrInvalidArgument for the zero time and for an instant more than 2^53
// milliseconds after 1970.
func (a Admin) ExpireAt(ctx context.Context, at time.Time, cond ...ExpireCondition) (bool, error) {
	l := a.limiter
	if err := l.ready(ctx); err != nil {
		return false, err
	}
	if at.IsZero() {
		return false, invalid("the instant at which %q should expire is the zero time", l.name)
	}
	// Compared in seconds, because the milliseconds of an absurd instant overflow.
	if at.Unix() > latestExpiry/1000 || at.Unix() == latestExpiry/1000 && at.UnixMilli() > latestExpiry {
		return false, invalid("the instant at which %q should expire, %v, is more than 2^53 ms after 1970; use ClearExpire for a limiter that stays",
			l.name, at)
	}
	ms := int64(0)
	if at.Unix() > 0 { // no instant before that is more in the past
		ms = at.UnixMilli()
	}
	return a.expire(ctx, "", ms, cond)
}

// latestExpiry is the latest instant that the scripts can count exactly, in ms since the epoch.
const latestExpiry = 1 << 53

func (a Admin) expire(ctx context.Context, ttl, at any, cond []ExpireCondition) (bool, error) {
	l := a.limiter
	if len(cond) > 1 {
		return false, invalid("%d conditions for the TTL of %q, of which there may be one", len(cond), l.name)
	}
	var c ExpireCondition
	if len(cond) == 1 {
		c = cond[0]
	}
	return link.Do(ctx, &l.handle.Link, l.redis.Expire(ttl, at, c.flag))
}

// ClearExpire removes the TTL from the limiter's keys, of a [PerClient] limiter only this client's, and reports whether any had one.
func (a Admin) ClearExpire(ctx context.Context) (bool, error) {
	return do(ctx, a.limiter, (*redisson.Limiter).ClearExpire)
}

// TTL returns how long the limiter still lives, to the millisecond and at most 292 years, or 0 if it does not expire,
// for which Redisson's remainTimeToLive returns -1. It returns ErrNotInitialized if the limiter does not exist, for
// which Redisson returns -2.
func (a Admin) TTL(ctx context.Context) (time.Duration, error) {
	ttl, err := do(ctx, a.limiter, (*redisson.Limiter).TTL)
	return ttlOf(ttl), err
}

// ttlOf returns the TTL that Redis reported, or 0 if there is none. A TTL below a millisecond becomes one
// millisecond.
func ttlOf(d time.Duration) time.Duration {
	if d < 0 {
		return 0
	}
	return max(d, time.Millisecond)
}

// ExpireTime returns the instant at which the limiter expires, by the clock of Redis, to the millisecond and at most
// 2^53 ms from now, or the zero time if it does not expire. It returns the same errors as [Admin.TTL].
func (a Admin) ExpireTime(ctx context.Context) (time.Time, error) {
	return do(ctx, a.limiter, (*redisson.Limiter).ExpireTime)
}

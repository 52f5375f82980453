// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Expire sets the TTL of the limiter's keys to ttl ms, or makes them expire at the instant at, in ms since the
// epoch; the other of the two is an empty string. It reports whether any key took the TTL under the condition
// of flag.
func (l *Limiter) Expire(ctx context.Context, ttl, at any, flag string) (bool, error) {
	defer l.hints.forgetTTL()
	n, err := l.run(ctx, l.Scripts.Expire, l.Keys.All(permit.Overall), ttl, at, flag)
	return err == nil && n[0] == 1, err
}

// ClearExpire removes the TTL from the limiter's keys, and reports whether any key had one.
func (l *Limiter) ClearExpire(ctx context.Context) (bool, error) {
	n, err := l.run(ctx, l.Scripts.ClearExpire, l.Keys.All(permit.Overall))
	return err == nil && n[0] == 1, err
}

// TTL returns how long the limiter still lives, or -1 if it does not expire. It returns permit.ErrNotInitialized if it
// does not exist.
func (l *Limiter) TTL(ctx context.Context) (time.Duration, error) {
	n, err := l.numbersOf(ctx, l.Scripts.TTL)
	switch {
	case err != nil:
		return 0, err
	case n[0] == -2:
		return 0, l.notInitialized()
	}
	return PTTL(n[0]), nil
}

// ExpireTime returns the instant at which the limiter expires, or the zero time if it does not expire. It returns
// permit.ErrNotInitialized if it does not exist.
func (l *Limiter) ExpireTime(ctx context.Context) (time.Time, error) {
	n, err := l.numbersOf(ctx, l.Scripts.ExpireTime)
	switch {
	case err != nil:
		return time.Time{}, err
	case n[0] == -2:
		return time.Time{}, l.notInitialized()
	case n[0] < 0:
		return time.Time{}, nil
	}
	return time.UnixMilli(n[0]), nil
}

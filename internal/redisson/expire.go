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
func (l *Limiter) Expire(ttl, at any, flag string) permit.Op[bool] {
	s := l.Scripts.Expire
	return one(s, func(ctx context.Context) (bool, error) {
		defer l.hints.forgetTTL()
		n, err := l.run(ctx, s, l.Keys.All(permit.Overall), ttl, at, flag)
		return err == nil && n[0] == 1, err
	})
}

// ClearExpire removes the TTL from the limiter's keys, and reports whether any key had one.
func (l *Limiter) ClearExpire() permit.Op[bool] {
	return l.isOne(l.Scripts.ClearExpire, l.Keys.All(permit.Overall))
}

// TTL returns how long the limiter still lives, or -1 if it does not expire. It returns permit.ErrNotInitialized if it
// does not exist.
func (l *Limiter) TTL() permit.Op[time.Duration] {
	return readOnly(l.Scripts.TTL, func(ctx context.Context) (time.Duration, error) {
		n, err := l.lifetime(ctx, l.Scripts.TTL)
		return PTTL(n), err
	})
}

// ExpireTime returns the instant at which the limiter expires, or the zero time if it does not expire. It returns
// permit.ErrNotInitialized if it does not exist.
func (l *Limiter) ExpireTime() permit.Op[time.Time] {
	return readOnly(l.Scripts.ExpireTime, func(ctx context.Context) (time.Time, error) {
		n, err := l.lifetime(ctx, l.Scripts.ExpireTime)
		if err != nil || n < 0 {
			return time.Time{}, err
		}
		return time.UnixMilli(n), nil
	})
}

// lifetime returns the reply of s, -1 if the limiter does not expire.
func (l *Limiter) lifetime(ctx context.Context, s *Script) (int64, error) {
	n, err := l.run(ctx, s, []string{l.Keys.Hash})
	switch {
	case err != nil:
		return 0, err
	case n[0] == -2:
		return 0, l.notInitialized()
	}
	return n[0], nil
}

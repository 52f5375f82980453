// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// CoolDown blocks the limiter's permits for d, and then gives them back over reopen.
func (l *Limiter) CoolDown(d, reopen time.Duration) permit.Op[struct{}] {
	s, format := l.Scripts.CoolDown, 21
	if l.LongLength {
		format = 20
	}
	return typed(l, s, func(ctx context.Context, typ permit.Type) (_ struct{}, more bool, err error) {
		n, err := l.run(ctx, s, l.Keys.Of(typ), wire(typ), (d + time.Millisecond - 1).Milliseconds(),
			reopen.Milliseconds(), l.now(), format, l.KeyTTL.Milliseconds())
		if err == nil {
			err = l.statusError(n)
		}
		return struct{}{}, false, err
	})
}

// CoolDownLeft returns how long the limiter's cool-down still lasts, or 0 if there is none.
func (l *Limiter) CoolDownLeft() permit.Op[time.Duration] {
	s := l.Scripts.CoolDownUntil
	return one(s, func(ctx context.Context) (time.Duration, error) {
		n, err := l.run(ctx, s, []string{l.Keys.Hash}, l.now())
		if err == nil {
			err = l.statusError(n)
		}
		if err != nil {
			return 0, err
		}
		return ms(n[1]), nil
	})
}

// LiftCoolDown ends the limiter's cool-down, and reports whether there was one.
func (l *Limiter) LiftCoolDown() permit.Op[bool] {
	s := l.Scripts.LiftCoolDown
	return typed(l, s, func(ctx context.Context, typ permit.Type) (lifted, more bool, err error) {
		n, err := l.run(ctx, s, l.Keys.Of(typ), wire(typ), l.now())
		if err == nil {
			err = l.statusError(n)
		}
		return err == nil && n[1] == 1, false, err
	})
}

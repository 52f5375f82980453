// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// CoolDown blocks the limiter's permits for d, and then gives them back over reopen.
func (l *Limiter) CoolDown(ctx context.Context, d, reopen time.Duration) error {
	format := 21
	if l.LongLength {
		format = 20
	}
	return l.withType("CoolDown", l.Type(), func(typ permit.Type) error {
		n, err := l.run(ctx, l.Scripts.CoolDown, l.Keys.Of(typ), wire(typ), (d + time.Millisecond - 1).Milliseconds(),
			reopen.Milliseconds(), l.now(), format, l.KeyTTL.Milliseconds())
		if err == nil {
			err = l.statusError(n)
		}
		return err
	})
}

// CoolDownLeft returns how long the limiter's cool-down still lasts, or 0 if there is none.
func (l *Limiter) CoolDownLeft(ctx context.Context) (time.Duration, error) {
	n, err := l.run(ctx, l.Scripts.CoolDownUntil, []string{l.Keys.Hash}, l.now())
	if err == nil {
		err = l.statusError(n)
	}
	if err != nil {
		return 0, err
	}
	return ms(n[1]), nil
}

// LiftCoolDown ends the limiter's cool-down, and reports whether there was one.
func (l *Limiter) LiftCoolDown(ctx context.Context) (lifted bool, err error) {
	err = l.withType("LiftCoolDown", l.Type(), func(typ permit.Type) error {
		n, err := l.run(ctx, l.Scripts.LiftCoolDown, l.Keys.Of(typ), wire(typ), l.now())
		if err == nil {
			err = l.statusError(n)
		}
		lifted = err == nil && n[1] == 1
		return err
	})
	return lifted, err
}

// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"iter"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Do carries out an operation, and repeats each of its calls until there is a reply. It returns the result of the last call.
func Do[T any](ctx context.Context, l *Link, op permit.Op[T]) (result T, err error) {
	for result, err = range Steps(ctx, l, op) {
	}
	return result, err
}

// Steps carries out an operation like [Do], and yields the result of each call, and with an error that of the last.
func Steps[T any](ctx context.Context, l *Link, op permit.Op[T]) iter.Seq2[T, error] {
	gate := l.Change
	switch {
	case op.Reads:
		gate = l.Read
	case op.Asks:
		gate = l.Gated
	}
	return func(yield func(T, error) bool) {
		var result T // stays as it is if there is no call
		more := true
		step := func(ctx context.Context, _ bool) (err error) {
			result, more, err = op.Step(ctx)
			return err
		}
		for more {
			err := gate(ctx, op.Name, step)
			if more = more && err == nil; !yield(result, err) {
				return
			}
		}
	}
}

// heal makes the permits left and those in use add up to the rate.
func (l *Link) heal(ctx context.Context, typ permit.Type, c permit.HealCause) error {
	_, err := Do(ctx, l, l.Backend.Heal(typ, c))
	return err
}

// Heal is like heal. It gives up only if Redis does.
func (l *Link) Heal(ctx context.Context, typ permit.Type, c permit.HealCause) {
	_ = l.heal(context.WithoutCancel(ctx), typ, c) // the next reply shows whether it worked
}

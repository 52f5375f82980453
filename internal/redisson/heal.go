// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// healStep is how many members one call of heal reads, about, which takes a millisecond.
const healStep = 1000

// A HealState is what one call of heal tells the next, as the last arguments. It is empty before the first.
type HealState []any

// Heal makes value and the permits in use add up to the rate, in calls of bounded work, and before that removes what has
// no effect any more: void blocks of a cool-down, and grants by a peer whose clock is fast. Permits that are neither left
// nor in use are given back. If there are too many, Heal removes those that the oldest grants hold, so that a release by
// Java keeps what it freed. A set that changes faster than it can be read is left for another time.
func (l *Limiter) Heal(ctx context.Context, typ permit.Type, c permit.HealCause) error {
	defer l.hints.healed(c, time.Now())
	for range 3 {
		var state HealState
		for {
			next, done, err := l.HealStep(ctx, typ, c, healStep, state)
			var other *permit.WrongTypeError
			if errors.As(err, &other) || errors.Is(err, permit.ErrNotInitialized) {
				return nil // changed in the meantime; the next call will learn it
			}
			if err != nil || done {
				return err
			}
			if next == nil {
				break
			}
			state = next
		}
	}
	return nil
}

// HealStep makes one call of heal, which reads about that many members. Unless it is done, next is the state with which
// to go on; nil to start over, since the set has changed.
func (l *Limiter) HealStep(ctx context.Context, typ permit.Type, c permit.HealCause, members int, state HealState) (next HealState, done bool, err error) {
	s := l.Scripts.Heal
	words := words(word{l.SharedClock, "mark"}, word{l.LongLength, "long"}, word{c != permit.Sick, "check"}, word{c == permit.Lowered, "lowered"})
	args := append([]any{wire(typ), words, l.now(), members}, state...)
	raw, err := l.send(ctx, s, l.Keys.Of(typ), args...)
	if err != nil {
		return nil, false, err
	}
	f, startOver, err := l.readStatus(s, raw)
	if err != nil || startOver {
		return nil, false, err
	}
	_, done = readHealed(&f)
	if !done {
		for range s.Optional {
			next = append(next, f.any())
		}
	}
	if !f.whole() {
		return nil, false, l.badReply(s, raw)
	}
	return next, done, nil
}

// readHealed reads what a call of heal has healed, up to the state with which to go on unless it is done.
func readHealed(f *replyReader) (h permit.Healed, done bool) {
	for !f.bad {
		switch f.text() {
		case "marked":
			h.Clock = f.number()
		case "restored":
			h.Value = f.number()
		case "lost":
			h.Lost = f.number()
		case "surplus":
			h.Surplus = f.number()
		case "done":
			return h, true
		case "next":
			return h, false
		default:
			f.bad = true
		}
	}
	return h, false
}

// healedOf returns what a call of heal has healed.
func healedOf(raw any) (h permit.Healed) {
	if f := readerOf(raw); f.number() == statusOK {
		h, _ = readHealed(&f)
	}
	return h
}

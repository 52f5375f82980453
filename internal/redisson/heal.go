// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// healStep is about how many members one call of heal reads, which takes a millisecond.
const healStep = 1000

// A HealState is what one call of heal passes on to the next, as its last arguments. It is empty before the first
// call. Redis keeps how far heal has added up the set.
type HealState []any

// maxHeals is how often heal begins, if the set changes in the meantime.
const maxHeals = 3

// Heal makes value and the permits in use add up to the rate, in calls of bounded work. First it removes what has no
// effect any more: void blocks of a cool-down, and grants by a peer whose clock is fast. It gives back permits that
// are neither left nor in use. What is too much it takes from the oldest grants if it is what Java has released, which stays free;
// from what is left if grants of another rate may be in use; and from neither while that is not known. It gives up on a set that
// changes faster than it can be read.
func (l *Limiter) Heal(typ permit.Type, c permit.HealCause) permit.Op[struct{}] {
	began, starts, state := time.Now(), 1, HealState(nil)
	return permit.Op[struct{}]{Name: l.Scripts.Heal.op(), Step: func(ctx context.Context) (_ struct{}, more bool, err error) {
		too, known := l.surplus(c)
		next, done, err := l.healStep(ctx, typ, c, too, known, healStep, state)
		if errors.As(err, new(*permit.WrongTypeError)) || errors.Is(err, permit.ErrNotInitialized) {
			done, err = true, nil // changed in the meantime; the next call will learn it
		}
		switch {
		case done || err != nil:
		case next == nil:
			more = starts < maxHeals
			state, starts = nil, starts+1
		default:
			state, more = next, true
		}
		if !more {
			l.hints.healed(c, began, done && err == nil && too != stays)
		}
		return struct{}{}, more, err
	}}
}

// HealStep makes one call of heal, which reads about the given number of members. Unless it is done, next is the
// state to go on with, or nil to start over because the set has changed.
func (l *Limiter) HealStep(ctx context.Context, typ permit.Type, c permit.HealCause, members int, state HealState) (next HealState, done bool, err error) {
	too, known := l.surplus(c)
	return l.healStep(ctx, typ, c, too, known, members, state)
}

// surplus returns what becomes of permits that are too many, and the rate that the state is known to have been of.
func (l *Limiter) surplus(c permit.HealCause) (surplus, int64) {
	if c == permit.Believed || c == permit.Ordered {
		return offValue, 0
	}
	return l.hints.surplus()
}

func (l *Limiter) healStep(ctx context.Context, typ permit.Type, c permit.HealCause, too surplus, known int64, members int, state HealState) (next HealState, done bool, err error) {
	s := l.Scripts.Heal
	words := words(word{l.SharedClock, "mark"}, word{l.LongLength, "long"}, word{c != permit.Unchecked, "check"}, word{too == stays, "leave"},
		word{c == permit.Ordered, "reclaim"}, word{too == ofRelease, strconv.FormatInt(known, 10)})
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

// readHealed reads what a call of heal has healed. Unless heal is done, the state for the next call follows.
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

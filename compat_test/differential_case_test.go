// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"slices"
)

// A twinCase is one operation of ours in one state. The entries of the closed list decide by it alone, and not by
// anything that happened later.
type twinCase struct {
	version   version
	op        twinOp
	now       int64
	before    twinState
	slot      int       // the slot that op acts on, -1 where there is no limiter
	healed    twinState // before; where a row heals it, with value = rate − permits in the set
	audits    bool      // our client is due to look for lost permits
	checks    bool      // the call checks that value and the grants add up to the rate, so it is acquire_rest's
	clientTTL int64     // the TTL of PER_CLIENT keys, 0 for none
	began     int64     // when the world began, by the clock of Redis
}

// A twinOutcome is the reply to an operation, and what Redis holds after it.
type twinOutcome struct {
	answer twinAnswer
	state  twinState
}

// usesPermits reports whether the operation is acquire, availablePermits or release.
func (o twinOp) usesPermits() bool {
	return o.name == "tryAcquire" || o.name == "availablePermits" || o.name == "release"
}

// permits returns the permits that op acts on, with the expired and the live grants. They are empty if op fails at
// its arguments.
func (c twinCase) permits() (s twinSlot, expired, live twinMembers) {
	if c.slot < 0 || !c.op.usesPermits() || c.op.outOfRange() || c.op.name == "tryAcquire" && c.op.permits > c.before.number("rate") {
		return twinSlot{}, nil, nil
	}
	s = c.before.slots[c.slot]
	expired, live = s.split(c.now, c.before.number("interval"))
	return s, expired, live
}

// balanced returns the states that a check by our acquire can turn this one into, where value and the grants add up
// to less or more than the rate: value is raised, or the oldest grants are removed, or, where our client knows that
// the rate was lowered, value falls, below 0 if need be.
func (c twinCase) balanced() (states []twinState) {
	s, expired, _ := c.permits()
	rate := c.before.number("rate")
	over := s.value + s.members.total() - rate
	if c.op.name != "tryAcquire" || !s.has || over == 0 {
		return nil
	}
	change := func(value int64, trimmed int64) {
		state := c.before.clone()
		slot := &state.slots[c.slot]
		slot.value = value
		for i := len(expired); i < len(slot.members) && trimmed > 0; { // expired grants are reclaimed before
			n := min(trimmed, slot.members[i].permits)
			trimmed -= n
			if slot.members[i].permits -= n; slot.members[i].permits == 0 {
				slot.members = slices.Delete(slot.members, i, i+1)
			}
		}
		states = append(states, state)
	}
	if over < 0 {
		change(s.value-over, 0)
		return states
	}
	change(s.value, over)
	change(s.value-over, 0)
	return states
}

// outOfReach reports whether the permits left and all those in use are fewer than the request, so that waiting does
// not help.
func (c twinCase) outOfReach() bool {
	s, _, _ := c.permits()
	return s.value+s.members.total() < c.op.permits
}

// A twinMemory is what one of our clients remembers of the limiter between calls.
type twinMemory struct {
	typ       string
	nextAudit int64 // when it looks for lost permits again, at the next rejection
}

// minAudit and maxAudit bound the time between two such checks, in ms.
const minAudit, maxAudit = 50, 60_000

// learn resets the memory of a client that was told that the limiter has another type.
func (m *twinMemory) learn(c twinCase) {
	if typ := c.before.hash["type"]; c.op.usesPermits() && !c.op.outOfRange() && c.before.initialized() && typ != m.typ {
		*m = twinMemory{typ: typ}
	}
}

// forget resets the memory of a client that has set the rate, and therefore knows the type.
func (m *twinMemory) forget(c twinCase, answer twinAnswer) {
	if c.op.setsRate() && c.op.name != "trySetRate" && (answer.word == "null" || answer.word == "true") {
		*m = twinMemory{typ: c.op.typ}
	}
}

// claims reports whether this call has looked for lost permits. It does so when it is rejected, even if it is granted
// after that.
func (c twinCase) claims(answer twinAnswer, met []string) bool {
	return c.audits && (answer.word == rejected || answer.word == granted && slices.Contains(met, "4") && !c.outOfReach())
}

// rejects turns w into the outcome of our rejection of an argument.
func (c twinCase) rejects(w *twinOutcome) bool {
	*w = twinOutcome{twinAnswer{word: invalidArgument}, c.before.clone()}
	return true
}

// keeps reports whether a rate was set and the permits in use were kept.
func (c twinCase) keeps(w *twinOutcome) bool {
	was := c.before.hash["type"]
	return c.op.setsRate() && c.op.keep && (was == "" || was == c.op.typ) && (w.answer.word == "null" || w.answer.word == "true")
}

// wait returns the exact wait of a rejected acquire, the number of members that it spans, and the wait that the jar
// returns instead, which is that of the oldest member.
func (c twinCase) wait(w *twinOutcome) (wait int64, members int, oldest int64) {
	if c.op.name != "tryAcquire" || w.answer.word != rejected {
		return 0, 0, 0
	}
	interval := c.before.number("interval")
	_, live := c.healed.slots[c.slot].split(c.now, interval)
	free := w.state.slots[c.slot].value
	for i, m := range live {
		if free += m.permits; free >= c.op.permits {
			oldest = live[0].score + interval - c.now
			if c.version.since("3.16.2") {
				oldest += 3
			}
			return m.score + interval - c.now, i + 1, oldest
		}
	}
	return 0, 0, 0
}

// explain turns what the jar did into what we must do. inHealed runs the jar's script on a limiter in the state
// c.healed. The ids are those of the entries that made a difference.
func (c twinCase) explain(theirs twinOutcome, inHealed func(twinCase) (twinOutcome, error)) (want twinOutcome, met []string, err error) {
	want = twinOutcome{theirs.answer, theirs.state.clone()}
	for _, row := range twinRows {
		switch {
		case row.heals == nil:
			if row.alters(c, &want) {
				met = append(met, row.id)
			}
		case row.heals(c):
			s := &c.healed.slots[c.slot]
			s.has, s.value = true, c.before.number("rate")-s.members.total()
			if s.valueTTL == noKey {
				s.valueTTL = noTTL
			}
			if want, err = inHealed(c); err != nil {
				return want, met, err
			}
			if want.answer != theirs.answer || len(want.state.differs(theirs.state, c.began)) > 0 {
				met = append(met, row.id)
			}
		}
	}
	return want, met, nil
}

// sound checks what holds after every operation: where permits left and in use added up to the rate they still do,
// and no window holds more than the rate.
func (c twinCase) sound(did twinOutcome, byUs bool) error {
	if c.slot < 0 || !did.state.initialized() {
		return nil
	}
	keeps := c.op.setsRate() && c.op.keep
	healthy := func(s twinState) bool {
		slot := s.slots[c.slot]
		return !slot.has && len(slot.members) == 0 || slot.has && slot.value+slot.members.total() == s.number("rate")
	}
	if !healthy(c.before) || healthy(did.state) {
		return nil
	}
	if !byUs && (c.op.name == "release" || keeps || c.op.permits < 1) {
		return nil // rows 9, 10 and 18
	}
	if !c.op.usesPermits() && !c.op.setsRate() {
		return nil // delete, and the operations on the limiter made after it
	}
	return fmt.Errorf("%s: permits left and in use no longer add up to the rate: before %s, after %s", c.op, c.before, did.state)
}

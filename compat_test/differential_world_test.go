// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A twinWorld is two limiters, each with two clients, that are in the same state before every operation. On one of
// them we act, or, where the world is mixed, either we or the jar's scripts do; on the other only the jar's scripts
// act, at the same instants.
type twinWorld struct {
	rng  *rand.Rand
	rdb  *redis.Client
	jar  *jar
	us   *library
	ids  [2]string
	keys [3][]string // of our limiter, of theirs, and of one in a healed state
	name [3]string

	mixed     bool
	damaged   bool          // something other than limiters writes to the keys now and then
	big       bool          // the set has more grants than one call takes
	ahead     time.Duration // by how much the clock of Java is ahead
	clientTTL int64
	began     int64 // by the clock of Redis

	ours, theirs twinState
	memory       [2]twinMemory
	history      []string

	operations int
	met        map[string]int
}

// newTwinWorld draws a world. Its limiters are called prefix and a letter.
func newTwinWorld(rng *rand.Rand, rdb *redis.Client, j *jar, prefix string) *twinWorld {
	w := &twinWorld{rng: rng, rdb: rdb, jar: j, met: map[string]int{}}
	w.ours = twinState{hashTTL: noKey}
	for i := range w.ours.slots {
		w.ours.slots[i] = twinSlot{valueTTL: noKey, permitsTTL: noKey}
	}
	w.memory = [2]twinMemory{{typ: "0"}, {typ: "0"}}
	for i := range w.ids {
		w.ids[i] = fmt.Sprintf("%08x-0000-4000-8000-%012x", rng.Uint32(), rng.Uint64()>>16)
	}
	for i := range w.name {
		w.name[i] = prefix + string(rune('a'+i))
		w.keys[i] = twinKeys(w.name[i], w.ids)
	}
	w.mixed = rng.IntN(2) == 0
	switch rng.IntN(20) {
	case 0, 1, 2, 3:
		w.damaged = true
	case 4, 5:
		w.big, w.mixed = true, false
	case 6, 7:
		w.mixed, w.ahead = true, time.Duration(1+rng.IntN(5000))*time.Millisecond
	}
	if rng.IntN(3) == 0 && !w.big {
		// The TTL is neither twice nor half an interval, nor near it: it is renewed at half its length, and real TTLs
		// run on between two looks.
		w.clientTTL = (61 * time.Minute).Milliseconds() + 7000
	}
	w.us = newLibrary(rdb, w.name[0], w.ids, w.clientTTL)
	return w
}

// errStalled says that a world has taken so long that its TTLs say nothing any more.
var errStalled = errors.New("the machine has stalled for a minute")

// play runs n operations, or fewer if the machine stalls. If there is a difference, its error tells the whole story.
func (w *twinWorld) play(ctx context.Context, n int) error {
	defer func() {
		for _, keys := range w.keys {
			w.rdb.Del(ctx, keys...)
		}
	}()
	w.begin()
	if err := w.copy(ctx, 0); err != nil {
		return err
	}
	for w.operations < n {
		var err error
		switch p := w.rng.IntN(100); {
		case p < 20:
			err = w.sleep(ctx)
		case p < 23 && w.damaged:
			err = w.damage(ctx)
		default:
			err = w.step(ctx, w.operation())
		}
		if errors.Is(err, errStalled) {
			w.operations--
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, w.story())
		}
	}
	return nil
}

// step runs one operation on both limiters and compares.
func (w *twinWorld) step(ctx context.Context, op twinOp) error {
	w.operations++
	random := w.jar.random(w.rng.Uint64())
	// We do the operations whose arguments we reject, because the jar would leave their effects behind.
	byUs := !w.mixed || w.rng.IntN(2) == 0 || op.outOfRange()
	c := w.caseOf(op)
	if byUs {
		w.memory[op.client].learn(c)
		c.audits = c.now >= w.memory[op.client].nextAudit
	} else {
		c.now += w.ahead.Milliseconds()
	}
	w.note("%d %s by %s", c.now, op, map[bool]string{true: "us", false: "the jar"}[byUs])

	did, alone, err := w.both(ctx, c, byUs, random)
	if err != nil {
		return err
	}
	w.note("  %v %v", did.answer, did.state)

	want, met := alone, []string(nil)
	if byUs {
		if want, met, err = c.explain(alone, func(c twinCase) (twinOutcome, error) { return w.inHealed(ctx, c, random) }); err != nil {
			return err
		}
		if c.claims(did.answer, met) {
			w.memory[op.client].nextAudit = c.now + min(max(c.before.number("interval"), minAudit), maxAudit)
		}
		w.memory[op.client].forget(c, did.answer)
		if !did.is(want, w.began) {
			if c, want, met, err = w.checked(ctx, c, did, want, met, random); err != nil {
				return err
			}
		}
	}
	if err := w.requireAs(c, &did, want, alone, met, byUs); err != nil {
		return err
	}
	for _, id := range met {
		w.met[id]++
	}
	w.ours, w.theirs = did.state, alone.state
	return w.meet(ctx, met)
}

// both runs the operation on our limiter, by us or by the jar, and by the jar on the other.
func (w *twinWorld) both(ctx context.Context, c twinCase, byUs bool, random string) (did, alone twinOutcome, err error) {
	pipe, id := w.rdb.Pipeline(), w.ids[c.op.client]
	var together sent
	if byUs {
		did.answer = w.us.do(ctx, c.op)
	} else {
		together = w.jar.send(ctx, pipe, c.op, w.name[0], id, c.now, random)
	}
	theirs := w.jar.send(ctx, pipe, c.op, w.name[1], id, c.now, random)
	looks := []*redis.Cmd{twinLook.Eval(ctx, pipe, w.keys[0]), twinLook.Eval(ctx, pipe, w.keys[1])}
	_, _ = pipe.Exec(ctx) // each command has its own error
	alone.answer = theirs.answer()
	if !byUs {
		did.answer = together.answer()
	}
	if did.state, err = w.seen(looks[0]); err == nil {
		alone.state, err = w.seen(looks[1])
	}
	return did, alone, err
}

// is reports whether o is want, but for what only we tell.
func (o twinOutcome) is(want twinOutcome, began int64) bool {
	return o.answer.word == want.answer.word && o.answer.wait == want.answer.wait && len(o.state.differs(want.state, began)) == 0
}

// checked returns the case, the outcome and the entries if the call has checked that value and the grants add up to the rate, and
// what it got if that explains nothing. A call does so now and then, whether or not it is rejected. If an earlier call has done
// so, this one need not.
func (w *twinWorld) checked(ctx context.Context, c twinCase, did, want twinOutcome, met []string, random string) (twinCase, twinOutcome, []string, error) {
	for i, balanced := range append(c.balanced(), c.before, c.before) {
		other := c
		other.audits, other.checks = false, i <= len(c.balanced())
		other.before, other.healed = balanced, balanced.clone()
		theirs, err := w.inHealed(ctx, other, random)
		if err != nil {
			return c, want, met, err
		}
		checked, too, err := other.explain(theirs, func(c twinCase) (twinOutcome, error) { return w.inHealed(ctx, c, random) })
		if err != nil {
			return c, want, met, err
		}
		if did.is(checked, w.began) {
			return other, checked, append(too, "checked"), nil
		}
	}
	return c, want, met, nil
}

// requireAs returns an error unless the operation did what is wanted and leaves what is sound.
func (w *twinWorld) requireAs(c twinCase, did *twinOutcome, want, alone twinOutcome, met []string, byUs bool) error {
	op := c.op
	different := did.state.differs(want.state, w.began)
	if acquired := op.name == "tryAcquire" && (did.answer.word == granted || did.answer.word == rejected); byUs && acquired {
		if left := max(0, did.state.slots[c.slot].value); did.answer.left != left {
			different = append(different, fmt.Sprintf("left, by the answer %d, in Redis %d", did.answer.left, left))
		}
		did.answer.left = 0
	}
	if did.answer != want.answer {
		different = append(different, fmt.Sprintf("answer %v, %v", did.answer, want.answer))
	}
	if len(different) > 0 {
		return fmt.Errorf("%s, %s: as it is and as it should be (by entries %v of the closed list)\n%s\nbefore %s\nRedisson alone %v %s",
			op, map[bool]string{true: "by us", false: "by the jar on what we left"}[byUs], met, strings.Join(different, "\n"), c.before,
			alone.answer, alone.state)
	}
	return c.sound(*did, byUs)
}

func (w *twinWorld) caseOf(op twinOp) twinCase {
	c := twinCase{
		version: w.jar.version, op: op, now: time.Now().UnixMilli(),
		before: w.ours, healed: w.ours.clone(), slot: -1, clientTTL: w.clientTTL, began: w.began,
	}
	switch {
	case op.setsRate():
		c.slot = slotOf(op.typ, op.client)
	case c.before.initialized():
		c.slot = slotOf(c.before.hash["type"], op.client)
	}
	return c
}

// inHealed runs the jar's script on a third limiter.
func (w *twinWorld) inHealed(ctx context.Context, c twinCase, random string) (out twinOutcome, err error) {
	pipe := w.rdb.Pipeline()
	c.healed.inFormatOf(w.jar.version).place(ctx, pipe, w.keys[2])
	theirs := w.jar.send(ctx, pipe, c.op, w.name[2], w.ids[c.op.client], c.now, random)
	cmd := twinLook.Eval(ctx, pipe, w.keys[2])
	_, _ = pipe.Exec(ctx)
	out.answer = theirs.answer()
	out.state, err = w.seen(cmd)
	return out, err
}

// meet makes the two limiters equal after a deliberate difference has parted them. Mostly it takes our state, and in
// mixed worlds also that of Redisson, so that we act on what Redisson leaves. The run does not continue with what
// Redisson makes of arguments that we reject.
func (w *twinWorld) meet(ctx context.Context, met []string) error {
	if len(w.ours.differs(w.theirs, w.began)) == 0 {
		return nil
	}
	from := 0
	if w.mixed && !w.big && w.rng.IntN(3) == 0 {
		from = 1
	}
	for _, id := range met {
		if id == "10" || id == "11" || id == "1" {
			from = 0
		}
	}
	return w.copy(ctx, from)
}

// copy gives both limiters the state of ours (0) or of theirs (1). Theirs gets members of its own format.
func (w *twinWorld) copy(ctx context.Context, from int) error {
	pipe := w.rdb.Pipeline()
	now := pipe.Time(ctx)
	if from == 1 {
		w.ours = w.theirs
		w.ours.place(ctx, pipe, w.keys[0])
		w.note("  as Redisson: %v", w.ours)
	}
	w.theirs = w.ours.inFormatOf(w.jar.version)
	w.theirs.place(ctx, pipe, w.keys[1])
	if from == 0 && w.operations == 0 {
		w.ours.place(ctx, pipe, w.keys[0])
	}
	_, err := pipe.Exec(ctx)
	if w.operations == 0 {
		w.began = now.Val().UnixMilli()
	}
	return err
}

// seen returns what twinLook saw, and errStalled if TTLs of Redis may have ended in the meantime.
func (w *twinWorld) seen(look *redis.Cmd) (twinState, error) {
	s, err := parseState(look)
	if err == nil && s.at-w.began >= lastMinute {
		err = errStalled
	}
	return s, err
}

func (w *twinWorld) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
	if len(w.history) > 128 {
		w.history = w.history[64:]
	}
}

func (w *twinWorld) story() string {
	return fmt.Sprintf("Redisson %s, mixed %t, damaged %t, big %t, Java ahead by %v, client TTL %d\n%s",
		w.jar.version, w.mixed, w.damaged, w.big, w.ahead, w.clientTTL, strings.Join(w.history[max(0, len(w.history)-60):], "\n"))
}

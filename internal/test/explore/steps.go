// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A step changes a state, which Redis holds. It reports false if it cannot be made in that state. An error is a promise
// that is not kept.
type step struct {
	group string
	make  func(w *world, s *state) (bool, error)
}

// steps returns the steps of the groups in w.Steps.
func (w *world) steps() (list []step) {
	add := func(group string, f func(w *world, s *state) (bool, error)) {
		if slices.Contains(w.Steps, group) {
			list = append(list, step{group, f})
		}
	}
	for l := range w.Limiters {
		for p := range java {
			add := func(group string, f func(w *world, s *state, p, l int) (bool, error)) {
				add(group, func(w *world, s *state) (bool, error) {
					// The processes are alike, so the first of them to act is p0.
					if s.procs[p].dead || p > 0 && !s.procs[0].acted {
						return false, nil
					}
					s.procs[p].acted = true
					return f(w, s, p, l)
				})
			}
			for n := int64(1); n <= 2; n++ {
				add("ask", func(w *world, s *state, p, l int) (bool, error) { return w.ask(s, p, l, n, false) })
				add("lose", func(w *world, s *state, p, l int) (bool, error) { return w.ask(s, p, l, n, true) })
			}
			add("lose", (*world).replay)
			add("lose", (*world).leave)
			add("twice", (*world).twice)
			add("refund", func(w *world, s *state, p, l int) (bool, error) { return w.refund(s, p, l, 0) })
			add("refund", func(w *world, s *state, p, l int) (bool, error) { return w.refund(s, p, l, 1) })
			add("settle", (*world).settle)
			add("check", (*world).check)
			add("heal", func(w *world, s *state, p, l int) (bool, error) { return w.heal(s, p, l, permit.Checked) })
			add("healer", func(w *world, s *state, p, l int) (bool, error) { return w.heal(s, p, l, permit.Ordered) })
			add("release", (*world).release)
			for _, n := range []int64{w.Rate, w.Rate - 1, 0} {
				add("reserve", func(w *world, s *state, p, l int) (bool, error) { return w.extend(s, p, l, n, false) })
			}
			add("reserve", func(w *world, s *state, p, l int) (bool, error) { return w.extend(s, p, l, w.Rate, true) })
			if l == 0 {
				add("die", (*world).die)
				add("all", (*world).all)
			}
		}
		for n := int64(1); n <= 2; n++ {
			add("java", func(w *world, s *state) (bool, error) { return w.askJava(s, l, n) })
		}
		for _, n := range []int64{w.Rate - 1, w.Rate} {
			for _, keep := range []bool{false, true} {
				add("rate", func(w *world, s *state) (bool, error) { return w.setRate(s, l, n, keep) })
			}
		}
		for _, d := range []time.Duration{interval / 3, 2 * interval} {
			add("cool", func(w *world, s *state) (bool, error) { return w.coolDown(s, l, d, 0) })
			add("reopen", func(w *world, s *state) (bool, error) { return w.coolDown(s, l, d, interval/3) })
		}
		add("cool", func(w *world, s *state) (bool, error) { return w.lift(s, l) })
	}
	for _, name := range w.names {
		add("evict", func(w *world, s *state) (bool, error) { return w.evict(s, name) })
	}
	add("time", func(w *world, s *state) (bool, error) { return w.pass(s, 0) })
	add("time", func(w *world, s *state) (bool, error) { return w.pass(s, 1) })
	add("time", func(w *world, s *state) (bool, error) { return w.pass(s, interval/3) })
	return list
}

func (s *state) tell(format string, args ...any) { s.did = fmt.Sprintf(format, args...) }

// enter enters a grant that Redis made for a call, unless it is entered.
func (s *state) enter(g grant) {
	for i := range s.grants {
		if e := &s.grants[i]; e.owner == g.owner && e.limiter == g.limiter && e.seq == g.seq && e.permits == g.permits {
			e.told = e.told || g.told
			return
		}
	}
	s.grants = append(s.grants, g)
}

func (w *world) ask(s *state, p, l int, n int64, lose bool) (bool, error) {
	seq := s.freeSeq(p)
	a, err := w.acquire(p, l, one(p, seq, n))
	if a.unset || err != nil {
		return false, err
	}
	if a.granted {
		s.enter(grant{limiter: l, owner: p, seq: seq, permits: n, at: s.now, told: !lose})
		if cool := w.coolsUntil(s, l); cool > s.now {
			return true, fmt.Errorf("p%d is granted permits in a cool-down", p)
		}
	}
	s.procs[p].last = call{l, seq, n, lose}
	if lose {
		s.tell("p%d asks L%d for %d, %s, and the reply is lost", p, l, n, a)
		return true, nil
	}
	s.tell("p%d asks L%d for %d: %s", p, l, n, a)
	return true, nil
}

func (a reply) String() string {
	if a.granted {
		return "granted"
	}
	return fmt.Sprint("rejected for ", a.wait)
}

// replay sends the call again whose reply was lost, as such.
func (w *world) replay(s *state, p, l int) (bool, error) {
	c := s.procs[p].last
	if !c.lost || c.limiter != l {
		return false, nil
	}
	i := slices.IndexFunc(s.grants, func(g grant) bool { return g.owner == p && g.limiter == l && g.seq == c.seq })
	b := one(p, c.seq, c.permits)
	b.Replay = true
	a, err := w.acquire(p, l, b)
	if a.unset || err != nil {
		return false, err
	}
	s.tell("p%d sends its lost call for %d of L%d again: %s", p, c.permits, l, a)
	if i >= 0 && !a.granted && !s.grants[i].veiled && !s.isOver(w.book(l, p)) {
		return true, fmt.Errorf("p%d sends a call again that was granted %d, and is rejected", p, c.permits)
	}
	s.procs[p].last = call{l, c.seq, c.permits, false}
	w.save(s)
	_, _, set, _ := w.keysOf(s, p, l)
	switch m, ok := set.memberOf(id(p, c.seq)); {
	case !a.granted:
	case i >= 0 && s.grants[i].veiled:
		s.grants[i].told, s.blind = true, true
	case !ok:
		return true, fmt.Errorf("p%d is granted %d of L%d without a member", p, c.permits, l)
	case i >= 0: // a lower rate may have made the member smaller
		s.grants[i].told, s.grants[i].permits = true, permitsOf(m.raw)
	default:
		s.enter(grant{limiter: l, owner: p, seq: c.seq, permits: permitsOf(m.raw), at: m.score, told: true})
	}
	return true, nil
}

// leave gives back what a lost call may have been granted.
func (w *world) leave(s *state, p, l int) (bool, error) {
	c := &s.procs[p].last
	if !c.lost || c.limiter != l {
		return false, nil
	}
	s.tell("p%d gives back what its lost call for %d of L%d may have got", p, c.permits, l)
	seq := c.seq
	c.lost = false
	return w.giveBack(s, p, l, seq, c.permits, 0)
}

// refund gives back the newest grant of a process but for keep permits.
func (w *world) refund(s *state, p, l int, keep int64) (bool, error) {
	last := s.newest(p, l)
	if last < 0 || s.grants[last].permits <= keep {
		return false, nil
	}
	n := s.grants[last].permits
	s.tell("p%d gives back %d of the %d permits that it got last of L%d", p, n-keep, n, l)
	return w.giveBack(s, p, l, s.grants[last].seq, n, keep)
}

// newest returns the newest grant that a process knows, -1 if there is none.
func (s *state) newest(p, l int) int {
	last := -1
	for i, g := range s.grants {
		if g.owner == p && g.limiter == l && g.told && g.permits > 0 && (last < 0 || g.at >= s.grants[last].at) {
			last = i
		}
	}
	return last
}

func (w *world) giveBack(s *state, p, l int, seq byte, permits, keep int64) (bool, error) {
	err := w.limiters[p][l].Refund(w.ctx, w.Type, permit.Grant{ID: id(p, seq), Permits: permits, Keep: keep})
	if errors.Is(err, permit.ErrNotInitialized) {
		return false, nil
	}
	for i := range s.grants {
		g := &s.grants[i]
		if g.veiled && keep > permits {
			continue // it is no longer there, so no more is taken
		}
		if g.owner == p && g.limiter == l && g.seq == seq && (g.permits == permits || keep < g.permits) {
			if g.veiled {
				g.veils += g.permits - keep
			}
			g.permits = keep
		}
	}
	return true, err
}

// settle makes the newest grant of a process one of a permit more, if one is left.
func (w *world) settle(s *state, p, l int) (bool, error) {
	last := s.newest(p, l)
	if _, value, _, _ := w.keysOf(s, p, l); last < 0 || number(value.text) < 1 {
		return false, nil
	}
	n := s.grants[last].permits
	s.tell("p%d settles the %d permits that it got last of L%d to %d", p, n, l, n+1)
	return w.giveBack(s, p, l, s.grants[last].seq, n, n+1)
}

// release gives back a permit of the newest grants, whoever's they are.
func (w *world) release(s *state, p, l int) (bool, error) {
	if slices.ContainsFunc(s.grants, func(g grant) bool { return g.veiled }) {
		return false, nil // nobody knows whose the members are
	}
	if _, err := w.limiters[p][l].Release(1).Run(w.ctx); errors.Is(err, permit.ErrNotInitialized) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	s.tell("p%d releases a permit of L%d", p, l)
	w.save(s)
	for i := range s.grants {
		g := &s.grants[i]
		if w.book(g.limiter, g.owner) != w.book(l, p) {
			continue
		}
		_, _, set, _ := w.keysOf(s, g.owner, l)
		m, ok := set.memberOf(id(g.owner, g.seq))
		if g.permits = 0; ok {
			g.permits = permitsOf(m.raw)
		}
	}
	return true, nil
}

// heal makes one call of heal, which reads one member. It goes on with what a call before has begun to add up.
func (w *world) heal(s *state, p, l int, c permit.HealCause) (bool, error) {
	hash, _, set, _ := w.keysOf(s, p, l)
	var begun redisson.HealState
	if hash.hash[set.name] != "" {
		begun = redisson.HealState{0, 0, 1}
	}
	next, done, err := w.limiters[p][l].HealStep(w.ctx, w.Type, c, 1, begun)
	if errors.Is(err, permit.ErrNotInitialized) || begun == nil && done {
		return false, nil
	}
	s.tell("p%d makes a call of heal for L%d: more to do %v, done %v", p, l, next != nil, done)
	return true, err
}

// twice has the last call of a process arrive once more, without anybody knowing.
func (w *world) twice(s *state, p, l int) (bool, error) {
	c := s.procs[p].last
	if c.seq == 0 || c.limiter != l {
		return false, nil
	}
	a, err := w.acquire(p, l, one(p, c.seq, c.permits))
	if a.unset || err != nil {
		return false, err
	}
	w.save(s)
	_, _, set, _ := w.keysOf(s, p, l)
	if m, ok := set.memberOf(id(p, c.seq)); ok && permitsOf(m.raw) == c.permits {
		s.enter(grant{limiter: l, owner: p, seq: c.seq, permits: c.permits, at: m.score})
	}
	s.tell("the last call of p%d, for %d of L%d, arrives once more: %s", p, c.permits, l, a)
	return true, nil
}

// check has a process look whether value and the members add up to the rate.
func (w *world) check(s *state, p, l int) (bool, error) {
	b := one(p, s.freeSeq(p), 1)
	b.Check, b.DryRun = permit.Checked, true
	a, err := w.acquire(p, l, b)
	s.tell("p%d checks L%d", p, l)
	return !a.unset, err
}

// extend renews the reservation of a process, or begins one. If n is 0 it gives all back.
func (w *world) extend(s *state, p, l int, n int64, lose bool) (bool, error) {
	v := &s.procs[p].reserved[l]
	if n == 0 && v.seq == 0 || n > 0 && v.seq > 0 && v.want != n {
		return false, nil
	}
	if v.seq == 0 {
		*v = reservation{seq: s.freeSeq(p), want: n}
	}
	a, err := w.reserve(p, l, *v, n)
	what := fmt.Sprintf("p%d reserves %d of L%d", p, n, l)
	switch {
	case errors.Is(err, permit.ErrNotInitialized) || errors.Is(err, permit.ErrPermitsExceedRate):
		return false, nil
	case err != nil:
		return false, err
	case lose:
		v.unsure = true
		s.tell("%s, and the reply is lost", what)
	case n == 0:
		s.tell("p%d gives back its reservation of L%d", p, l)
		*v = reservation{}
	case a.Held == n && a.Lacking == 0:
		s.tell("%s: granted", what)
		s.enter(grant{limiter: l, owner: p, seq: v.seq, permits: n, at: s.now, told: true})
		*v = reservation{}
	default:
		s.tell("%s: %s", what, told(a))
		v.held, v.unsure = a.Held, false
	}
	return true, nil
}

func told(a permit.Reserved) string {
	return fmt.Sprintf("holds %d, lacks %d, place %d, wait %v", a.Held, a.Lacking, a.Place, a.Wait)
}

// die has a process end. What it has reserved stays until it expires.
func (w *world) die(s *state, p, _ int) (bool, error) {
	s.blind = s.blind || w.reserves(s)
	s.procs[p] = process{dead: true, acted: true, reserved: make([]reservation, w.Limiters)}
	s.tell("p%d dies", p)
	return true, nil
}

// all asks for one permit of each limiter in one call.
func (w *world) all(s *state, p, _ int) (bool, error) {
	parts := make([]permit.Part, w.Limiters)
	seq := s.freeSeq(p)
	for l := range parts {
		parts[l] = permit.Part{Limiter: w.limiters[p][l], Type: w.Type, ID: id(p, seq), Permits: 1}
	}
	rejected, err := w.limiters[p][0].AcquireAll(w.ctx, parts, false)
	if errors.Is(err, permit.ErrNotInitialized) {
		return false, nil
	}
	for l := range parts {
		if err == nil && len(rejected) == 0 {
			s.enter(grant{limiter: l, owner: p, seq: seq, permits: 1, at: s.now, told: true})
		}
	}
	s.tell("p%d asks all limiters for 1: rejected by %v", p, rejected)
	return true, err
}

func (w *world) askJava(s *state, l int, n int64) (bool, error) {
	seq := s.freeSeq(java)
	id := id(java, seq)
	ok, err := w.Redisson(w.store.Eval, w.limiters[java][l].Name, clientID(java), n, s.now, string(id[:]))
	s.tell("Redisson asks L%d for %d: %v", l, n, ok)
	if err != nil {
		s.tell("Redisson asks L%d for %d: %v", l, n, err) // these are its own
	}
	if ok {
		s.enter(grant{limiter: l, owner: java, seq: seq, permits: n, at: s.now})
	}
	w.save(s)
	w.forgive(s, l, java)
	return true, nil
}

func (w *world) setRate(s *state, l int, n int64, keep bool) (bool, error) {
	hash, _, _, _ := w.keysOf(s, 0, l)
	if hash.hash["rate"] == strconv.FormatInt(n, 10) && keep {
		return false, nil
	}
	if _, err := w.limiters[0][l].SetRate(w.rate(n), false, keep).Run(w.ctx); err != nil {
		return false, err
	}
	s.tell("p0 sets the rate of L%d to %d, keeps the permits in use: %v", l, n, keep)
	w.save(s)
	s.sick = s.sick || hash.hash == nil || w.Type == permit.PerClient
	if !keep {
		for i := range s.grants {
			if g := &s.grants[i]; w.book(g.limiter, g.owner) == w.book(l, 0) {
				g.permits = 0
			}
		}
		w.save(s)
	}
	for p := range parties {
		s.lowered |= 1 << w.book(l, p) // what is in use stays so
		if hash.hash == nil {
			w.forgive(s, l, p)
		}
	}
	return true, nil
}

// coolDown has a limiter cool down for d, and re-open within so long from then on, both in ms.
func (w *world) coolDown(s *state, l int, d, reopen time.Duration) (bool, error) {
	_, err := w.limiters[0][l].CoolDown(d*time.Millisecond, reopen*time.Millisecond).Run(w.ctx)
	if errors.Is(err, permit.ErrNotInitialized) {
		return false, nil
	}
	s.blind = s.blind || w.reserves(s)
	s.tell("p0 has L%d cool down for %d ms and re-open within %d", l, d, reopen)
	return true, err
}

// reserves reports whether a process has a reservation.
func (w *world) reserves(s *state) bool {
	return slices.ContainsFunc(s.procs[:], func(p process) bool {
		return slices.ContainsFunc(p.reserved, func(v reservation) bool { return v.seq > 0 })
	})
}

func (w *world) lift(s *state, l int) (bool, error) {
	if w.coolsUntil(s, l) <= s.now {
		return false, nil
	}
	_, err := w.limiters[0][l].LiftCoolDown().Run(w.ctx)
	s.tell("p0 lifts the cool-down of L%d", l)
	return true, err
}

// coolsUntil returns when the cool-down of a limiter ends, 0 if it has none.
func (w *world) coolsUntil(s *state, l int) int64 {
	hash, _, _, _ := w.keysOf(s, 0, l)
	t, _ := strconv.ParseInt(hash.hash["coolDown"], 10, 64)
	return t
}

func (w *world) evict(s *state, name string) (bool, error) {
	if !w.store.mini.Del(name) {
		return false, nil
	}
	s.tell("Redis loses %s", name)
	s.sick = true
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool {
		_, _, set, _ := w.keysOf(s, g.owner, g.limiter)
		return set.name == name
	})
	return true, nil
}

// pass lets time pass: until the next instant that matters, until so long before that, or for a third of an interval.
func (w *world) pass(s *state, d int64) (bool, error) {
	next := w.nextInstant(s)
	to := next - d
	if d == interval/3 {
		to = s.now + d
	}
	if next == 0 && d != interval/3 || to <= s.now || next > 0 && to >= next && d > 0 {
		return false, nil
	}
	s.tell("%v pass", time.Duration(to-s.now)*time.Millisecond)
	s.now = to
	w.store.setTime(to)
	return true, nil
}

// nextInstant returns when something expires next, 0 if nothing does.
func (w *world) nextInstant(s *state) (next int64) {
	consider := func(t int64) {
		if t > s.now && (next == 0 || t < next) {
			next = t
		}
	}
	for _, k := range s.keys {
		for _, m := range k.set {
			consider(m.score + interval)
		}
		for _, e := range entries(k) {
			consider(e.till)
		}
		if k.ttl > 0 {
			consider(s.now + k.ttl)
		}
		for _, f := range instantFields {
			t, _ := strconv.ParseInt(k.hash[f], 10, 64)
			consider(t)
		}
	}
	return next
}

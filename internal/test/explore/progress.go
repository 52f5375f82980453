// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// The bounds of progress, in ms, counted from the end of a cool-down.
const (
	aloneBound = 2 * interval // of one process that goes on while the others do nothing
	turnsBound = 3 * interval // of each of two that share permits and go on in turns, also if each wants all of all limiters
)

// judgeRedis judges what takes further calls, of each process that lives. Only what Redis holds, and what the processes have
// reserved, counts.
func (w *world) judgeRedis(s *state) error {
	turns := int64(turnsBound)
	if w.Type == permit.PerClient {
		turns = aloneBound // nobody has to wait for another client
	}
	queued, alive := false, !s.procs[0].dead && !s.procs[1].dead
	for l := range w.Limiters {
		contended := false
		for p := range java {
			alike := w.Type == permit.Overall && p > 0 && alive && s.procs[p].reserved[l].seq == s.procs[0].reserved[l].seq
			if s.procs[p].dead || alike {
				continue
			}
			if err := w.settles(s, l, p); err != nil {
				return err
			}
			for _, n := range []int64{1, w.Rate} {
				if err := w.alone(s, l, p, n); err != nil {
					return err
				}
			}
			if !w.isQueued(s, l) {
				continue // it takes a step to begin a reservation, after which it is judged
			}
			if err := w.race(s, "alone", aloneBound, []int{l}, p); err != nil {
				return err
			}
			contended = true
		}
		if queued = queued || contended; contended && alive {
			if err := w.race(s, "in turns", turns, []int{l}, 0, 1); err != nil {
				return err
			}
		}
	}
	if !queued || !alive || w.Limiters == 1 {
		return nil
	}
	return w.race(s, "in turns", turns, []int{0, 1}, 0, 1)
}

// isQueued reports whether somebody takes permits of a limiter ahead.
func (w *world) isQueued(s *state, l int) bool {
	for p := range java {
		if _, _, _, ahead := w.keysOf(s, p, l); ahead.text != "" {
			return true
		}
	}
	return false
}

// settles checks that value and the permits in use add up to the rate after one more call.
func (w *world) settles(s *state, l, p int) error {
	if w.coolsUntil(s, l) > s.now && s.sick {
		return nil // what is lost in a cool-down is found after it
	}
	w.load(s)
	c := s.clone()
	if ok, err := w.check(c, p, l); !ok {
		return err
	}
	w.save(c)
	hash, value, set, _ := w.keysOf(c, p, l)
	if used, rate := set.used(), hash.hash["rate"]; number(value.text)+used != number(rate) {
		return fmt.Errorf("after a check by p%d value %q and the %d permits in use of L%d do not add up to %s", p, value.text, used, l, rate)
	}
	return nil
}

// alone checks that a process which asks again and again, and nobody else does, gets its permits in time.
func (w *world) alone(s *state, l, p int, n int64) error {
	w.load(s)
	bound := w.starts(s, l, p) + aloneBound
	if w.empty(s, l, p) {
		bound = s.now
	}
	b, now, said := one(p, s.freeSeq(p)+100, n), s.now, ""
	for range 40 {
		a, err := w.acquire(p, l, b)
		if err != nil || a.unset || a.granted && now <= bound {
			w.slow(&w.slowest.alone, now-s.now)
			return err
		}
		said += fmt.Sprintf(" %v after %v", a, ms(now-s.now))
		if a.granted || now > bound {
			return fmt.Errorf("p%d goes on alone and asks L%d for %d, which takes too long:%s", p, l, n, said)
		}
		if b.Check == permit.Unchecked {
			b.Check = permit.Checked // as a process does with its first rejection in an interval
			continue
		}
		now += max(1, a.wait.Milliseconds())
		w.store.setTime(now)
	}
	return fmt.Errorf("p%d goes on alone, asks L%d for %d and is rejected 40 times:%s", p, l, n, said)
}

// starts returns the instant from which the bounds count: now, or that of the end of a cool-down or of the newest member,
// where it is ahead of the clock. Blocks of a cool-down that was lost with the hash are.
func (w *world) starts(s *state, l, p int) int64 {
	_, _, set, _ := w.keysOf(s, p, l)
	t := max(s.now, w.coolsUntil(s, l))
	if n := len(set.set); n > 0 {
		t = max(t, set.set[n-1].score)
	}
	return t
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// empty reports whether nobody uses the permits that p may use, or waits for them.
func (w *world) empty(s *state, l, p int) bool {
	hash, value, set, ahead := w.keysOf(s, p, l)
	for _, m := range set.set {
		if m.score > s.now-interval {
			return false
		}
	}
	return ahead.text == "" && (value.text == "" || number(value.text)+set.used() == number(hash.hash["rate"])) && w.coolsUntil(s, l) <= s.now
}

// A runner is a process that reserves all permits of some limiters.
type runner struct {
	p        int
	next     int64 // when it goes on
	reserved []reservation
	want     []int64
}

// race checks that processes which reserve all permits of limiters, in turns, get them in time.
func (w *world) race(s *state, how string, within int64, limiters []int, procs ...int) error {
	w.load(s)
	bound := s.now
	var list []*runner
	for _, p := range procs {
		r := &runner{p: p, next: s.now}
		for _, l := range limiters {
			hash, _, _, _ := w.keysOf(s, 0, l)
			v := s.procs[p].reserved[l]
			if v.seq == 0 || len(limiters) > 1 {
				v = reservation{seq: s.freeSeq(p) + 100}
			}
			r.want, r.reserved = append(r.want, number(hash.hash["rate"])), append(r.reserved, v)
			if !w.empty(s, l, p) {
				bound = max(bound, w.starts(s, l, p)+within)
			}
		}
		list = append(list, r)
	}
	var said strings.Builder
	for range 400 {
		i := 0
		for j, r := range list {
			if r.next < list[i].next {
				i = j
			}
		}
		r := list[i]
		w.store.setTime(r.next)
		now := r.next
		if now > bound {
			return fmt.Errorf("p%d goes on %s and reserves %d of %v, which takes longer than %v:%s", r.p, how, r.want, limiters, ms(bound-s.now), said.String())
		}
		did, served, err := w.run(r, limiters)
		if said.Len() < 2000 {
			fmt.Fprintf(&said, "\n    p%d after %v%s", r.p, ms(now-s.now), did)
		}
		if errors.Is(err, permit.ErrNotInitialized) {
			return nil
		} else if err != nil {
			return err
		}
		if served {
			w.slow(&w.slowest.turns, now-s.now)
			if list = append(list[:i], list[i+1:]...); len(list) == 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("p%d goes on %s and reserves all of %v: 400 calls are not enough:%s", procs, how, limiters, said.String())
}

// run has a process go on, as the engine does: it reserves one limiter after another, and moves what it has of others to the
// present. It reports whether the process has got all of its permits.
func (w *world) run(r *runner, limiters []int) (did string, served bool, err error) {
	for i, l := range limiters {
		v := &r.reserved[i]
		a, err := w.reserve(r.p, l, *v, r.want[i])
		if err != nil {
			return did, false, err
		}
		did += "; " + told(a)
		v.held, v.unsure = a.Held, false
		if v.whole = a.Held == r.want[i] && a.Lacking == 0; v.whole {
			continue
		}
		if a.Place == 0 || a.Lacking == 0 { // there is a cool-down, or value was lost, or what it had is another's
			look := one(r.p, 250, r.want[i])
			look.DryRun = len(limiters) > 1
			b, err := w.acquire(r.p, l, look)
			did += fmt.Sprintf(", asks: %v", b)
			if err != nil || b.granted && !look.DryRun {
				return did, true, err
			}
			a.Wait = b.wait
		}
		r.next += min(interval/2, max(1, a.Wait.Milliseconds()))
		return did, false, nil
	}
	return did, true, nil
}

// slow notes that something took so long.
func (w *world) slow(most *int64, took int64) { *most = max(*most, took) }

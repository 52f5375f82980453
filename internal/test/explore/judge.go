// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"strconv"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// judge returns the promise that s breaks, if any. Redis holds s; afterwards it holds anything.
func (w *world) judge(s *state) error {
	for l := range w.Limiters {
		for p := range parties {
			if w.Type == permit.Overall && p > 0 || p == java {
				continue
			}
			if err := w.judgeBook(s, l, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeBook judges what is told by a look at s: the window, the members of grants, and the sum.
func (w *world) judgeBook(s *state, l, p int) error {
	hash, value, set, _ := w.keysOf(s, p, l)
	if hash.hash == nil {
		return nil
	}
	book := w.book(l, p)
	err := w.excess(s, l, p)
	if err == nil {
		err = w.cooling(s, l, p)
	}
	if err == nil {
		s.over &^= 1 << book
	}
	if w.sum(s, l, p) <= number(hash.hash["rate"]) {
		s.lowered &^= 1 << book
	}
	if s.isOver(book) {
		return nil
	}
	if rate, used := number(hash.hash["rate"]), set.used(); err == nil && !s.sick && (value.text != "" || used > 0) && number(value.text)+used != rate {
		return fmt.Errorf("value %q and the %d permits in use of L%d do not add up to %d, though nothing was lost", value.text, used, l, rate)
	}
	return err
}

// excess returns an error if a book holds more than the rate allows, or a grant has no member.
func (w *world) excess(s *state, l, p int) error {
	hash, value, set, _ := w.keysOf(s, p, l)
	rate := number(hash.hash["rate"])
	for _, g := range s.grants {
		if w.book(g.limiter, g.owner) != w.book(l, p) {
			continue
		}
		if m, ok := set.memberOf(id(g.owner, g.seq)); !g.veiled && (!ok || permitsOf(m.raw) < g.permits || m.score != g.at) {
			return fmt.Errorf("the grant of %d to p%d in L%d has no member", g.permits, g.owner, l)
		}
	}
	if sum := w.sum(s, l, p); sum > rate && s.lowered&(1<<w.book(l, p)) == 0 {
		return fmt.Errorf("the window of L%d holds %d permits, and its rate is %d", l, sum, rate)
	}
	if sum, left := w.sum(s, l, p), number(value.text); left > 0 && sum+left > rate && s.lowered&(1<<w.book(l, p)) == 0 {
		return fmt.Errorf("the window of L%d holds %d permits, and %d are left of its rate of %d", l, sum, left, rate)
	}
	if used := set.used(); value.text != "" && number(value.text)+used > rate {
		return fmt.Errorf("value %q and the %d permits in use of L%d are more than %d", value.text, used, l, rate)
	}
	return nil
}

// cooling returns an error if Redisson could take permits in a cool-down, whether or not it does so now, or if permits that were
// given back in one are in use still when it is over. Of a PER_CLIENT limiter that is so for the client that begins it.
func (w *world) cooling(s *state, l, p int) error {
	hash, value, set, _ := w.keysOf(s, p, l)
	if s.sick || p > 0 {
		return nil
	}
	till := w.coolsUntil(s, l)
	if till > s.now && (number(value.text) > 0 || value.text == "") {
		return fmt.Errorf("in a cool-down %q are left of L%d", value.text, l)
	}
	held, live := int64(0), int64(0)
	for _, g := range s.grants {
		if w.book(g.limiter, g.owner) == w.book(l, p) {
			held += g.permits + g.veils
		}
	}
	for _, m := range set.set {
		if till > s.now && m.score < till-interval {
			return fmt.Errorf("%d permits of L%d expire in a cool-down", permitsOf(m.raw), l)
		}
		if m.score > s.now-interval {
			live += permitsOf(m.raw)
		}
	}
	for q := range s.procs {
		v := s.procs[q].reserved[l]
		if m, ok := set.memberOf(id(q, v.seq)); v.seq > 0 && ok {
			held += permitsOf(m.raw)
		}
	}
	if number(hash.hash["reopenUntil"]) <= s.now && till <= s.now && live > held && !s.blind {
		return fmt.Errorf("%d permits of L%d are in use, of which %d have been given back", live, l, live-held)
	}
	return nil
}

// sum returns the permits that are granted of a book.
func (w *world) sum(s *state, l, p int) (sum int64) {
	for _, g := range s.grants {
		if w.book(g.limiter, g.owner) == w.book(l, p) {
			sum += g.permits
		}
	}
	return sum
}

// isOver reports whether a book may hold more than the rate.
func (s *state) isOver(book int) bool { return s.over&(1<<book) != 0 }

// forgive lets a book hold more than the rate that does so by now, until it does no longer. The documents have the reasons:
// Redisson takes an evicted value for a new limiter, and a limiter that was lost and set anew meets the old state of other
// clients.
func (w *world) forgive(s *state, l, p int) {
	if w.excess(s, l, p) != nil {
		s.over |= 1 << w.book(l, p)
	}
}

func number(s string) (n int64) {
	n, _ = strconv.ParseInt(s, 10, 64)
	return n
}

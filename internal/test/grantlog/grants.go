// SPDX-License-Identifier: Apache-2.0

// Package grantlog records what callers of a limiter are granted, and tells how much of it lies within a window of time.
package grantlog

import (
	"fmt"
	"slices"
	"time"
)

// A Grant is permits that were granted at an instant between Begin and End, which are equal if it is known.
type Grant struct {
	Begin, End time.Time
	Permits    int64
	By         string // who granted them, or to whom, where that matters
}

// At returns a grant that was made at t.
func At(t time.Time, permits int64) Grant { return Grant{Begin: t, End: t, Permits: permits} }

// Grants are grants in any order.
type Grants []Grant

// Permits returns the permits of all grants.
func (l Grants) Permits() (n int64) {
	for _, g := range l {
		n += g.Permits
	}
	return n
}

// Only returns the grants that are wanted.
func (l Grants) Only(want func(Grant) bool) Grants {
	return slices.DeleteFunc(slices.Clone(l), func(g Grant) bool { return !want(g) })
}

// After returns the grants that were begun after t.
func (l Grants) After(t time.Time) Grants {
	return l.Only(func(g Grant) bool { return g.Begin.After(t) })
}

// Fullest returns the grants of the window that holds the most permits, in the order of Begin. A grant counts as one within
// the window [t, t + window) if both its instants are. So on a machine that stalls the sum is smaller than what was granted,
// never larger, and may be held to a strict bound.
func (l Grants) Fullest(window time.Duration) Grants {
	return l.FullestBy(window, func(g Grant) (begin, end time.Time) { return g.Begin, g.End })
}

// FullestBy is Fullest with other instants than Begin and End.
func (l Grants) FullestBy(window time.Duration, span func(Grant) (begin, end time.Time)) Grants {
	begin := func(g Grant) time.Time { at, _ := span(g); return at }
	end := func(g Grant) time.Time { _, at := span(g); return at }
	l = slices.SortedStableFunc(slices.Values(l), func(a, b Grant) int { return begin(a).Compare(begin(b)) })
	byEnd := make([]int, len(l))
	for i := range byEnd {
		byEnd[i] = i
	}
	slices.SortFunc(byEnd, func(a, b int) int { return end(l[a]).Compare(end(l[b])) })

	// The window moves from one Begin to the next. Grants enter it by their End, and leave it by their Begin.
	in, ended, left, sum, most, from := make([]bool, len(l)), 0, 0, int64(0), int64(0), time.Time{}
	for _, first := range l {
		at := begin(first)
		for ; ended < len(l) && end(l[byEnd[ended]]).Before(at.Add(window)); ended++ {
			if i := byEnd[ended]; i >= left {
				in[i], sum = true, sum+l[i].Permits
			}
		}
		for ; begin(l[left]).Before(at); left++ {
			if in[left] {
				sum -= l[left].Permits
			}
		}
		if sum > most {
			most, from = sum, at
		}
	}
	return l.Only(func(g Grant) bool { return most > 0 && !begin(g).Before(from) && end(g).Before(from.Add(window)) })
}

// Most returns the permits of the fullest window.
func (l Grants) Most(window time.Duration) int64 { return l.Fullest(window).Permits() }

// Next returns how long after t the next grant ends, if there is one.
func (l Grants) Next(t time.Time) (after time.Duration, ok bool) {
	for _, g := range l {
		if d := g.End.Sub(t); d > 0 && (!ok || d < after) {
			after, ok = d, true
		}
	}
	return after, ok
}

// Gap returns the longest time between from and until in which no grant ends.
func (l Grants) Gap(from, until time.Time) (longest time.Duration) {
	for from.Before(until) {
		wait := until.Sub(from)
		if next, ok := l.Next(from); ok {
			wait = min(wait, next)
		}
		from, longest = from.Add(wait), max(longest, wait)
	}
	return longest
}

// Check returns an error unless each caller can have been granted its permits while it asked: whoever asked only within some
// time has no more than was granted within that time, which is what granted returns.
func (l Grants) Check(granted func(from, until time.Time) int64) error {
	for _, first := range l {
		for _, last := range l {
			within := func(g Grant) bool { return !g.Begin.Before(first.Begin) && !g.End.After(last.End) }
			if n, was := l.Only(within).Permits(), granted(first.Begin, last.End); n > was {
				return fmt.Errorf("callers that asked between %v and %v have %d permits, of which %d were granted then",
					first.Begin.Format(time.StampMicro), last.End.Format(time.StampMicro), n, was)
			}
		}
	}
	return nil
}

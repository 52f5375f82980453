// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Pass is what callers of this process may take while the first waiter wants more, so a large request does not stop
// the small ones behind it. The zero value lets no request pass.
//
// As long as no other process takes part, it is what will be left when the first waiter is served, so passing does
// not delay the first waiter. If others take part, it is limited by the share of this process: a large request saves
// up half of the share, and those behind it use the other half.
type Pass struct {
	permits int64     // that may be taken yet
	askAt   time.Time // when the next of them is free, by the last reply; zero for now
	round   int       // a ticket of an earlier round returns nothing
}

// A Ticket is what a call takes from a Pass. The zero value belongs to a call whose callers do not pass.
type Ticket struct {
	permits int64
	round   int
}

// Passes reports whether the callers of the call pass the first waiter.
func (t *Ticket) Passes() bool { return t.permits > 0 }

// set makes the given number of permits available, in place of those before.
func (p *Pass) set(permits int64) {
	*p = Pass{permits: max(0, permits), round: p.round + 1}
}

// Close makes the Pass let no request through any more.
func (p *Pass) Close() { p.set(0) }

// Rejected lets others pass the first waiter, whose request for the given number of permits the reply rejects.
func (p *Pass) Rejected(s *Share, a *permit.Reply, permits int64) {
	switch {
	case s.Contended() && s.IsLarge(permits):
		if p.permits != math.MaxInt64 {
			p.set(math.MaxInt64)
		}
	case s.Contended():
		p.set(0)
	default:
		p.set(spare(a, permits))
	}
}

// spare returns how many permits are left when a request is granted that the reply rejects, if nobody else takes
// any.
func spare(a *permit.Reply, permits int64) int64 {
	if a.Next != permit.Done || a.Rate.MinGap > 0 || a.Wait > a.Rate.Interval {
		return 0
	}
	return a.Available + a.Cursor.Permits - permits
}

// Opens reports whether a request may pass at now.
func (p *Pass) Opens(now time.Time) bool { return p.permits > 0 && !now.Before(p.askAt) }

// Take adds a request for the given number of permits to t, and reports whether it may pass one for head permits.
func (p *Pass) Take(s *Share, permits, head int64, t *Ticket) bool {
	if permits > p.permits || permits >= head || s.Contended() && s.IsLarge(permits) {
		return false
	}
	t.permits, t.round = t.permits+permits, p.round
	if p.permits != math.MaxInt64 {
		p.permits -= permits
	}
	return true
}

// Return gives the unused part of t back to the pass.
func (p *Pass) Return(t Ticket, granted int64) {
	if t.permits > 0 && t.round == p.round && p.permits != math.MaxInt64 {
		p.permits += max(0, t.permits-granted)
	}
}

// Wait records that the call of t was rejected, and that no request may pass before the given instant.
func (p *Pass) Wait(t Ticket, until time.Time) {
	if t.round == p.round {
		p.askAt = until
	}
}

// Sleep records that no caller has to be woken to pass.
func (p *Pass) Sleep() { p.askAt = time.Time{} }

// WakeAt returns when the next request may pass. It reports false if no timer is needed for that.
func (p *Pass) WakeAt() (at time.Time, ok bool) { return p.askAt, p.permits > 0 && !p.askAt.IsZero() }

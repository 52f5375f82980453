// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Pass is what callers of this process may take while the first in the queue waits for more, so that a large request does
// not stop the small ones behind it. The zero value lets nobody pass.
//
// As long as nobody else takes part, that is what will be left when the first is served, so the first is not served
// later for it. Beside others it is what the share of this process allows: a large request saves up half of the share,
// and those behind it go on with the other half.
type Pass struct {
	permits int64     // that may be taken yet
	askAt   time.Time // when the next of them is free, by the last reply; zero for now
	round   int       // a ticket of an earlier round returns nothing
}

// A Ticket is what a call takes of a Pass. The zero value is that of a call whose callers do not pass.
type Ticket struct {
	permits int64
	round   int
}

// Passes reports whether the callers of the call pass the first in the queue.
func (t *Ticket) Passes() bool { return t.permits > 0 }

// set lets that many permits be taken from now on, and no others.
func (p *Pass) set(permits int64) {
	*p = Pass{permits: max(0, permits), round: p.round + 1}
}

// Close lets nobody pass any more.
func (p *Pass) Close() { p.set(0) }

// Rejected lets others pass the first in the queue, whose request for that many permits the reply rejects.
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

// Opens reports whether anybody may pass at now.
func (p *Pass) Opens(now time.Time) bool { return p.permits > 0 && !now.Before(p.askAt) }

// Take takes a request for that many permits onto t, and reports whether it may pass one for head.
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

// Return puts back, for others to take, what the call of t was not granted.
func (p *Pass) Return(t Ticket, granted int64) {
	if t.permits > 0 && t.round == p.round && p.permits != math.MaxInt64 {
		p.permits += max(0, t.permits-granted)
	}
}

// Wait records that the call of t was rejected, and nobody may pass before the given instant.
func (p *Pass) Wait(t Ticket, until time.Time) {
	if t.round == p.round {
		p.askAt = until
	}
}

// Sleep records that nobody has to be woken up to pass.
func (p *Pass) Sleep() { p.askAt = time.Time{} }

// WakeAt returns when the next one may pass. It reports false if that is not for a timer to tell.
func (p *Pass) WakeAt() (at time.Time, ok bool) { return p.askAt, p.permits > 0 && !p.askAt.IsZero() }

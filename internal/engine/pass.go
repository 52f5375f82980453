package engine

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A passing is what callers of this process may take while the head of the line waits for more, so that a large
// request does not stop the small ones behind it.
//
// As long as nobody else takes part, that is what will be left when the head is served, so the head is not served
// later for it. Beside others it is what the share of this process allows: a large request saves up half of the
// share, and those behind it go on with the other half.
//
// The lock of the shard guards a passing.
type passing struct {
	permits int64     // that may be taken yet
	askAt   time.Time // when the next of them is free, by the last reply; zero for now
	round   int       // a flight that left in an earlier round returns nothing
}

// maxPassed is how many requests in line are looked at for some that may pass.
const maxPassed = 64

// set lets that many permits be taken from now on, and no others.
func (p *passing) set(permits int64) {
	*p = passing{permits: max(0, permits), round: p.round + 1}
}

// passLocked lets others pass the head, which a has refused.
func (l *limiter) passLocked(a *permit.Reply, permits int64) {
	switch p := &l.passing; {
	case l.sharing.others() && l.sharing.isLarge(permits):
		if p.permits != math.MaxInt64 {
			p.set(math.MaxInt64)
		}
	case l.sharing.others():
		p.set(0)
	default:
		p.set(spare(a, permits))
	}
}

// spare returns how many permits are left when a request is granted that the reply refuses, if nobody else takes
// any.
func spare(a *permit.Reply, permits int64) int64 {
	if a.Next != permit.Done || a.Rate.MinGap > 0 || a.Wait > a.Rate.Interval {
		return 0
	}
	return a.Available + a.Cursor.Permits - permits
}

// takePassersLocked returns a flight for requests in line that may pass, or nil if there are none.
func (l *limiter) takePassersLocked() *flight {
	p, head := &l.passing, l.waiters.first
	if p.permits <= 0 || time.Now().Before(p.askAt) {
		return nil
	}
	var f *flight
	r := head.next
	for n := 0; n < maxPassed && head.turn == nil && r != nil && p.permits > 0; n++ {
		if r.turn == nil && r.permits <= p.permits && r.permits < head.permits && !(l.sharing.others() && l.sharing.isLarge(r.permits)) {
			if f == nil {
				f = l.newFlightLocked()
				f.Allowance = l.allowanceLocked(r)
			}
			if !f.appendLocked(r) {
				break
			}
			r.inFlight = true
			f.passPermits, f.round = f.passPermits+r.permits, p.round
			if p.permits != math.MaxInt64 {
				p.permits -= r.permits
			}
		}
		r = r.next
	}
	if f == nil {
		p.askAt = time.Time{} // nobody has to be woken up for it
		return nil
	}
	f.InOrder, f.passing, f.changes = true, true, l.changes
	l.lineInFlight = true
	return f
}

// returnPassLocked puts back, for others to take, what a flight that passed the head was not granted.
func (l *limiter) returnPassLocked(f *flight) {
	if p := &l.passing; f.passPermits > 0 && f.round == p.round && p.permits != math.MaxInt64 {
		p.permits += max(0, f.passPermits-f.taken)
	}
}

// wakeAtLocked returns when the line, or somebody in it that may pass, is due. It reports false if that is not
// for a timer to tell.
func (l *limiter) wakeAtLocked() (at time.Time, ok bool) {
	if l.waiters.n == 0 || l.lineIsHeldLocked() {
		return at, false
	}
	passes := l.passing.permits > 0 && l.waiters.n > 1 && !l.passing.askAt.IsZero()
	if l.gathering == nil && (!passes || l.nextAskAt.Before(l.passing.askAt)) {
		return l.nextAskAt, true
	}
	return l.passing.askAt, passes
}

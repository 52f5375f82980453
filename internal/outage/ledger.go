// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Ledger is what a process knows of one limiter without asking Redis: the last rate, a cool-down, and the permits
// that the process has granted locally. It counts these exactly as the script in Redis does. It is not safe for
// concurrent use.
type Ledger struct {
	rate        permit.Rate   // the last one that Redis reported; zero until then
	coolUntil   time.Time     // no permit is granted before; known to Redis
	coolKnown   time.Time     // since when coolUntil holds
	untoldUntil time.Time     // no permit is granted before; not known to Redis yet
	gapUntil    time.Time     // no permit is granted before, because of the gap
	grants      []grant       // oldest first
	window      time.Duration // how long grants count
	used        int64         // permits in the window
	pending     []Pending
	reconciling chan struct{} // closed when the call that reconciles is done; nil if there is none
}

// A grant covers permits granted from first to last; it counts as granted at last.
type grant struct {
	first, last time.Time
	permits     int64
	staged      bool // it is among the pending grants, or Redis has been told of it
}

// A Pending is a grant of this process that Redis has to be told of, dated at the instant of the grant.
type Pending struct {
	At      time.Time
	Permits int64
	ID      permit.ID
	Replay  bool // a call that charged it may have been executed
}

const (
	// maxGrants bounds the log: grants within this part of an interval share one entry.
	maxGrants = 4096
	// maxPending is the number of pending grants that the log is divided into. Each takes a call, and counts
	// from its newest grant on.
	maxPending = 8
)

// NewLedger returns the ledger of a limiter with rate r, which is zero if the rate is not known.
func NewLedger(r permit.Rate) *Ledger { return &Ledger{rate: r} }

// Learn records the reply to a call that began at the given instant. A wait longer than the interval is a cool-down,
// which outlasts an outage. If a known cool-down is longer than the reply allows, it has been lifted.
func (s *Ledger) Learn(a *permit.Reply, begin time.Time) {
	s.rate = a.Rate
	now := time.Now()
	switch {
	case a.Wait > a.Rate.Interval:
		if at := now.Add(a.Wait); at.After(s.coolUntil) || !begin.Before(s.coolKnown) {
			s.coolUntil, s.coolKnown = at, now
		}
	case begin.Before(s.coolKnown) || len(a.Granted) == 0 || a.Granted[0] < 0:
		// The call may have been decided before the cool-down began, or its reply does not speak of it.
	case a.Wait == 0:
		s.coolUntil = time.Time{}
	case s.coolUntil.After(now.Add(a.Wait)):
		s.coolUntil = now.Add(a.Wait)
	}
}

// NoteCoolDown makes the policies obey a cool-down until Redis has been told of it as well. The zero time ends
// it.
func (s *Ledger) NoteCoolDown(until time.Time) {
	if until.IsZero() {
		s.coolUntil, s.untoldUntil = until, until
	} else if until.After(s.untoldUntil) {
		s.untoldUntil = until
	}
}

// ToldCoolDown records that Redis has been told of a cool-down, so that from now on a reply may say that it is
// over.
func (s *Ledger) ToldCoolDown(until time.Time) {
	s.coolKnown = time.Now()
	if until.After(s.coolUntil) {
		s.coolUntil = until
	}
	if !s.untoldUntil.After(until) {
		s.untoldUntil = time.Time{}
	}
}

// coolsUntil returns the instant before which nothing is granted without Redis.
func (s *Ledger) coolsUntil() time.Time {
	if s.untoldUntil.After(s.coolUntil) {
		return s.untoldUntil
	}
	return s.coolUntil
}

// part returns the permits per interval that belong to this process under p, and the rate that they are a part of.
func (s *Ledger) part(p *Policy) (permits int64, r permit.Rate) {
	if r = s.rate; r.Interval == 0 {
		r = p.Rate
	}
	return r.Permits / int64(p.Nodes), r
}

// When returns the instant at which permits can be granted under p, if Redis has been down since the given instant,
// and the number of permits left now. It returns an error for a request of more than its quota.
func (s *Ledger) When(p *Policy, permits int64, now, since time.Time) (at time.Time, left int64, err error) {
	if p.Kind == FailOpen {
		return s.coolsUntil(), 0, nil
	}
	quota, r := s.part(p)
	if permits > quota {
		return at, 0, fmt.Errorf("%s asked of a local quota of %d: %v among %d", permit.Counted(permits, "permit"), quota, r, p.Nodes)
	}
	s.window = r.Interval
	s.expire(now)
	at = since.Add(r.Interval)
	if left = max(0, quota-s.used); at.After(now) {
		left = 0
	}
	for _, t := range []time.Time{s.coolsUntil(), s.gapUntil} {
		if t.After(at) {
			at = t
		}
	}
	free := quota - s.used
	for i := 0; free < permits; i++ {
		free += s.grants[i].permits
		if back := s.grants[i].last.Add(r.Interval); back.After(at) {
			at = back
		}
	}
	return at, left, nil
}

// Reply returns the reply for requests that p has decided.
func (s *Ledger) Reply(p *Policy, now time.Time) *permit.Reply {
	r := s.rate
	if p.Kind == LocalQuota {
		_, r = s.part(p)
	}
	return &permit.Reply{Rate: r, Now: now}
}

// Take grants permits at now, which When has allowed.
func (s *Ledger) Take(p *Policy, permits int64, now time.Time) {
	if p.Kind == FailOpen {
		return
	}
	_, r := s.part(p)
	s.used += permits
	if r.MinGap > 0 {
		pause := r.Interval
		if gaps := permits * int64(p.Nodes); gaps < int64(r.Interval/r.MinGap) {
			pause = time.Duration(gaps) * r.MinGap
		}
		s.gapUntil = now.Add(pause)
	}
	if n := len(s.grants); n > 0 {
		if last := &s.grants[n-1]; !last.staged && now.Sub(last.first) < r.Interval/maxGrants {
			last.last, last.permits = now, last.permits+permits
			return
		}
	}
	s.grants = append(s.grants, grant{first: now, last: now, permits: permits})
}

// Undo removes permits that were granted at the given instant from the log. Grants that are being reported to Redis
// stay.
func (s *Ledger) Undo(permits int64, at time.Time) {
	for i := len(s.grants) - 1; i >= 0 && !s.grants[i].last.Before(at); i-- {
		if g := &s.grants[i]; !g.staged && g.permits >= permits && !g.first.After(at) {
			g.permits -= permits
			s.used -= permits
			if g.permits == 0 {
				s.grants = slices.Delete(s.grants, i, i+1)
			}
			return
		}
	}
}

// Empty reports whether no grant counts any more, and no cool-down lasts.
func (s *Ledger) Empty(now time.Time) bool {
	s.expire(now)
	return len(s.grants) == 0 && !s.coolsUntil().After(now)
}

// expire forgets what was granted an interval ago or earlier.
func (s *Ledger) expire(now time.Time) {
	n := 0
	for n < len(s.grants) && !now.Before(s.grants[n].last.Add(s.window)) {
		s.used -= s.grants[n].permits
		n++
	}
	if n == len(s.grants) {
		s.grants = nil
	} else if n > 0 {
		s.grants = s.grants[n:]
	}
}

// hasPending reports whether there are grants to report to Redis. It drops grants that are at least an interval old.
func (s *Ledger) hasPending(now time.Time) bool {
	if len(s.grants) == 0 && len(s.pending) == 0 {
		return false
	}
	s.lapse(now)
	n := len(s.grants)
	return len(s.pending) > 0 || n > 0 && !s.grants[n-1].staged
}

// lapse forgets the grants that no longer count. It must not be called while somebody reconciles.
func (s *Ledger) lapse(now time.Time) {
	s.expire(now)
	kept := s.pending[:0]
	for _, d := range s.pending {
		if now.Before(d.At.Add(s.window)) {
			kept = append(kept, d)
		}
	}
	s.pending = kept
}

// startReconciling reports whether the caller is to report the pending grants to Redis; then it has to call
// [Ledger.endReconciling]. If another goroutine is doing so, busy is not nil and is closed when that is over.
func (s *Ledger) startReconciling(now time.Time) (start bool, busy <-chan struct{}) {
	if s.reconciling != nil {
		return false, s.reconciling
	}
	if !s.hasPending(now) {
		return false, nil
	}
	s.reconciling = make(chan struct{})
	return true, nil
}

// endReconciling lets others reconcile.
func (s *Ledger) endReconciling() {
	close(s.reconciling)
	s.reconciling = nil
}

// Busy reports whether somebody is reconciling, or there is something to reconcile.
func (s *Ledger) Busy(now time.Time) bool { return s.reconciling != nil || s.hasPending(now) }

// stage returns all pending grants, including those still in the log, each with an ID from newID. Only the
// caller that reconciles may call it.
func (s *Ledger) stage(now time.Time, newID func() permit.ID) []Pending {
	s.lapse(now)
	var begin time.Time
	for i := range s.grants {
		g := &s.grants[i]
		if g.staged {
			continue
		}
		if begin.IsZero() || g.last.Sub(begin) > s.window/maxPending {
			begin = g.first
			s.pending = append(s.pending, Pending{ID: newID()})
		}
		d := &s.pending[len(s.pending)-1]
		d.At, d.Permits = g.last, d.Permits+g.permits
		g.staged = true
	}
	return s.pending
}

// setPending sets the grants that Redis could not be told of. Only the caller that reconciles may call it.
func (s *Ledger) setPending(left []Pending) { s.pending = left }

// Pending returns how many grants are left pending since the last stage.
func (s *Ledger) Pending() int { return len(s.pending) }

package engine

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Sharing is how the callers of this process that wait leave room for those of others: Java's, which wake
// later than the instant at which a permit falls due, and other processes of this package.
//
// A process takes at that instant what is its share of the rate. Permits beyond it are left alone for a grace
// and taken then if nobody else has: no permit is lost for good. Where nobody else takes part the share is
// everything. Redisson's part is at most half, however many JVMs there are, for they cannot be told apart; the
// processes of this package share the rest equally. A part that is not used goes to those who use theirs.
//
// Who holds permits is read off the newest members, once an interval. Who is refused leaves no member.
// Processes of this package that wait therefore leave tripwires in the set, and Redisson's callers, which
// reclaim them unknowingly, tell of themselves by that; see scripts/acquire.lua.
//
// The bucket's lock guards it.
type sharing struct {
	refused time.Time // when the waiters were last refused
	wire    bool      // they left a tripwire then
	since   time.Time // when the call of that refusal was made
	touched time.Time // when another call of this process, which may have reclaimed the tripwire, last began or ended
	looked  time.Time // at the newest members

	java   time.Time // when Redisson, or somebody who does not wait, was last seen; zero for not lately
	theirs float64   // permits of an interval that are left to Redisson, as it used them at the last look
	kin    []process // others of this package
	ours   float64   // permits that are left to them
	less   float64   // permits of the rate that a cool-down had not given back

	target float64 // permits an interval that are this process' share
	pace   float64 // by which the credit grows: the target, and more while a cool-down gives permits back
	credit float64 // of them, that it has not taken yet; below 0 for what it took early
	paid   time.Time
	full   time.Time   // when the credit became the most that is kept; zero while it is less
	mine   []grantedAt // what this process was granted within the last interval, oldest first
	holds  int64       // the sum of that
	room   int64       // when it became less than the share, by the limiter's clock in ms
	told   int64       // that clock's last instant
	toldAt time.Time   // when it was told
	urgent bool        // the first of the waiters has no time for the grace
}

// A grantedAt is what was granted at one instant of the limiter's clock, in ms.
type grantedAt struct{ at, permits int64 }

// A process is another one of this package.
type process struct {
	tag   int64
	seen  time.Time
	wants float64 // the part of the rate that its first caller waits for, where others have to save it up
}

const (
	// javaGrace covers a tick of Redisson's timer, which is 100 ms at most, the 3 ms that its callers add, and the call.
	javaGrace = 120 * time.Millisecond
	// kinGrace covers that the timers of two processes do not go off at one instant.
	kinGrace = 10 * time.Millisecond
	// timerSlack is how late a waiter's call may be.
	timerSlack = 3 * time.Millisecond
	// surplus makes up for the moments by which calls come late: without it a share would never be whole.
	surplus = 1.05
	// forgetAfter is for how many intervals without a sign others are taken to be there.
	forgetAfter = 3
	// maxKin bounds how many processes are told apart.
	maxKin = 64
)

// others reports whether somebody else takes part.
func (s *sharing) others() bool { return !s.java.IsZero() || len(s.kin) > 0 }

// learnOthersLocked takes in what any call is told, since the line was last refused.
func (l *limiter) learnOthersLocked(f *flight, a *permit.Reply) {
	s, permits := &l.sharing, int64(0)
	s.told, s.toldAt = a.Now.UnixMilli(), time.Now()
	for i := range f.Runs {
		permits += max(0, a.Granted[i]) * f.Runs[i].Permits
	}
	s.note(s.told, permits, a.Rate.Interval)
	if f.InOrder && f.Share.On {
		l.learnSharesLocked(f, a)
	}
}

// shareLocked returns the share of the flight that is about to leave for the line.
func (l *limiter) shareLocked() permit.Share {
	s, now := &l.sharing, time.Now()
	if l.typ != permit.Overall || l.interval <= 0 || s.refused.IsZero() || now.Sub(s.refused) > forgetAfter*l.interval {
		return permit.Share{} // permits are not short
	}
	sh := permit.Share{On: true, Age: -1}
	every := l.interval
	if s.less > 0 {
		every /= 10 // the rate grows
	}
	sh.Survey = now.Sub(s.looked) >= max(every, 50*time.Millisecond)
	if s.others() {
		s.accrue(now, l.interval)
		sh.Grace = s.grace(l.interval)
		r := l.waiters.first
		if spare := s.credit - s.least(r.permits); spare >= 0 {
			sh.May = max(r.permits, int64(s.credit+1e-6))
			// What fell due before there was the credit for it is others', until its grace is over.
			since := time.Duration(spare / s.pace * float64(l.interval))
			if !s.full.IsZero() {
				since += now.Sub(s.full)
			}
			clock := s.clock(now)
			s.expire(clock, l.interval)
			if free := s.target - float64(s.holds); free > 0 {
				sh.May = max(r.permits, min(sh.May, int64(math.Ceil(free))))
				sh.Age = min(since.Milliseconds(), clock-s.room, l.interval.Milliseconds()) + timerSlack.Milliseconds()
			} else {
				sh.May = 0
			}
			if sh.May > 0 && r.permits > 1 && r.refused {
				sh.Wants = int(min(255, math.Ceil(255*float64(r.permits)/float64(max(1, l.rate.Permits)))))
			}
		} else if s.urgent && s.credit > -s.most()/4 {
			sh.May, sh.Age = r.permits, l.interval.Milliseconds()
		}
	}
	s.urgent = false
	return sh
}

// grace is how long a permit is left alone.
func (s *sharing) grace(interval time.Duration) time.Duration {
	for _, p := range s.kin {
		if p.wants > 0 {
			return interval
		}
	}
	if s.java.IsZero() {
		return min(kinGrace, interval/10)
	}
	return min(javaGrace, interval*6/10)
}

// most is the most credit that is kept.
func (s *sharing) most() float64 { return max(1, s.target) }

// least is the credit with which a request for so many permits is asked for.
func (s *sharing) least(permits int64) float64 { return min(float64(permits), s.most()) - 1e-6 }

func (s *sharing) accrue(now time.Time, interval time.Duration) {
	s.credit += s.pace * surplus * float64(now.Sub(s.paid)) / float64(interval)
	s.paid = now
	switch {
	case s.credit < s.most():
		s.full = time.Time{}
	case s.full.IsZero():
		s.full = now
		fallthrough
	default:
		s.credit = s.most()
	}
}

// clock is what the limiter's clock says now, as far as that is known.
func (s *sharing) clock(now time.Time) int64 { return s.told + now.Sub(s.toldAt).Milliseconds() }

// note takes in what the process was granted.
func (s *sharing) note(at, permits int64, interval time.Duration) {
	s.expire(at, interval)
	if permits == 0 {
		return
	}
	s.holds += permits
	if n := len(s.mine); n > 0 && at-s.mine[n-1].at <= interval.Milliseconds()/1024 {
		s.mine[n-1].permits += permits
		return
	}
	s.mine = append(s.mine, grantedAt{at, permits})
}

// expire forgets what was granted an interval ago or longer.
func (s *sharing) expire(clock int64, interval time.Duration) {
	n := 0
	for ; n < len(s.mine) && s.mine[n].at+interval.Milliseconds() <= clock; n++ {
		if float64(s.holds) >= s.target && float64(s.holds-s.mine[n].permits) < s.target {
			s.room = s.mine[n].at + interval.Milliseconds()
		}
		s.holds -= s.mine[n].permits
	}
	s.mine = append(s.mine[:0], s.mine[n:]...)
}

// roomIn is how long it takes until the process holds less than its share.
func (s *sharing) roomIn(clock int64, interval time.Duration) time.Duration {
	holds := s.holds
	for _, g := range s.mine {
		if float64(holds) < s.target {
			return 0
		}
		if holds -= g.permits; float64(holds) < s.target {
			return time.Duration(max(0, g.at+interval.Milliseconds()-clock)) * time.Millisecond
		}
	}
	return 0
}

// meet notes a process that takes part.
func (s *sharing) meet(tag int64, wants float64, now time.Time) {
	for i := range s.kin {
		if s.kin[i].tag == tag {
			s.kin[i].seen, s.kin[i].wants = now, wants
			return
		}
	}
	if len(s.kin) < maxKin {
		s.kin = append(s.kin, process{tag, now, wants})
	}
}

// forget drops those who have not been seen for a while.
func (s *sharing) forget(now time.Time, interval time.Duration) {
	if now.Sub(s.java) > forgetAfter*interval {
		s.java = time.Time{}
	}
	kept := s.kin[:0]
	for _, p := range s.kin {
		if now.Sub(p.seen) <= forgetAfter*interval {
			kept = append(kept, p)
		}
	}
	s.kin = kept
}

// learnSharesLocked takes in what a flight of the line was told.
func (l *limiter) learnSharesLocked(f *flight, a *permit.Reply) {
	s, o, now := &l.sharing, &a.Others, time.Now()
	rate, interval := float64(a.Rate.Permits), a.Rate.Interval
	before := s.others()
	if before && f.Share.Grace > 0 {
		s.accrue(now, interval)
		s.credit -= float64(o.Young)
	}
	if s.wire && !o.WireFound && s.touched.Before(s.since) {
		s.java = now
	}
	s.wire, s.since = o.WireLeft && len(l.flights) == 1, f.begin // another call on its way may reclaim it yet
	for i := range s.kin {
		s.kin[i].wants = 0
	}
	if sum := o.Mine + o.Java + o.Kin; f.Share.Survey && sum > 0 {
		s.looked, f.Share.Survey = now, false
		for _, tag := range o.Tags {
			s.meet(tag, 0, now)
		}
		// Of a large set the newest are a part.
		s.less = float64(o.Blocked)
		scale := max(1, rate-s.less) / float64(sum)
		more := max(1, (rate-s.less)/8)
		s.theirs = leftTo(s.theirs, float64(o.Java)*scale, more)
		s.ours = leftTo(s.ours, float64(o.Kin)*scale, more)
		if o.Java > 0 {
			s.java = now
		}
	}
	for i := 0; i+1 < len(o.Waiting); i += 2 {
		s.meet(o.Waiting[i], float64(o.Waiting[i+1])/255, now)
	}
	s.forget(now, interval)
	f.Share.May = max(0, f.Share.May-o.Young) // should the call go on
	if !s.others() {
		return
	}
	if !before {
		s.credit, s.paid, s.full = 0, now, time.Time{}
	}
	whole := rate
	rate = max(1, rate-s.less)
	reserve := 0.0
	if !s.java.IsZero() {
		reserve = min(rate/2, max(s.theirs, 1, rate/8))
	}
	kin, wants := float64(len(s.kin)), 0.0
	each := (rate - reserve) / (kin + 1)
	for _, p := range s.kin {
		wants = max(wants, p.wants)
	}
	if wants > 0 {
		reserve = max(reserve+each*kin, wants*rate+each*(kin-1))
	} else if kin > 0 {
		reserve += min(each*kin, max(s.ours, 1, rate/8))
	}
	s.target = max(rate-reserve, rate/1000)
	s.pace = s.target * whole / rate
}

// leftTo is what is left to others, who held so many permits of what was left to them before: twice that where
// they had nearly used it up, otherwise a little more than they use.
func leftTo(before, held, more float64) float64 {
	if held >= .8*before {
		return 2*held + more
	}
	return held + more
}

// shareWaitLocked returns how long it takes until the first in line, which was refused, could be served at the soonest,
// and for how long the line sleeps.
func (l *limiter) shareWaitLocked(f *flight, a *permit.Reply) (soon, wait time.Duration) {
	s := &l.sharing
	s.refused = time.Now()
	r := l.waiters.first
	if f.Share.Grace == 0 || a.Next != permit.Done || r == nil {
		return a.Wait, a.Wait
	}
	s.expire(s.clock(s.refused), l.interval)
	lacks := max(0, s.least(r.permits)-s.credit)
	paid := time.Duration(min(lacks/s.pace, 100) * float64(l.interval))
	paid = max(paid, s.roomIn(s.clock(s.refused), l.interval))
	wait = min(a.Wait, max(a.Others.Soon, paid, time.Millisecond))
	if left := time.Until(r.deadline); !r.deadline.IsZero() && left < wait && left >= a.Others.Soon && s.credit > -s.most()/4 {
		wait, s.urgent = max(a.Others.Soon, time.Millisecond), true
	}
	return a.Others.Soon, wait
}

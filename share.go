package ratelimiter

import (
	"fmt"
	"math"
	"time"
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
	looked  time.Time // at the newest members

	java   time.Time // when Redisson, or somebody who does not wait, was last seen; zero for not lately
	theirs float64   // permits of an interval that Redisson held at the last look
	kin    []process // others of this package
	ours   float64   // permits that they held

	target float64 // permits an interval that are this process' share
	credit float64 // of them, that it has not taken yet; below 0 for what it took early
	paid   time.Time
	urgent bool // the first of the waiters has no time for the grace
}

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
	// forgetAfter is for how many intervals without a sign others are taken to be there.
	forgetAfter = 3
	// maxKin bounds how many processes are told apart.
	maxKin = 64
)

// A share is what a call of the waiters may take beside others; see ARGV[10] of acquire.
type share struct {
	on    bool
	grace time.Duration
	may   int64
	tag   int
	want  int // in 255ths of the rate
	look  bool
}

func (s *share) String() string {
	look := 0
	if s.look {
		look = 1
	}
	return fmt.Sprint(s.grace.Milliseconds(), " ", s.may, " ", s.tag, " ", s.want, " ", look)
}

// What a call with a share is told beside its answer.
type found struct {
	soon               time.Duration // until the permits are there, without the grace
	young              int64         // permits taken within their grace
	wire               bool          // the tripwire was there
	mine, theirs, ours int64         // permits among the newest members
	waiting            []int64       // processes whose callers wait: the tag of each and what it wants
	tags               []int64       // those that hold permits
}

// others reports whether somebody else takes part.
func (s *sharing) others() bool { return !s.java.IsZero() || len(s.kin) > 0 }

// share is that of the call which the waiters are about to make.
func (e *engine) share() share {
	s, now := &e.sharing, time.Now()
	if e.typ != Overall || e.interval <= 0 || s.refused.IsZero() || now.Sub(s.refused) > forgetAfter*e.interval {
		return share{} // permits are not short
	}
	sh := share{on: true, tag: e.l.client.tag}
	sh.look = now.Sub(s.looked) >= max(e.interval, 50*time.Millisecond)
	if s.others() {
		s.accrue(now, e.interval)
		sh.grace = s.grace(e.interval)
		r := e.waiters.first
		if s.credit >= s.least(r.permits) {
			sh.may = max(r.permits, int64(s.credit+1e-6))
			if r.permits > 1 && r.answered {
				sh.want = int(min(255, math.Ceil(255*float64(r.permits)/float64(max(1, e.rate.Permits)))))
			}
		} else if s.urgent && s.credit > -s.most()/4 {
			sh.may = r.permits
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
	return min(javaGrace, interval/4)
}

// most is the most credit that is kept.
func (s *sharing) most() float64 { return max(1, s.target) }

// least is the credit with which a request for so many permits is asked for.
func (s *sharing) least(permits int64) float64 { return min(float64(permits), s.most()) - 1e-6 }

func (s *sharing) accrue(now time.Time, interval time.Duration) {
	s.credit = min(s.most(), s.credit+s.target*float64(now.Sub(s.paid))/float64(interval))
	s.paid = now
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

// learn takes in what a call of the waiters was told.
func (e *engine) learn(c *call, a *answer) {
	s, f, now := &e.sharing, &a.found, time.Now()
	rate, interval := float64(a.rate.Permits), a.rate.Interval
	before := s.others()
	if before && c.share.grace > 0 {
		s.accrue(now, interval)
		s.credit -= float64(f.young)
	}
	if s.wire && !f.wire {
		s.java = now
	}
	s.wire = false
	for i := range s.kin {
		s.kin[i].wants = 0
	}
	if sum := f.mine + f.theirs + f.ours; c.share.look && sum > 0 {
		s.looked, c.share.look = now, false
		for _, tag := range f.tags {
			s.meet(tag, 0, now)
		}
		// Of a large set the newest are a part.
		scale := rate / float64(sum)
		s.theirs, s.ours = max(float64(f.theirs)*scale, s.theirs/2), max(float64(f.ours)*scale, s.ours/2)
		if f.theirs > 0 {
			s.java = now
		}
	}
	for i := 0; i+1 < len(f.waiting); i += 2 {
		s.meet(f.waiting[i], float64(f.waiting[i+1])/255, now)
	}
	s.forget(now, interval)
	c.share.may = max(0, c.share.may-f.young) // should the call go on
	if !s.others() {
		return
	}
	if !before {
		s.credit, s.paid = 0, now
	}
	// A part that is used may double, and one that is not begins with an eighth.
	more, reserve := max(1, rate/8), 0.0
	if !s.java.IsZero() {
		reserve = min(rate/2, 2*s.theirs+more)
	}
	kin, wants := float64(len(s.kin)), 0.0
	each := (rate - reserve) / (kin + 1)
	for _, p := range s.kin {
		wants = max(wants, p.wants)
	}
	if wants > 0 {
		reserve = max(reserve+each*kin, wants*rate+each*(kin-1))
	} else if kin > 0 {
		reserve += min(each*kin, 2*s.ours+more)
	}
	s.target = max(rate-reserve, rate/1000)
}

// shareWait is for how long the waiters sleep who were refused, and how long it takes until the first of them could be
// served at the soonest.
func (e *engine) shareWait(c *call, a *answer) (soon, wait time.Duration) {
	s := &e.sharing
	s.refused = time.Now()
	s.wire = c.share.on
	r := e.waiters.first
	if c.share.grace == 0 || a.again != againNot || r == nil {
		return a.wait, a.wait
	}
	lacks := max(0, s.least(r.permits)-s.credit)
	paid := time.Duration(min(lacks/s.target, 100) * float64(e.interval))
	wait = min(a.wait, max(a.found.soon, paid, time.Millisecond))
	if left := time.Until(r.deadline); !r.deadline.IsZero() && left < wait && left >= a.found.soon && s.credit > -s.most()/4 {
		wait, s.urgent = max(a.found.soon, time.Millisecond), true
	}
	return a.found.soon, wait
}

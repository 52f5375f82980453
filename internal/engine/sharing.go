package engine

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A sharing decides how the callers of this process that wait leave room for other processes: for Java, whose
// callers wake later than the instant at which a permit falls due, and for other processes of this package.
//
// At that instant a process takes its share of the rate. It leaves permits beyond the share to others for a
// grace, and then takes those that nobody has taken, so no permit is wasted. If nobody else takes part the
// share is the whole rate. Redisson's part is at most half, however many JVMs there are, because they cannot be
// told apart; the processes of this package share the rest equally. A part that is not used goes to those that
// use theirs.
//
// The newest members show who holds permits; they are read once an interval. A caller that is refused leaves no
// member. Therefore processes of this package that wait leave tripwires in the set. Redisson's callers reclaim
// them unknowingly and so reveal that they take part; see scripts/acquire.lua.
//
// The lock of the shard guards a sharing.
type sharing struct {
	refused time.Time // when the waiters were last refused
	wire    bool      // whether they left a tripwire then
	since   time.Time // when the call began that was refused then
	touched time.Time // when another call of this process, which may have reclaimed the tripwire, last began or ended
	looked  time.Time // when the newest members were last read

	java   time.Time // when Redisson, or a caller that does not wait, was last seen; zero if not lately
	theirs float64   // permits of an interval that are left to Redisson, as it used them at the last look
	kin    []process // other processes of this package
	ours   float64   // permits of an interval that are left to kin
	less   float64   // permits of the rate that a cool-down had not given back

	target float64     // permits per interval that are the share of this process
	pace   float64     // growth of the credit per interval: the target, and more while a cool-down gives permits back
	credit float64     // permits of the share that it has not taken yet; negative if it took some early
	paid   time.Time   // when the credit last grew
	large  float64     // permits of the share that are saved up for large requests; negative if they took some early
	saves  bool        // a large request is the first in line
	full   time.Time   // since when the credit has been at its maximum; zero while it is less
	mine   []grantedAt // grants to this process within the last interval, oldest first
	holds  int64       // the sum of mine
	room   int64       // when holds became less than the share, by the limiter's clock in ms
	told   int64       // the last known instant of that clock
	toldAt time.Time   // when that was
	urgent bool        // the first of the waiters has no time for the grace
}

// A grantedAt is a number of permits granted at one instant of the limiter's clock, in ms.
type grantedAt struct{ at, permits int64 }

// A process is another process of this package.
type process struct {
	tag   int64
	seen  time.Time
	waits time.Time // when its callers were last seen waiting
	wants float64   // the part of the rate that others should save up for its first caller
}

const (
	// javaGrace covers a tick of Redisson's timer, which is 100 ms at most, the 3 ms that its callers add, and
	// the call.
	javaGrace = 120 * time.Millisecond
	// kinGrace covers the difference between the timers of two processes.
	kinGrace = 10 * time.Millisecond
	// timerSlack is how late the call of a waiter may be.
	timerSlack = 3 * time.Millisecond
	// surplus makes up for calls that come late; without it a process would never get its whole share.
	surplus = 1.05
	// forgetAfter is the number of intervals without a sign after which others are assumed to be gone.
	forgetAfter = 3
	// maxKin is the largest number of processes that are told apart.
	maxKin = 64
)

// others reports whether anybody else takes part.
func (s *sharing) others() bool { return !s.java.IsZero() || len(s.kin) > 0 }

// learnOthersLocked takes in what the reply to any call says about others, once the line has been refused.
func (l *limiter) learnOthersLocked(f *flight, a *permit.Reply) {
	s, permits := &l.sharing, int64(0)
	s.told, s.toldAt = a.Now.UnixMilli(), time.Now()
	for i := range f.Runs {
		permits += max(0, a.Granted[i]) * f.Runs[i].Permits
	}
	s.note(s.told, permits, min(a.Rate.Interval, maxInterval))
	if f.InOrder && f.Allowance.On {
		l.learnSharesLocked(f, a)
	}
}

// shareLocked returns the share of the flight that is about to leave for the line, and whose first request is r.
func (l *limiter) allowanceLocked(r *request) permit.Allowance {
	s, now := &l.sharing, time.Now()
	if l.typ != permit.Overall || l.interval <= 0 || s.refused.IsZero() || now.Sub(s.refused) > forgetAfter*l.interval {
		return permit.Allowance{} // permits are not scarce
	}
	sh := permit.Allowance{On: true, Age: -1}
	every := l.interval
	if s.less > 0 {
		every /= 10 // the permits that can be shared grow
	}
	sh.Survey = now.Sub(s.looked) >= max(every, 50*time.Millisecond)
	if s.others() {
		l.accrueLocked(now)
		sh.Grace = s.grace(l.interval)
		have := s.has(r.permits)
		if spare := have - s.least(r.permits); spare >= 0 {
			sh.May = max(r.permits, int64(have+1e-6))
			// Permits that fell due before the credit sufficed belong to others until their grace is over.
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
			if sh.May > 0 && r.permits > 1 && r.refused && !s.isLarge(r.permits) {
				sh.Wants = int(min(255, math.Ceil(255*float64(r.permits)/float64(max(1, l.rate.Permits)))))
			}
		} else if s.urgent && s.credit > -s.most()/4 {
			sh.May, sh.Age = r.permits, l.interval.Milliseconds()
		}
	}
	s.urgent = false
	return sh
}

// grace returns how long a permit is left to others. Processes of this package whose callers do not wait need none.
func (s *sharing) grace(interval time.Duration) time.Duration {
	waits := false
	for _, p := range s.kin {
		if p.wants > 0 {
			return interval
		}
		waits = waits || !p.waits.IsZero()
	}
	switch {
	case !s.java.IsZero():
		return min(javaGrace, interval*6/10)
	case waits:
		return min(kinGrace, interval/10)
	}
	return 0
}

// most returns the largest credit that is kept.
func (s *sharing) most() float64 { return max(1, s.target) }

// least returns the credit that a request for that many permits needs.
func (s *sharing) least(permits int64) float64 { return min(float64(permits), s.most()) - 1e-6 }

// isLarge reports whether a request for that many permits waits for more than half of an interval, in which
// those behind it go on with half of the share.
func (s *sharing) isLarge(permits int64) bool { return permits > 1 && float64(permits) > s.most()/2 }

// has returns the credit for a request for that many permits.
func (s *sharing) has(permits int64) float64 {
	if s.isLarge(permits) {
		return s.large + max(0, s.credit)
	}
	return s.credit
}

// pay takes off the credit what was granted to a request.
func (s *sharing) pay(permits int64) {
	n := float64(permits)
	if s.isLarge(permits) {
		part := min(n, max(0, s.credit))
		s.credit -= part
		s.large -= n - part
		return
	}
	s.credit -= n
}

func (l *limiter) accrueLocked(now time.Time) {
	s, r := &l.sharing, l.waiters.first
	s.saves = r != nil && s.isLarge(r.permits)
	s.accrue(now, l.interval)
}

func (s *sharing) accrue(now time.Time, interval time.Duration) {
	d := s.pace * surplus * float64(now.Sub(s.paid)) / float64(interval)
	s.paid = now
	if s.saves || s.large < 0 {
		most := 0.0
		if s.saves {
			most = s.most()
		}
		part := max(0, min(d/2, most-s.large))
		s.large, d = s.large+part, d-part
	}
	s.credit += d
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

// clock returns what the limiter's clock shows at now, as far as that is known.
func (s *sharing) clock(now time.Time) int64 { return s.told + now.Sub(s.toldAt).Milliseconds() }

// note records a grant to this process.
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

// expire forgets what was granted an interval ago or earlier.
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

// roomIn returns how long it takes until the process holds less than its share.
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

// meet records that a process takes part, and returns it. Beyond maxKin, what it returns is not kept.
func (s *sharing) meet(tag int64, now time.Time) *process {
	for i := range s.kin {
		if s.kin[i].tag == tag {
			s.kin[i].seen = now
			return &s.kin[i]
		}
	}
	if len(s.kin) == maxKin {
		return &process{}
	}
	s.kin = append(s.kin, process{tag: tag, seen: now})
	return &s.kin[len(s.kin)-1]
}

// forget drops those that have not been seen for a while.
func (s *sharing) forget(now time.Time, interval time.Duration) {
	if now.Sub(s.java) > forgetAfter*interval {
		s.java = time.Time{}
	}
	kept := s.kin[:0]
	for _, p := range s.kin {
		if now.Sub(p.waits) > forgetAfter*interval {
			p.waits = time.Time{}
		}
		if now.Sub(p.seen) <= forgetAfter*interval {
			kept = append(kept, p)
		}
	}
	s.kin = kept
}

// learnSharesLocked takes in what the reply to a flight of the line says about others.
func (l *limiter) learnSharesLocked(f *flight, a *permit.Reply) {
	s, o, now := &l.sharing, &a.Others, time.Now()
	rate, interval := float64(a.Rate.Permits), min(a.Rate.Interval, maxInterval)
	before := s.others()
	if before && f.Allowance.Grace > 0 {
		s.accrue(now, interval)
		s.credit -= float64(o.Young)
	}
	if s.wire && !o.WireFound && s.touched.Before(s.since) {
		s.java = now
	}
	s.wire, s.since = o.WireLeft && len(l.flights) == 1, f.begin // another call on its way may still reclaim it
	for i := range s.kin {
		s.kin[i].wants = 0
	}
	if sum := o.Mine + o.Java + o.Kin; f.Allowance.Survey && sum > 0 {
		s.looked, f.Allowance.Survey = now, false
		for _, tag := range o.Tags {
			s.meet(tag, now)
		}
		// In a large set the newest members are a sample.
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
		p := s.meet(o.Waiting[i], now)
		p.waits, p.wants = now, float64(o.Waiting[i+1])/255
	}
	s.forget(now, interval)
	f.Allowance.May = max(0, f.Allowance.May-o.Young) // if the call goes on
	if !s.others() {
		return
	}
	if !before {
		s.credit, s.large, s.paid, s.full = 0, 0, now, time.Time{}
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

// leftTo returns how many permits are left to others, which held so many of the permits left to them before. It
// is twice that if they had nearly used them up, otherwise a little more than they use.
func leftTo(before, held, more float64) float64 {
	if held >= .8*before {
		return 2*held + more
	}
	return held + more
}

// shareWaitLocked returns how soon r, the first of the flight, which was refused, could be served, and how long the
// line sleeps.
func (l *limiter) shareWaitLocked(f *flight, a *permit.Reply, r *request) (soon, wait time.Duration) {
	s := &l.sharing
	s.refused = time.Now()
	if f.Allowance.Grace == 0 || a.Next != permit.Done || r == nil {
		return a.Wait, a.Wait
	}
	s.expire(s.clock(s.refused), l.interval)
	lacks := max(0, s.least(r.permits)-s.has(r.permits))
	pace := s.pace
	if (s.saves || s.large < 0) && l.waiters.n > 1 {
		pace /= 2
	}
	paid := time.Duration(min(lacks/pace, 100) * float64(l.interval))
	if s.isLarge(r.permits) {
		return a.Others.Soon, min(a.Wait, max(paid, time.Millisecond)) // then it takes them ahead
	}
	paid = max(paid, s.roomIn(s.clock(s.refused), l.interval))
	wait = min(a.Wait, max(a.Others.Soon, paid, time.Millisecond))
	if left := time.Until(r.deadline); !r.deadline.IsZero() && left < wait && left >= a.Others.Soon && s.credit > -s.most()/4 {
		wait, s.urgent = max(a.Others.Soon, time.Millisecond), true
	}
	return a.Others.Soon, wait
}

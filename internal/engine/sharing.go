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
// The lock of the shard guards a sharing. It has three parts: who else takes part, which this file keeps; how much of
// its share the process has not taken yet, a [credit]; and what it holds at the moment, its [holdings].
type sharing struct {
	credit
	holdings

	refused   time.Time // when the waiters were last refused
	wireLeft  bool      // whether they left a tripwire then
	wireBegin time.Time // when the call began that was refused then
	touched   time.Time // when another call of this process, which may have reclaimed the tripwire, last began or ended
	surveyed  time.Time // when the newest members were last read

	javaSeen   time.Time // when Redisson, or a caller that does not wait, was last seen; zero if not lately
	leftToJava float64   // permits of an interval that are left to Redisson, as it used them at the last survey
	kin        []process // other processes of this package
	leftToKin  float64   // permits of an interval that are left to kin
	blocked    float64   // permits of the rate that a cool-down had not given back

	clockMS int64     // the last known instant of the limiter's clock
	clockAt time.Time // when that was
	urgent  bool      // the first of the waiters has no time for the grace
}

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
	// forgetAfter is the number of intervals without a sign after which others are assumed to be gone.
	forgetAfter = 3
	// maxKin is the largest number of processes that are told apart.
	maxKin = 64
)

// others reports whether anybody else takes part.
func (s *sharing) others() bool { return !s.javaSeen.IsZero() || len(s.kin) > 0 }

// learnOthersLocked takes in what the reply to any call says about others, once the line has been refused.
func (l *limiter) learnOthersLocked(f *flight, a *permit.Reply) {
	s, permits := &l.sharing, int64(0)
	s.clockMS, s.clockAt = a.Now.UnixMilli(), time.Now()
	for i := range f.Runs {
		permits += max(0, a.Granted[i]) * f.Runs[i].Permits
	}
	s.note(s.clockMS, permits, s.target, min(a.Rate.Interval, maxInterval))
	if f.InOrder && f.Allowance.On {
		l.learnCompetitorsLocked(f, a)
	}
}

// allowanceLocked returns the allowance of the flight that is about to leave for the line, and whose first request is r.
func (l *limiter) allowanceLocked(r *request) permit.Allowance {
	s, now := &l.sharing, time.Now()
	if l.typ != permit.Overall || l.interval <= 0 || s.refused.IsZero() || now.Sub(s.refused) > forgetAfter*l.interval {
		return permit.Allowance{} // permits are not scarce
	}
	a := permit.Allowance{On: true, Age: -1}
	every := l.interval
	if s.blocked > 0 {
		every /= 10 // the permits that can be shared grow
	}
	a.Survey = now.Sub(s.surveyed) >= max(every, 50*time.Millisecond)
	if s.others() {
		l.accrueLocked(now)
		a.Grace = s.grace(l.interval)
		switch spare := s.has(r.permits) - s.least(r.permits); {
		case spare >= 0:
			a.May, a.Age = s.young(r.permits, spare, now, l.interval)
			if a.May > 0 && r.permits > 1 && r.refused && !s.isLarge(r.permits) {
				a.Wants = int(min(255, math.Ceil(255*float64(r.permits)/float64(max(1, l.rate.Permits)))))
			}
		case s.urgent && s.mayBorrow():
			a.May, a.Age = r.permits, l.interval.Milliseconds()
		}
	}
	s.urgent = false
	return a
}

// young returns how many permits within their grace may be taken by a request for that many and those behind it, and how
// many ms ago these fell due at most. Their credit exceeds what the request needs by spare. Permits that fell due before
// the credit sufficed, or before the process held less than its share, belong to others until their grace is over.
func (s *sharing) young(permits int64, spare float64, now time.Time, interval time.Duration) (may, age int64) {
	clock := s.clock(now)
	s.expire(clock, s.target, interval)
	free := s.target - float64(s.held)
	if free <= 0 {
		return 0, -1
	}
	since := time.Duration(spare / s.pace * float64(interval)) // the credit has sufficed
	if !s.fullSince.IsZero() {
		since += now.Sub(s.fullSince)
	}
	may = max(permits, min(int64(s.has(permits)+1e-6), int64(math.Ceil(free))))
	return may, min(since.Milliseconds(), clock-s.roomSince, interval.Milliseconds()) + timerSlack.Milliseconds()
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
	case !s.javaSeen.IsZero():
		return min(javaGrace, interval*6/10)
	case waits:
		return min(kinGrace, interval/10)
	}
	return 0
}

// accrueLocked lets the credit grow. Whether it saves depends on the head of the line.
func (l *limiter) accrueLocked(now time.Time) {
	s, r := &l.sharing, l.waiters.first
	s.saving = r != nil && s.isLarge(r.permits)
	s.accrue(now, l.interval)
}

// clock returns what the limiter's clock shows at now, as far as that is known.
func (s *sharing) clock(now time.Time) int64 { return s.clockMS + now.Sub(s.clockAt).Milliseconds() }

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
	if now.Sub(s.javaSeen) > forgetAfter*interval {
		s.javaSeen = time.Time{}
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

// learnCompetitorsLocked takes in what the reply to a flight of the line says about others.
func (l *limiter) learnCompetitorsLocked(f *flight, a *permit.Reply) {
	s, o, now := &l.sharing, &a.Others, time.Now()
	rate, interval := float64(a.Rate.Permits), min(a.Rate.Interval, maxInterval)
	before := s.others()
	if before && f.Allowance.Grace > 0 {
		s.accrue(now, interval)
		s.balance -= float64(o.Young)
	}
	if s.wireLeft && !o.WireFound && s.touched.Before(s.wireBegin) {
		s.javaSeen = now
	}
	s.wireLeft, s.wireBegin = o.WireLeft && len(l.flights) == 1, f.begin // another call on its way may still reclaim it
	if f.Allowance.Survey && o.Mine+o.Java+o.Kin > 0 {
		f.Allowance.Survey = false
		s.learnSurvey(o, rate, now)
	}
	s.learnWaiting(o, now)
	s.forget(now, interval)
	f.Allowance.May = max(0, f.Allowance.May-o.Young) // if the call goes on
	if !s.others() {
		return
	}
	if !before {
		s.reset(now)
	}
	s.divide(rate)
}

// learnSurvey takes in who holds the newest members, which are a sample in a large set.
func (s *sharing) learnSurvey(o *permit.Others, rate float64, now time.Time) {
	s.surveyed = now
	for _, tag := range o.Tags {
		s.meet(tag, now)
	}
	s.blocked = float64(o.Blocked)
	scale := max(1, rate-s.blocked) / float64(o.Mine+o.Java+o.Kin)
	more := max(1, (rate-s.blocked)/8)
	s.leftToJava = leftTo(s.leftToJava, float64(o.Java)*scale, more)
	s.leftToKin = leftTo(s.leftToKin, float64(o.Kin)*scale, more)
	if o.Java > 0 {
		s.javaSeen = now
	}
}

// learnWaiting takes in which other processes have callers that wait, by their tripwires.
func (s *sharing) learnWaiting(o *permit.Others, now time.Time) {
	for i := range s.kin {
		s.kin[i].wants = 0
	}
	for i := 0; i+1 < len(o.Waiting); i += 2 {
		p := s.meet(o.Waiting[i], now)
		p.waits, p.wants = now, float64(o.Waiting[i+1])/255
	}
}

// divide divides the permits of an interval, less those that a cool-down has not given back, and so sets the share of
// this process. Redisson is left what it uses, but no more than half, and kin what they use, but no more than an equal
// part of the rest for each. When a process of kin wants others to save up for it, it is left that instead.
func (s *sharing) divide(whole float64) {
	rate := max(1, whole-s.blocked)
	reserve := 0.0
	if !s.javaSeen.IsZero() {
		reserve = min(rate/2, max(s.leftToJava, 1, rate/8))
	}
	kin, wants := float64(len(s.kin)), 0.0
	each := (rate - reserve) / (kin + 1)
	for _, p := range s.kin {
		wants = max(wants, p.wants)
	}
	if wants > 0 {
		reserve = max(reserve+each*kin, wants*rate+each*(kin-1))
	} else if kin > 0 {
		reserve += min(each*kin, max(s.leftToKin, 1, rate/8))
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

// lineWaitLocked returns how soon r, the first of the flight, which was refused, could be served, and how long the
// line sleeps.
func (l *limiter) lineWaitLocked(f *flight, a *permit.Reply, r *request) (soon, wait time.Duration) {
	s := &l.sharing
	s.refused = time.Now()
	if f.Allowance.Grace == 0 || a.Next != permit.Done || r == nil {
		return a.Wait, a.Wait
	}
	s.expire(s.clock(s.refused), s.target, l.interval)
	lacks := max(0, s.least(r.permits)-s.has(r.permits))
	pace := s.pace
	if s.savesHalf() && l.waiters.n > 1 {
		pace /= 2
	}
	saved := time.Duration(min(lacks/pace, 100) * float64(l.interval)) // until there is credit for r
	if s.isLarge(r.permits) {
		return a.Others.Soon, min(a.Wait, max(saved, time.Millisecond)) // then it takes them ahead
	}
	saved = max(saved, s.roomIn(s.clock(s.refused), s.target, l.interval))
	wait = min(a.Wait, max(a.Others.Soon, saved, time.Millisecond))
	if left := time.Until(r.deadline); !r.deadline.IsZero() && left < wait && left >= a.Others.Soon && s.mayBorrow() {
		wait, s.urgent = max(a.Others.Soon, time.Millisecond), true
	}
	return a.Others.Soon, wait
}

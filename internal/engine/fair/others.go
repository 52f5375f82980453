// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// An others is who else takes part, by what replies to callers that wait have said. It is part of a [Share].
type others struct {
	surveyed time.Time // when the newest members were last read

	javaSeen    time.Time // when Redisson, or a caller that does not wait, was last seen; zero if not lately
	leftToJava  float64   // permits of an interval that are left to Redisson, as it used them at the last survey
	peers       []peer
	leftToPeers float64 // permits of an interval that are left to the peers
	blocked     float64 // permits of the rate that a cool-down had not given back
}

// A peer is another process of this package.
type peer struct {
	tag   int64
	seen  time.Time
	waits time.Time // when its callers were last seen waiting
	wants float64   // the part of the rate that others should save up for its first caller
}

const (
	// javaGrace covers a tick of Redisson's timer, which is 100 ms at most, the 3 ms that its callers add, and
	// the call.
	javaGrace = 120 * time.Millisecond
	// peersGrace covers the difference between the timers of two processes.
	peersGrace = 10 * time.Millisecond
	// forgetAfter is the number of intervals without a sign after which others are assumed to be gone.
	forgetAfter = 3
	// maxPeers is the largest number of processes that are told apart.
	maxPeers = 64
)

// Contended reports whether anybody else takes part.
func (o *others) Contended() bool { return !o.javaSeen.IsZero() || len(o.peers) > 0 }

// mustSurvey reports whether the next call is to read the newest members.
func (o *others) mustSurvey(now time.Time, interval time.Duration) bool {
	if o.blocked > 0 {
		interval /= 10 // the permits that can be shared grow
	}
	return now.Sub(o.surveyed) >= max(interval, 50*time.Millisecond)
}

// grace returns how long a permit is left to others. Processes of this package whose callers do not wait need none.
func (o *others) grace(interval time.Duration) time.Duration {
	waits := false
	for _, p := range o.peers {
		if p.wants > 0 {
			return interval
		}
		waits = waits || !p.waits.IsZero()
	}
	switch {
	case !o.javaSeen.IsZero():
		return min(javaGrace, interval*6/10)
	case waits:
		return min(peersGrace, interval/10)
	}
	return 0
}

// meet records that a process takes part, and returns it. Beyond maxPeers, what it returns is not kept.
func (o *others) meet(tag int64, now time.Time) *peer {
	for i := range o.peers {
		if o.peers[i].tag == tag {
			o.peers[i].seen = now
			return &o.peers[i]
		}
	}
	if len(o.peers) == maxPeers {
		return &peer{}
	}
	o.peers = append(o.peers, peer{tag: tag, seen: now})
	return &o.peers[len(o.peers)-1]
}

// forget drops those that have not been seen for a while.
func (o *others) forget(now time.Time, interval time.Duration) {
	if now.Sub(o.javaSeen) > forgetAfter*interval {
		o.javaSeen = time.Time{}
	}
	kept := o.peers[:0]
	for _, p := range o.peers {
		if now.Sub(p.waits) > forgetAfter*interval {
			p.waits = time.Time{}
		}
		if now.Sub(p.seen) <= forgetAfter*interval {
			kept = append(kept, p)
		}
	}
	o.peers = kept
}

// learnSurvey takes in who holds the newest members, which are a sample in a large set.
func (o *others) learnSurvey(a *permit.Others, rate float64, now time.Time) {
	o.surveyed = now
	for _, tag := range a.Tags {
		o.meet(tag, now)
	}
	o.blocked = float64(a.Blocked)
	scale := max(1, rate-o.blocked) / float64(a.Mine+a.Java+a.Kin)
	more := max(1, (rate-o.blocked)/8)
	o.leftToJava = leftTo(o.leftToJava, float64(a.Java)*scale, more)
	o.leftToPeers = leftTo(o.leftToPeers, float64(a.Kin)*scale, more)
	if a.Java > 0 {
		o.javaSeen = now
	}
}

// leftTo returns how many permits are left to others, which held so many of the permits left to them before. It
// is twice that if they had nearly used them up, otherwise a little more than they use.
func leftTo(before, held, more float64) float64 {
	if held >= .8*before {
		return 2*held + more
	}
	return held + more
}

// learnWaiting takes in which other processes have callers that wait, by their tripwires.
func (o *others) learnWaiting(a *permit.Others, now time.Time) {
	for i := range o.peers {
		o.peers[i].wants = 0
	}
	for i := 0; i+1 < len(a.Waiting); i += 2 {
		p := o.meet(a.Waiting[i], now)
		p.waits, p.wants = now, float64(a.Waiting[i+1])/255
	}
}

// divide divides the permits of an interval, less those that a cool-down has not given back, and returns the share of this
// process, and at which pace its credit grows. Redisson is left what it uses, but no more than half, and the peers what
// they use, but no more than an equal part of the rest for each. When a peer wants others to save up for it, it is left
// that instead.
func (o *others) divide(whole float64) (target, pace float64) {
	rate := max(1, whole-o.blocked)
	reserve := 0.0
	if !o.javaSeen.IsZero() {
		reserve = min(rate/2, max(o.leftToJava, 1, rate/8))
	}
	peers, wants := float64(len(o.peers)), 0.0
	each := (rate - reserve) / (peers + 1)
	for _, p := range o.peers {
		wants = max(wants, p.wants)
	}
	if wants > 0 {
		reserve = max(reserve+each*peers, wants*rate+each*(peers-1))
	} else if peers > 0 {
		reserve += min(each*peers, max(o.leftToPeers, 1, rate/8))
	}
	target = max(rate-reserve, rate/1000)
	return target, target * whole / rate
}

// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// An others records who else takes part, according to the replies to callers that wait. It is part of a [Share].
type others struct {
	surveyed time.Time // when the newest members were last read

	javaSeen   time.Time // when Redisson, or a caller that does not wait, was last seen; zero if not lately
	peersSeen  time.Time // the same of the peers
	waiting    []peer    // peers whose callers wait
	leftToJava float64   // permits of an interval that are left to Redisson, as it used them at the last survey
	blocked    float64   // permits of the rate that a cool-down had not given back
}

// A peer is another process of this package, and when its callers were last seen waiting.
type peer struct {
	tag  int64
	seen time.Time
}

const (
	// javaGrace covers a tick of Redisson's timer, at most 100 ms, the 3 ms that its callers add, and the call.
	javaGrace = 120 * time.Millisecond
	// peersGrace covers the difference between the timers of two processes.
	peersGrace = 10 * time.Millisecond
	// forgetAfter is how many intervals without a sign it takes until others are assumed to be gone.
	forgetAfter = 3
	// maxPeers is the largest number of processes that are distinguished.
	maxPeers = 64
)

// Contended reports whether another process takes part.
func (o *others) Contended() bool { return !o.javaSeen.IsZero() || !o.peersSeen.IsZero() }

// mustSurvey reports whether the next call is to read the newest members.
func (o *others) mustSurvey(now time.Time, interval time.Duration) bool {
	if o.blocked > 0 {
		interval /= 10 // the permits that can be shared grow
	}
	return now.Sub(o.surveyed) >= max(interval, 50*time.Millisecond)
}

// grace returns how long a permit is left to others. It is 0 for processes of this package that have no waiting
// callers.
func (o *others) grace(interval time.Duration) time.Duration {
	switch {
	case !o.javaSeen.IsZero():
		return min(javaGrace, interval*6/10)
	case len(o.waiting) > 0:
		return min(peersGrace, interval/10)
	}
	return 0
}

// learnSurvey records who holds the newest members, which are a sample of a large set.
func (o *others) learnSurvey(a *permit.Others, rate float64, now time.Time) {
	o.surveyed = now
	o.blocked = float64(a.Blocked)
	held := float64(a.Java) * max(1, rate-o.blocked) / float64(a.Mine+a.Java+a.Kin)
	// What Redisson held before, or twice that if it had nearly used up its part, and a little more.
	if held >= .8*o.leftToJava {
		held *= 2
	}
	o.leftToJava = held + max(1, (rate-o.blocked)/8)
	if a.Java > 0 {
		o.javaSeen = now
	}
	if a.Kin > 0 {
		o.peersSeen = now
	}
}

// learnWaiting records which other processes have waiting callers, according to their tripwires, and drops those that
// have not been seen for a while.
func (o *others) learnWaiting(a *permit.Others, now time.Time, interval time.Duration) {
	gone := func(seen time.Time) bool { return now.Sub(seen) > forgetAfter*interval }
	for _, tag := range a.Waiting {
		o.peersSeen = now
		i := slices.IndexFunc(o.waiting, func(p peer) bool { return p.tag == tag })
		if i >= 0 {
			o.waiting[i].seen = now
		} else if len(o.waiting) < maxPeers {
			o.waiting = append(o.waiting, peer{tag, now})
		}
	}
	o.waiting = slices.DeleteFunc(o.waiting, func(p peer) bool { return gone(p.seen) })
	if gone(o.javaSeen) {
		o.javaSeen = time.Time{}
	}
	if gone(o.peersSeen) {
		o.peersSeen = time.Time{}
	}
}

// divide divides the permits of an interval, less those that a cool-down has not given back, and returns the share of
// this process. Redisson gets what it uses, but at most half; the processes with waiting callers share the rest
// equally.
func (o *others) divide(whole float64) float64 {
	share := max(1, whole-o.blocked)
	if !o.javaSeen.IsZero() {
		share -= min(share/2, max(o.leftToJava, 1, share/8))
	}
	return share / float64(len(o.waiting)+1)
}

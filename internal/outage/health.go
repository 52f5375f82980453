// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Health is what a process knows of one Redis: whether it is down. While it is down, one call at a time
// probes it, about once a second, and the other calls do not reach the network. Methods are safe for concurrent
// use.
//
// An outage begins when a call has failed in all its attempts ([Health.MarkDown]), or when Redis takes too long to
// reply; see [Call]. It ends with a reply that shows that what failed works again; see [Health.Replied].
type Health struct {
	down     atomic.Bool // as err, for who only wants to know whether there is an outage
	mu       sync.Mutex
	err      error         // why it is down; nil while it is up
	since    time.Time     // when that became known
	ended    time.Time     // when the last outage was over
	next     time.Time     // of the next probe
	over     chan struct{} // closed when Redis is up again
	granted  int64         // requests that a policy granted during the outage
	slow     bool          // the outage ends only with a prompt reply
	rejected bool          // the outage ends only with a write
	failure  error         // how the last attempt failed; nil if there has been a reply since
	probing  time.Time     // since when a probe has been on its way; zero if there is none

	unanswered unansweredCalls
}

const (
	// probeEvery is the pause between two probes, to which up to a quarter is added.
	probeEvery = time.Second
	// maxProbe is how long a probe may take before another one is made beside it, in case its connection hangs.
	maxProbe = 10 * time.Second
	// prompt is the time within which the reply to a probe must come to end an outage because of slow replies. It is
	// half of tooSlow, so that a Redis that is just fast enough, or just too slow, does not go up and down.
	prompt = tooSlow / 2
	// MaxProof is how long the proof that an outage is over may take.
	MaxProof = tooSlow
)

// Allow reports whether a call may be made now; then err is nil. Otherwise err is why Redis is down, and the caller
// may try again at next, or as soon as over is closed. While Redis is up, next is zero; if err is nil and next is not
// zero, the call is the probe.
//
// After a nil error the caller has to call End for c when it has given up the call, and may do so in any case.
func (h *Health) Allow(c *Call) (next time.Time, over <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.unanswered.begin(h, c)
		return time.Time{}, nil, nil
	}
	if h.takeProbeLocked(c) {
		return h.next, nil, nil
	}
	return h.next, h.over, h.err
}

// TryProbe is like Allow for a caller that makes no call but the probe. It reports whether c is the probe.
func (h *Health) TryProbe(c *Call) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err != nil && h.takeProbeLocked(c)
}

func (h *Health) takeProbeLocked(c *Call) bool {
	now := time.Now()
	if now.Before(h.next) {
		return false
	}
	h.next = now.Add(ProbePause())
	if !h.probing.IsZero() && now.Sub(h.probing) < maxProbe {
		return false
	}
	h.probing = now
	c.open, c.probe = true, true
	return true
}

// Next is like Allow for a caller that makes no call: it leaves the probe to others.
func (h *Health) Next() (next time.Time, over <-chan struct{}, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next, h.over, h.err != nil
}

// MarkDown records that Redis did not execute a call in any attempt; the last attempt was sent at the given instant.
// With rejected set, Redis refused to write. MarkDown reports whether an outage begins with that. A call that was
// sent before the last outage was over does not begin another one.
func (h *Health) MarkDown(sent time.Time, err error, rejected bool) (began bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && sent.Before(h.ended) {
		return false
	}
	if began = h.err == nil; began {
		h.beginLocked()
	}
	h.err = err
	h.rejected = h.rejected || rejected
	return began
}

// Failed records that an attempt got no reply because of err, or that Redis refused to run it.
func (h *Health) Failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = err
}

// Failure returns why Redis is known to be down, or else how the last attempt failed, or nil if there has been a reply
// since.
func (h *Health) Failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	return h.failure
}

// beginLocked begins an outage, whose cause the caller sets.
func (h *Health) beginLocked() {
	now := time.Now()
	h.down.Store(true)
	h.over = make(chan struct{})
	h.since, h.granted, h.probing = now, 0, time.Time{}
	h.next = now.Add(ProbePause())
	h.slow, h.rejected = false, false
	h.unanswered.clear()
}

// A Reply classifies what the reply to a call shows about Redis.
type Reply int

const (
	NotYet Reply = iota // Redis is there, but refuses to run the call for now
	Ran                 // Redis ran the call, whatever came of it
	Wrote               // Redis would have carried out a write
)

// Replied records the reply to a call that was sent at the given instant, on behalf of c, which may be nil. If that
// ends an outage, it returns how long the outage lasted and how many requests were granted during it.
//
// The end of an outage depends on how it began. If no call got a reply, any reply to a call that Redis ran ends it.
// If Redis took too long to reply, a prompt reply to a call that was sent during the outage ends it; late replies,
// and replies to earlier calls, show nothing. If Redis refused to write, a write ends it: a rejection for lack of
// permits only reads, and a Redis that is out of memory runs a script that frees something first. After any other
// reply the next call is a probe.
func (h *Health) Replied(c *Call, sent time.Time, what Reply) (ended bool, lasted time.Duration, granted int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	took := now.Sub(sent)
	if what != NotYet {
		h.failure = nil
	}
	if h.err == nil {
		if took < tooSlow {
			h.unanswered.broken(c, sent, now)
		}
		return false, 0, 0
	}
	if what == NotYet {
		return false, 0, 0
	}
	if took >= tooSlow {
		h.slow = true
	}
	if h.slow && took >= prompt {
		h.err = fmt.Errorf("a reply from Redis took %v; an outage because of slow replies ends with one within %v",
			took.Round(time.Millisecond), prompt)
		return false, 0, 0
	}
	if h.slow && sent.Before(h.since) {
		return false, 0, 0
	}
	if h.rejected && what != Wrote {
		h.next = now // it may well be over: whoever asks next finds out
		return false, 0, 0
	}
	h.err, h.ended = nil, now
	h.down.Store(false)
	close(h.over)
	return true, now.Sub(h.since), h.granted
}

// End records that c is over, or that nobody waits for its reply any more.
func (h *Health) End(c *Call) {
	if !c.open {
		return
	}
	c.open = false
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.probe {
		c.probe, h.probing = false, time.Time{}
	}
	if c.silent {
		h.unanswered.end(c)
	}
}

// Down reports whether Redis is known to be down. It takes no lock.
func (h *Health) Down() bool { return h.down.Load() }

// Since returns since when Redis is known to be down, and why. The error is nil while Redis is up.
func (h *Health) Since() (since time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err
}

// CountGrant counts a request that a policy granted.
func (h *Health) CountGrant() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.granted++
}

// Idle reports whether no call is waited for and no timer is armed.
func (h *Health) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unanswered.first == nil && h.probing.IsZero() && (h.unanswered.timer == nil || !h.unanswered.timer.Stop())
}

// ProbePause returns the pause before the next probe.
func ProbePause() time.Duration { return probeEvery + rand.N(probeEvery/4) }

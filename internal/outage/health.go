package outage

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A Health is what a process knows of one Redis: whether it is down. While it is down, one call at a time
// probes it, about once a second, and the other calls do not reach the network. Methods are safe for concurrent
// use.
type Health struct {
	mu      sync.Mutex
	err     error         // why it is down; nil while it is up
	since   time.Time     // when that became known
	next    time.Time     // of the next probe
	over    chan struct{} // closed when Redis is up again
	granted int64         // requests that a policy granted during the outage
}

// probeEvery is the pause between two probes, to which up to a quarter is added.
const probeEvery = time.Second

// Allow reports whether a call may be made now, in which case err is nil. Otherwise err is why Redis is down,
// and the caller may try again at next or as soon as over is closed. While Redis is up next is zero; if err is
// nil and next is not zero, the call is the probe.
func (h *Health) Allow() (next time.Time, over <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return time.Time{}, nil, nil
	}
	if h.takeProbeLocked() {
		return h.next, nil, nil
	}
	return h.next, h.over, h.err
}

// TryProbe reports whether the caller should make a probe now.
func (h *Health) TryProbe() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err != nil && h.takeProbeLocked()
}

func (h *Health) takeProbeLocked() bool {
	now := time.Now()
	if now.Before(h.next) {
		return false
	}
	h.next = now.Add(ProbePause())
	return true
}

// Next is like Allow for a caller that makes no call: it leaves the probe to others.
func (h *Health) Next() (next time.Time, over <-chan struct{}, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next, h.over, h.err != nil
}

// MarkDown records that Redis did not execute a call in any attempt. It reports whether an outage begins with
// that.
func (h *Health) MarkDown(err error) (began bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if began = h.err == nil; began {
		h.over = make(chan struct{})
		h.since, h.granted = time.Now(), 0
	}
	h.err = err
	h.next = time.Now().Add(ProbePause())
	return began
}

// MarkUp records that Redis replied. If an outage ends with that, it returns how long it lasted and how many
// requests were granted during it.
func (h *Health) MarkUp() (ended bool, lasted time.Duration, granted int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return false, 0, 0
	}
	h.err = nil
	close(h.over)
	return true, time.Since(h.since), h.granted
}

// Down reports whether Redis is known to be down.
func (h *Health) Down() bool {
	_, err := h.Since()
	return err != nil
}

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

// ProbePause returns the pause before the next probe.
func ProbePause() time.Duration { return probeEvery + rand.N(probeEvery/4) }

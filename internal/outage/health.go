package outage

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A Health is what a process knows of one Redis: whether it is away. While it is, one call at a time probes
// it, about once a second; the others do not reach the network. Its methods are safe for concurrent use.
type Health struct {
	mu      sync.Mutex
	err     error         // why it is away; nil while it is there
	since   time.Time     // when that became known
	next    time.Time     // the next probe
	over    chan struct{} // closed when Redis is back
	granted int64         // requests that a policy granted meanwhile
}

// probeEvery is the pause between two probes, and up to a quarter more.
const probeEvery = time.Second

// Allow reports whether a call may be made now: err is nil. Otherwise err is why Redis is away, and the
// caller may try again at next, or as soon as over is closed. While Redis is there next is zero; when
// err is nil and it is not, the call is the probe.
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

// TryProbe reports whether the caller is to make a probe now.
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

// Next is Allow for who makes no call: it leaves the probe to others.
func (h *Health) Next() (next time.Time, over <-chan struct{}, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next, h.over, h.err != nil
}

// MarkDown notes that Redis did not run a call, however often it was sent, and reports whether that is news.
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

// MarkUp notes that Redis replied, and reports whether that is news: how long the outage lasted, and how many
// requests were granted meanwhile.
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

// Down reports whether Redis is known to be away.
func (h *Health) Down() bool {
	_, err := h.Since()
	return err != nil
}

// Since returns since when Redis is known to be away, and why; err is nil while it is there.
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

// ProbePause returns how long to wait before the next probe.
func ProbePause() time.Duration { return probeEvery + rand.N(probeEvery/4) }

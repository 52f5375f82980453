// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Health is what a process knows of one server: whether it is down. Methods are safe for concurrent use.
//
// Calls do not decide that. An attempt that fails, or a silence of all attempts for half a second, raises a suspicion, and
// then the witness asks the server; see witness.go. The zero value is the Health of a server that is up.
type Health struct {
	down atomic.Bool // as err, for who only wants to know whether there is an outage

	mu      sync.Mutex
	err     error         // why the server is down; nil while it is up
	since   time.Time     // when that became known
	over    chan struct{} // closed when it is up again
	granted int64         // requests that a policy granted during the outage
	failure error         // how the last attempt failed; nil if there has been a reply since
	known   bool          // the server has let this user in

	cohorts   []*cohort     // with attempts that have not ended, and the last one
	open      int           // attempts that have not ended
	answered  time.Time     // when the latest attempt was sent that had a reply in time
	unheard   time.Time     // since when no attempt has had a reply in time; zero if none is expected
	silent    time.Time     // the same, but that the witness may have had one
	server    Server        // of the latest attempt
	suspected time.Time     // since when there is a suspicion: from the attempt that failed, or the beginning of the silence
	acquitted time.Time     // when the latest suspicion ended without an outage
	timer     *time.Timer   // fires when the silence is suspicious, or before that
	armed     bool          // the timer runs
	verdict   chan struct{} // closed when the witness knows whether there is an outage; nil if it is not asking
}

const (
	// suspicious is how long a silence lasts until the witness asks.
	suspicious = 500 * time.Millisecond
	// tooSlow is how long a reply may take. A server seldom lets its own callers wait for longer than that.
	tooSlow = time.Second
)

// Begin records that an attempt at a call to s is sent. End has to follow.
func (h *Health) Begin(s Server, k Traits) Attempt {
	sent := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.cohortLocked(sent, k)
	c.sentLocked(sent)
	h.open++
	h.server = s
	if h.silent.IsZero() {
		h.silent = sent
	}
	if h.unheard.IsZero() {
		h.unheard = sent
	}
	h.armLocked(sent)
	return Attempt{sent, c}
}

// End records that an attempt has ended with err, and returns what that means to its caller. If ctx, which is that of the caller, is
// done, it may have left before there was a reply. An error that is not a *[retry.Error] is a reply. If a server that has never replied
// does not let this user in, that is no outage but a wrong setting, which another attempt would meet again: End makes the Outcome of the
// error Executed. If the attempt was written off, nobody knows whether it was carried out.
func (h *Health) End(ctx context.Context, a Attempt, err error) error {
	failure, failed := err.(*retry.Error)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	a.with.open--
	switch {
	case !failed || failure.Elsewhere || failure.Answered && failure.Outcome == retry.Executed:
		h.failure, h.known = nil, true
		if now := time.Now(); now.Sub(a.sent) < tooSlow {
			h.heardLocked(now)
			h.unheard = h.silent
			if a.sent.After(h.answered) {
				h.answered = a.sent
			}
		}
	case failure.Handshake && !h.known:
		failure.Outcome = retry.Executed
		h.heardLocked(time.Now())
	case failure.Local, ctx.Err() != nil && !failure.Answered:
		// It may not have been sent, or its reply may yet come. The silence goes on.
	case a.with.err != nil && !failure.Answered:
		h.failure = a.with.err
		return &retry.Error{Err: a.with.err, Outcome: retry.Unknown, Final: failure.Final, Ended: true}
	default:
		h.failure = failure.Err
		since := a.sent
		if failure.Outcome == retry.Unknown { // until now it may only have been slow
			since = time.Now()
		}
		h.suspectLocked(since)
	}
	return err
}

// heardLocked begins a new silence, if a reply is expected.
func (h *Health) heardLocked(now time.Time) {
	if h.silent = now; h.open == 0 {
		h.silent = time.Time{}
	}
}

// armLocked starts the timer, unless it runs.
func (h *Health) armLocked(now time.Time) {
	if h.armed || h.open == 0 && (h.err != nil || h.silent.IsZero()) {
		return
	}
	h.armed = true
	d := suspicious
	if h.err == nil && h.verdict == nil {
		if !h.silent.IsZero() {
			d = h.silent.Add(suspicious).Sub(now)
		}
		for _, c := range h.cohorts {
			if c.open > 0 && c.err == nil && !c.Stays {
				d = min(d, c.next.Sub(now))
			}
		}
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(d, h.listen)
	} else {
		h.timer.Reset(d)
	}
}

// listen runs when the timer fires. A process that has stood still itself finds a silence, too; the witness finds out.
func (h *Health) listen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = false
	now := time.Now()
	if h.err == nil && !h.silent.IsZero() && now.Sub(h.silent) >= suspicious {
		h.suspectLocked(h.silent)
	}
	for _, c := range h.overdueLocked(now, now) {
		if !c.next.After(now) {
			h.suspectLocked(c.last)
			c.next = now.Add(tooSlow) // again, if this process is short of connections now
		}
	}
	h.armLocked(now)
}

// suspectLocked has the witness ask the server, unless it is asking or there is an outage. The suspicion is about what has
// happened since an instant.
func (h *Health) suspectLocked(since time.Time) {
	if h.verdict == nil && h.err == nil {
		h.suspected = since
		h.verdict = make(chan struct{})
		go h.witness(h.server, h.acquitted.Add(askedAgain))
	}
}

// Await returns when the witness knows whether there is an outage, if it is asking, or when one of the channels is closed.
// It is for a caller whose attempt has failed.
func (h *Health) Await(one, other <-chan struct{}) {
	h.mu.Lock()
	verdict := h.verdict
	h.mu.Unlock()
	if verdict == nil {
		return
	}
	select {
	case <-verdict:
	case <-one:
	case <-other:
	}
}

// Suspected reports whether the witness is asking, or calls have had no reply for so long that it would ask, or has.
func (h *Health) Suspected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.verdict != nil || !h.unheard.IsZero() && time.Since(h.unheard) >= suspicious
}

// isKnown reports whether the server has let this user in.
func (h *Health) isKnown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known
}

// replied records that the server has let this user in.
func (h *Health) replied() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = true
}

// Down reports whether there is an outage. It takes no lock.
func (h *Health) Down() bool { return h.down.Load() }

// Since returns since when there has been an outage, and why. The error is nil if there is none.
func (h *Health) Since() (since time.Time, err error) {
	if !h.down.Load() {
		return time.Time{}, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err
}

// Outage returns why the server is down, and a channel that is closed when it is up again. The error is nil if it is up.
func (h *Health) Outage() (over <-chan struct{}, err error) {
	if !h.down.Load() {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over, h.err
}

// Failure returns why the server is down, or else how the last attempt failed, or nil if there has been a reply since.
func (h *Health) Failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	return h.failure
}

// CountGrant counts a request that a policy granted.
func (h *Health) CountGrant() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.granted++
}

// Idle reports whether no attempt is in flight and the witness is not asking. It stops the timer, which may run on for a
// while.
func (h *Health) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed && h.open == 0 && h.timer.Stop() {
		h.armed = false
	}
	return h.open == 0 && !h.armed && h.verdict == nil
}

// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Call is a call that somebody waits for, with all its attempts. It must not be copied while it is open.
//
// Redis is too slow if no call has got a reply within tooSlow for as long as tooLong, and two calls in a row have
// waited for tooSlow each. A reply within that time to any call begins a new row. Calls that were sent before do not
// belong to it: their connections hang. So none of these is an outage: one slow reply, connections that hang beside
// others that work, and a Redis that stands still for less than tooLong. A row counts only if something was sent; see
// [doubt].
type Call struct {
	Owner Owner // is told if an outage begins because of this call

	open, probe bool // only the goroutine that makes the call uses them

	// The lock of the Health guards these.
	silent     bool      // it is in the row
	begin      time.Time // since when it has been in it
	prev, next *Call
}

// Probes reports whether c is the probe of an outage. Only the goroutine that makes the call may ask.
func (c *Call) Probes() bool { return c.probe }

// An Owner makes calls. Its methods are called without locks.
type Owner interface {
	// TooSlow tells the owner of the call that has completed the row that Redis is down because of err.
	TooSlow(err error)
	// Traffic returns what the process has in flight to the server of the owner's calls.
	Traffic() permit.Traffic
	// Apart returns a prober for that server, with a connection of its own whose traffic is reported to w, or nil if
	// there is none.
	Apart(ctx context.Context, w permit.Wire) permit.Prober
}

const (
	// tooSlow is how long a call waits for a reply until it counts as not answered. A server seldom lets its own
	// callers wait for longer than that.
	tooSlow = time.Second
	// tooLong is longer than common stalls: a fork, a slow command, a failover, a busy machine.
	tooLong = 1500 * time.Millisecond
	// inARow is how many calls in a row must not have been answered.
	inARow = 2
	// watchEvery is how often a process that waits for replies checks whether it stands still itself.
	watchEvery = 250 * time.Millisecond
)

// unansweredCalls are the calls that have got no reply since the last one in time. The lock of the Health guards it.
type unansweredCalls struct {
	first, last *Call     // still waited for, oldest first
	from        time.Time // when the first of the row began
	unanswered  int       // calls before these that were not answered
	heard       time.Time // when the last reply in time came
	timer       *time.Timer
	fires       time.Time // when the timer is to fire
	doubt       doubt
}

// begin adds c to the row, unless it is there already.
func (s *unansweredCalls) begin(h *Health, c *Call) {
	if c.silent {
		return
	}
	c.open, c.silent, c.begin = true, true, time.Now()
	if s.first == nil && s.unanswered == 0 {
		s.from = c.begin
	}
	c.prev, c.next = s.last, nil
	if s.last != nil {
		s.last.next = c
		s.last = c
		return
	}
	s.first, s.last = c, c
	if s.timer == nil {
		s.timer = time.AfterFunc(watchEvery, h.watch)
	} else {
		s.timer.Reset(watchEvery)
	}
	s.fires = c.begin.Add(watchEvery)
}

func (s *unansweredCalls) remove(c *Call) {
	if c.prev == nil {
		s.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		s.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next, c.silent = nil, nil, false
	if s.first == nil {
		s.timer.Stop()
		s.doubt.end()
	}
}

// broken records a reply in time, at now, to a call sent at the given instant, on behalf of c, which may be nil.
func (s *unansweredCalls) broken(c *Call, sent, now time.Time) {
	s.heard, s.from, s.unanswered = now, now, 0
	s.doubt.end()
	for s.first != nil && !s.first.begin.After(sent) {
		s.remove(s.first)
	}
	if c != nil && !c.silent && !c.probe {
		c.open = false // there is nothing left to end
	}
}

// end removes a call that has ended without a reply in time.
func (s *unansweredCalls) end(c *Call) {
	if time.Since(s.start(c)) >= tooSlow {
		s.unanswered = min(s.unanswered+1, inARow-1)
	}
	s.remove(c)
}

func (s *unansweredCalls) clear() {
	for s.first != nil {
		s.remove(s.first)
	}
	s.unanswered = 0
}

// start returns the instant from which the silence after c counts.
func (s *unansweredCalls) start(c *Call) time.Time {
	if s.heard.After(c.begin) {
		return s.heard
	}
	return c.begin
}

// due returns the call that completes the row if it gets no reply, and when it does.
func (s *unansweredCalls) due() (c *Call, at time.Time) {
	c = s.first
	for n := s.unanswered + 1; n < inARow && c != nil; n++ {
		c = c.next
	}
	if c == nil {
		return nil, at
	}
	at = s.start(c).Add(tooSlow)
	if end := s.from.Add(tooLong); end.After(at) {
		at = end
	}
	return c, at
}

// forgive does not count the time late, for which the process stood still, so that its timer was late: replies that
// came in the meantime have not been read yet.
func (s *unansweredCalls) forgive(late time.Duration) {
	if late <= 0 {
		return
	}
	s.from, s.heard = s.from.Add(late), s.heard.Add(late)
	s.doubt.forgive(late)
	for c := s.first; c != nil; c = c.next {
		c.begin = c.begin.Add(late)
	}
}

// owner returns the owner of the first call in the row, and false if there is no row.
func (h *Health) owner() (Owner, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.unanswered.first; h.err == nil && c != nil {
		return c.Owner, true
	}
	return nil, false
}

// watch runs when the timer fires. It begins an outage if the row is complete and it is known that something was sent.
func (h *Health) watch() {
	// Goroutines that read replies wait for the processor, too. The delay of the timer includes that.
	runtime.Gosched()
	owner, ok := h.owner()
	if !ok {
		return
	}
	var t permit.Traffic
	if owner != nil {
		t = owner.Traffic()
	}
	h.mu.Lock()
	s, now := &h.unanswered, time.Now()
	if h.err != nil || s.first == nil {
		h.mu.Unlock()
		return
	}
	s.forgive(now.Sub(s.fires))
	h.lookLocked(owner, t, now)
	c, at := s.due()
	proved := s.doubt.provedAt()
	if proved.After(at) {
		at = proved
	}
	if c == nil || at.After(now) || proved.IsZero() {
		d := watchEvery
		if c != nil && at.After(now) {
			d = min(d, at.Sub(now))
		}
		s.timer.Reset(d)
		s.fires = now.Add(d)
		h.mu.Unlock()
		return
	}
	owner = c.Owner
	err := fmt.Errorf("no call has had a reply from Redis within %v for %v", tooSlow, now.Sub(s.from).Round(time.Millisecond))
	h.beginLocked()
	h.err, h.slow = err, true
	h.mu.Unlock()
	if owner != nil {
		owner.TooSlow(err)
	}
}

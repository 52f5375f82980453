// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A doubt finds out whether calls without a reply were sent at all. They may still wait in a queue of this process,
// or for a connection while others hold all of them. A silence is an outage only if Redis has not replied for tooSlow
// to something that was sent, which is either
//
//   - a round trip with a connection, if no later one has had a reply; or
//   - a probe on a connection of its own, which does not wait for others, and on which nothing has come back. That includes
//     probes that are refused. Probes are made while a silence lasts, one at a time, beginning soon enough to decide it when
//     it has lasted for tooLong.
//
// The lock of the Health guards it.
type doubt struct {
	traffic permit.Traffic     // what was on its way
	looked  time.Time          // when that was
	asked   time.Time          // when the probe was sent that has had no reply; zero if there is none
	stop    context.CancelFunc // ends the probes; nil if none are made
	settled bool               // nothing is known, so the calls without a reply decide
}

// doubtAfter is how long a silence lasts until the probes begin.
const doubtAfter = tooLong - tooSlow

// look compares the traffic now with that of the last look. A round trip proves nothing if it had no connection then,
// if it has had its reply since, or if it is older than one with a reply. A round trip that has ended without a reply
// counts as unanswered, too, once the next one has been sent.
func (d *doubt) look(t permit.Traffic, now time.Time) {
	unanswered := int64(d.traffic.Sent) - (t.Replied - d.traffic.Replied)
	if d.looked.IsZero() || t.Sent == 0 || unanswered <= 0 || t.Newest > d.traffic.Left {
		d.traffic, d.looked = t, now
	}
}

// provedAt returns when the silence is proved if it lasts, or zero if nothing that was sent is unanswered.
func (d *doubt) provedAt() (at time.Time) {
	if d.settled {
		return d.looked
	}
	if d.traffic.Sent > 0 {
		at = d.looked.Add(tooSlow)
	}
	if probe := d.asked.Add(tooSlow); !d.asked.IsZero() && (at.IsZero() || probe.Before(at)) {
		at = probe
	}
	return at
}

// forgive does not count the time late.
func (d *doubt) forgive(late time.Duration) {
	if !d.looked.IsZero() {
		d.looked = d.looked.Add(late)
	}
	if !d.asked.IsZero() {
		d.asked = d.asked.Add(late)
	}
}

// end ends the doubt, and the probes.
func (d *doubt) end() {
	if d.looked.IsZero() {
		return // as usual: it has not begun
	}
	if d.stop != nil {
		d.stop()
	}
	*d = doubt{}
}

// lookLocked looks at the traffic of the row's owner, and starts the probes when they are due.
func (h *Health) lookLocked(owner Owner, t permit.Traffic, now time.Time) {
	d := &h.unanswered.doubt
	d.settled = owner == nil
	d.look(t, now)
	if owner != nil && d.stop == nil && now.Sub(h.unanswered.from) >= doubtAfter {
		ctx, stop := context.WithCancel(context.Background())
		d.stop = stop
		go h.ask(ctx, owner)
	}
}

// ask makes probes until ctx is done.
func (h *Health) ask(ctx context.Context, owner Owner) {
	heard := func() { h.unlessDone(ctx, func(d *doubt) { d.asked = time.Time{} }) }
	wire := permit.Wire{Heard: heard, Sent: func() (first bool) {
		h.unlessDone(ctx, func(d *doubt) {
			if first = d.asked.IsZero(); first {
				d.asked = time.Now()
			}
		})
		return first
	}}
	var p permit.Prober
	for ctx.Err() == nil {
		if p == nil {
			if p = owner.Apart(ctx, wire); p == nil {
				return
			}
		}
		bounded, cancel := context.WithTimeout(ctx, tooSlow)
		err := p.Probe(bounded)
		silent := bounded.Err() != nil
		cancel()
		if failure, failed := err.(*retry.Error); err == nil || failed && (failure.Answered || failure.Local) {
			heard() // or nothing was sent; a connection that is refused or breaks is no reply
		}
		if err != nil {
			p.Close()
			p = nil
		}
		if !silent {
			_ = retry.Sleep(ctx, watchEvery)
		}
	}
	if p != nil {
		p.Close()
	}
}

// unlessDone calls f with the lock unless ctx, of the probes, is done.
func (h *Health) unlessDone(ctx context.Context, f func(d *doubt)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		f(&h.unanswered.doubt)
	}
}

// ProbeApart makes a probe on a connection of its own. It reports whether there has been a reply, and when the probe was sent.
func ProbeApart(ctx context.Context, owner Owner) (sent time.Time, ok bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), MaxProof)
	defer cancel()
	p := owner.Apart(ctx, permit.Wire{Sent: func() bool { return false }, Heard: func() {}})
	if p == nil {
		return sent, false
	}
	defer p.Close()
	if p.Probe(ctx) != nil { // it connects, and how long that takes shows nothing
		return sent, false
	}
	sent = time.Now()
	return sent, p.Probe(ctx) == nil
}

// Silent reports whether there are calls and none has had a reply in time for as long as it takes until the probes begin.
func (h *Health) Silent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unanswered.first != nil && time.Since(h.unanswered.from) >= doubtAfter
}

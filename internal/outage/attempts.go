// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A connection may vanish without a word, as when a machine or a firewall loses its power. Then no reply comes to what was sent on it,
// and nothing says so until the redis client's own time for a reply is up. But if the witness, which has asked later and on
// a new connection, has its reply, the server is there and the attempt is lost: it is written off, and the call is made again.

// An Attempt is an attempt at a call, which has been sent and has not ended.
type Attempt struct {
	sent time.Time
	with *cohort
}

// Traits tell when an attempt ends without a reply.
type Traits struct {
	// Stays says that it is not written off. A change must not arrive late, after other changes. A replay stays, too: a server, or a hook
	// of the redis client, that is slow for each call must not make all attempts at one fail.
	Stays bool
	// Lasts says that the reply is of use even when nobody waits for it any more, as permits can be given back only by who knows of
	// them. An outage does not end such an attempt.
	Lasts bool
}

// A cohort is the attempts with the same traits that began within cohortLasts. They end together, if they have no reply.
type cohort struct {
	Traits
	began time.Time       // when the first of them was sent
	last  time.Time       // when the last one was
	open  int             // attempts that have not ended
	next  time.Time       // when the witness is asked because of them
	err   error           // why they have ended; to be read when ctx has
	ctx   context.Context // ends when they do
	end   context.CancelFunc
	alone context.Context // the same, for an attempt of a caller whose context has no values
}

const (
	// cohortLasts is within what time the attempts of a cohort begin.
	cohortLasts = 100 * time.Millisecond
	// settles is how long a reply that has come, or is about to come, has until an attempt is written off.
	settles = 50 * time.Millisecond
)

var errWrittenOff = fmt.Errorf("no reply within %v, although Redis has replied to another call, on a new connection", suspicious)

// cohortLocked returns the cohort of an attempt that begins now.
func (h *Health) cohortLocked(now time.Time, k Traits) *cohort {
	for _, c := range slices.Backward(h.cohorts) {
		if now.Sub(c.began) >= cohortLasts {
			break
		} else if c.Traits == k && c.err == nil {
			return c
		}
	}
	h.cohorts = slices.DeleteFunc(h.cohorts, func(c *cohort) bool { return c.open == 0 })
	c := &cohort{Traits: k, began: now}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.alone = endable{c.ctx, context.Background()}
	h.cohorts = append(h.cohorts, c)
	return c
}

// Context returns a context for the attempt: one like ctx that also ends when
// the attempt is written off or an outage begins. The caller has to call end.
func (a Attempt) Context(ctx context.Context) (bounded context.Context, end func()) {
	switch {
	case ctx.Done() != nil:
		bounded, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(a.with.ctx, cancel)
		return bounded, func() { stop(); cancel() }
	case ctx == context.Background():
		return a.with.alone, func() {}
	}
	return endable{a.with.ctx, ctx}, func() {}
}

// An endable is a context with the values of another one, which does not end.
type endable struct {
	context.Context
	values context.Context
}

// Endless returns the context without the end. What is given up is still in use by the redis client.
func (e endable) Endless() context.Context { return e.values }

// Value implements context.Context.
func (e endable) Value(key any) any {
	if v := e.Context.Value(key); v != nil {
		return v
	}
	return e.values.Value(key)
}

// sentLocked records that an attempt is sent.
func (c *cohort) sentLocked(now time.Time) {
	c.open++
	c.last, c.next = now, now.Add(suspicious)
}

// overdueLocked returns the cohorts that are written off, if nothing else holds them up, when the witness has a reply to what it sent
// at an instant.
func (h *Health) overdueLocked(before, now time.Time) (overdue []*cohort) {
	for _, c := range h.cohorts {
		if c.open > 0 && c.err == nil && !c.Stays && !c.last.After(before) && now.Sub(c.last) >= suspicious {
			overdue = append(overdue, c)
		}
	}
	return overdue
}

// overdue reports whether there are any.
func (h *Health) overdue(before time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.overdueLocked(before, time.Now())) > 0
}

// writeOffLocked ends the attempts that were sent before an instant and have had no reply for long enough.
func (h *Health) writeOffLocked(before, now time.Time) {
	for _, c := range h.overdueLocked(before, now) {
		h.endLocked(c, errWrittenOff)
	}
}

func (h *Health) endLocked(c *cohort, err error) {
	if c.err == nil {
		c.err = err
		c.end()
	}
}

package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
)

// settle hands out what was granted, and decides how the call goes on.
func (c *call) settle(a *answer, begin time.Time) {
	e := c.engine
	e.bucket.mu.Lock()
	e.trouble, e.typ = nil, c.typ
	if a.rate.Interval > 0 {
		e.told(a, begin)
	}
	if a.noTTL && !e.l.client.cfg.clientClock { // with the caller's clock every call looks, as Redisson's do
		e.noTTL = begin.Add(trustNoTTL)
	}
	if c.probe {
		// What it found is somebody else's; see engine.reserved.
		for i := range a.granted {
			a.granted[i] = min(a.granted[i], 0)
		}
		a.wait = max(a.wait, time.Millisecond)
	}
	if a.rate.Interval > 0 && !e.sharing.refused.IsZero() {
		e.heard(c, a)
	}
	head := e.waiters.first
	ended := c.grant(a, c.ended[:0])
	ended = c.passOn(a, ended)

	refused := len(c.runs) // the first run that was refused
	for i := range a.granted {
		if a.granted[i] >= 0 && a.granted[i] < c.runs[i].count {
			refused = i
			break
		}
	}
	heir := refused < len(c.runs) && len(c.runs[refused].callers) == 0 // it has left
	permits, left := c.runs[0].permits, c.prune()

	checked := c.check
	c.walked, c.walkedPermits, c.again, c.check = 0, 0, false, false
	switch {
	case a.again == againAudit && !c.audited:
		c.again, c.audit, c.audited = left, true, true
	case !left:
	case a.again == againRest || heir:
		c.again, c.check = true, checked
	case a.again == againWalk:
		c.again = true
		if c.runs[0].permits == permits {
			c.walked, c.walkedPermits = a.walked, a.walkedPermits
		}
	case a.again == againNot && !checked && !c.audited && !begin.Before(e.nextAudit):
		// Refused. Lost permits are looked for now and then: at most once an interval, and in large
		// sets no more than 1 % of the time.
		e.nextAudit = begin.Add(auditEvery(a.rate.Interval))
		e.nextCheck = e.nextAudit
		c.again, c.check = true, true
	default:
		if a.again == againAudit {
			// Lost again meanwhile. No wait is known; an instant keeps the callers from spinning.
			a.wait = max(a.wait, time.Millisecond)
		}
		ended = c.refuse(a, ended)
	}
	if e.waiters.first != head {
		e.headSince = time.Now()
	}
	c.ended = ended
	e.bucket.mu.Unlock()
	wake(ended)
	clear(ended)
}

// grant gives each run's grants to those of its callers who are still there, in their order. What
// nobody takes becomes an orphan.
func (c *call) grant(a *answer, ended []*request) []*request {
	left := a.available
	for i := range c.runs {
		left += max(0, a.granted[i]) * c.runs[i].permits
	}
	c.orphans = c.orphans[:0]
	for i := range c.runs {
		run, n := &c.runs[i], a.granted[i]
		rest := run.callers[:0]
		for _, r := range run.callers {
			switch {
			case r == nil || !r.live():
			case n < 0:
				ended = r.fail(c.engine.l.exceeds(run.permits, a.rate.Permits), ended)
			case n > 0:
				n--
				left -= run.permits
				r.grant(a, left)
				ended = r.end(ended)
			default:
				rest = append(rest, r)
			}
		}
		clear(run.callers[len(rest):])
		run.callers = rest
		if n > 0 {
			left -= n * run.permits
			had := a.granted[i] * run.permits
			c.orphans = append(c.orphans, orphan{id: c.id.run(i), had: had, keeps: had - n*run.permits})
		}
	}
	return ended
}

// passOn gives orphans to those who wait, as long as the first of them can be served.
func (c *call) passOn(a *answer, ended []*request) []*request {
	e := c.engine
	if e.asking && !c.inOrder {
		return ended // another call is about to answer them
	}
	for i := range c.orphans {
		o := &c.orphans[i]
		for r := e.waiters.first; r != nil && r.turn == nil && r.permits <= o.had-o.keeps; r = e.waiters.first {
			o.keeps += r.permits
			r.grant(a, a.available)
			ended = r.end(ended)
		}
	}
	return ended
}

func (r *request) grant(a *answer, left int64) {
	r.granted, r.available, r.answer = true, left, a
}

// prune drops the callers that have their answer, and the runs without any. It answers whether
// somebody is left.
func (c *call) prune() bool {
	kept := c.runs[:0]
	for i := range c.runs {
		rest := c.runs[i].callers[:0]
		for _, r := range c.runs[i].callers {
			if r != nil && r.live() {
				rest = append(rest, r)
			}
		}
		clear(c.runs[i].callers[len(rest):])
		if len(rest) > 0 {
			// Swapped, not copied: two runs must not share a slice.
			j := len(kept)
			kept = kept[:j+1]
			c.runs[i].count, c.runs[i].callers = int64(len(rest)), rest
			kept[j], c.runs[i] = c.runs[i], kept[j]
		} else {
			c.runs[i].callers = rest
		}
	}
	if len(kept) == 0 {
		return false
	}
	c.runs = kept
	return true
}

// refuse ends the tries and lets the waiters wait. Of the tries that were refused behind others it
// asks again for those who want to know how long it takes: an answer says that of one request.
func (c *call) refuse(a *answer, ended []*request) []*request {
	e := c.engine
	for i := range c.runs {
		rest := c.runs[i].callers[:0]
		for _, r := range c.runs[i].callers {
			r.answered, r.degraded = true, false
			switch {
			case r.blocking && !r.overdue:
				r.inCall = false
			case i > 0 && !c.inOrder && r.wantsWait:
				rest = append(rest, r)
			default:
				ended = r.refuse(a, ended)
			}
		}
		clear(c.runs[i].callers[len(rest):])
		c.runs[i].callers = rest
	}
	if !c.inOrder {
		c.again = c.prune()
		return ended
	}
	now := time.Now()
	soon, wait := e.shareWait(c, a)
	e.freeAt = now.Add(soon)
	e.askAt = now.Add(min(wait, e.l.client.cfg.recheck))
	if c.changes != e.changes {
		e.askAt = time.Time{}
	}
	for r := e.waiters.first; r != nil; {
		next := r.next
		if e.tooLate(r) {
			ended = r.refuse(a, ended)
		}
		r = next
	}
	return ended
}

// giveBack returns orphans to Redis. When that fails they are back after one interval.
func (c *call) giveBack() {
	given := false
	for _, o := range c.orphans {
		if o.had > o.keeps {
			given = true
			c.engine.l.giveBack(context.WithoutCancel(c.ctx), c.typ, o)
		}
	}
	c.orphans = c.orphans[:0]
	if given {
		c.engine.l.changed()
	}
}

// giveBack is done also when the Client is closed: nothing else returns what its callers left.
func (l *RateLimiter) giveBack(ctx context.Context, typ RateType, o orphan) {
	cmd, err := l.giveBackCommand(typ, o)
	for tries := (redisscript.Attempts{Begin: time.Now()}); err == nil; tries.Pause(nil, nil) {
		_, failed := l.client.sendOnce(ctx, giveBackScript, cmd)
		if failed == nil {
			return
		}
		if _, again := tries.Failed(failed); !again {
			return
		}
	}
}

// runAudit looks for permits that are lost or too many.
func (c *call) runAudit() {
	begin := time.Now()
	_ = c.engine.l.audit(context.WithoutCancel(c.ctx), c.typ, c.lowered) // the next answer tells
	e := c.engine
	e.bucket.mu.Lock()
	e.nextAudit = begin.Add(max(auditEvery(e.interval), 100*time.Since(begin)))
	e.nextCheck = e.nextAudit
	e.bucket.mu.Unlock()
}

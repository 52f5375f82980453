package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A call is one script call on its way, and what follows from its answer: the rest of what one call
// does not do, the search for lost permits, and the return of what nobody waits for any more. It
// belongs to the goroutine that runs it; the callers in its runs are guarded by the bucket's lock.
type call struct {
	ask
	engine  *engine
	ctx     context.Context // of the first request, without its end
	begin   time.Time
	changes int  // the engine's, when the call was made
	again   bool // the call goes on with those who are left
	audit   bool // lost permits have to be looked for before
	audited bool
	ended   []*request
	orphans []orphan
}

// An orphan is a grant, or part of one, whose callers have left.
type orphan struct {
	id    requestID
	had   int64
	keeps int64
}

// errAbandoned: nobody waits for the answer any more.
var errAbandoned = errors.New("abandoned")

func (c *call) reset() {
	*c = call{engine: c.engine, ask: ask{runs: c.runs[:0]}, ended: c.ended[:0], orphans: c.orphans[:0]}
}

// append takes r into the last run, or into a new one; false when the call is full.
func (c *call) append(r *request) bool {
	i := len(c.runs) - 1
	if i < 0 || c.runs[i].permits != r.permits {
		i++
	}
	return c.put(i, r)
}

// takeTries takes as many of q as fit. Nobody can tell in which order they came, so equal ones share
// a run.
func (c *call) takeTries(q *queue) {
	begin := len(c.runs)
	for r := q.first; r != nil; r = q.first {
		i := begin
		for i < len(c.runs) && c.runs[i].permits != r.permits {
			i++
		}
		if !c.put(i, r) {
			return
		}
		q.remove(r)
		r.inCall = true
	}
}

func (c *call) put(i int, r *request) bool {
	if i == maxRuns {
		return false
	}
	if c.size() == maxBatch {
		return false
	}
	if i == len(c.runs) {
		// What the slot held before is used again.
		if i < cap(c.runs) {
			c.runs = c.runs[:i+1]
		} else {
			c.runs = append(c.runs, run{})
		}
		c.runs[i] = run{permits: r.permits, callers: c.runs[i].callers[:0]}
	}
	if c.ctx == nil {
		c.ctx = context.WithoutCancel(r.ctx)
	}
	c.runs[i].callers = append(c.runs[i].callers, r)
	c.runs[i].count++
	return true
}

func (c *call) size() (n int64) {
	for i := range c.runs {
		n += c.runs[i].count
	}
	return n
}

// run carries the call, and then whatever has gathered meanwhile.
func (c *call) run() {
	e := c.engine
	for c != nil {
		for c.step() {
		}
		e.bucket.mu.Lock()
		c = e.finished(c)
		e.bucket.mu.Unlock()
	}
}

// runAlone carries the call of one caller in that caller's goroutine, as far as one step goes.
func (c *call) runAlone() {
	e := c.engine
	if !c.step() {
		e.bucket.mu.Lock()
		c = e.finished(c)
		e.bucket.mu.Unlock()
	}
	if c != nil {
		go c.run()
	}
}

// step asks once, and answers whether the call goes on: until everybody in it has an answer or waits
// again.
func (c *call) step() (more bool) {
	if c.audit {
		c.audit = false
		c.runAudit()
		if !c.again {
			return false
		}
	}
	c.id, c.replay = newRequestID(), false
	begin := time.Now()
	a, err := c.send()
	if err != nil {
		c.fail(err)
		return false
	}
	c.settle(&a, begin)
	c.giveBack()
	return c.again || c.audit
}

// send sends the call until Redis has answered it. While Redis is away those who do not wait are told
// so; errAbandoned when nobody is left.
func (c *call) send() (answer, error) {
	var (
		l      = c.engine.l
		outage = l.outage()
		begin  = time.Now()
		flips  = 0
	)
	for attempt := 1; ; {
		if l.client.isClosed() {
			return answer{}, ErrClosed
		}
		if next, over, err := outage.enter(); err != nil {
			if !c.endure(err, begin) {
				return answer{}, errAbandoned
			}
			sleep(time.Until(next), over, l.client.closed)
			continue
		}
		probe := outage.known()
		cmd, err := l.acquireCommand(&c.ask)
		if err != nil {
			return answer{}, err
		}
		raw, err := l.client.sendOnce(c.ctx, acquireScript, cmd)
		if err == nil {
			outage.there()
			a, err := l.readAcquire(&c.ask, raw)
			var other *otherTypeError
			if !errors.As(err, &other) {
				return a, err
			}
			if flips == maxFlips {
				return answer{}, l.flipping("acquire")
			}
			flips++
			c.typ = other.typ
			l.learn(other.typ)
			continue
		}
		what := classify(err)
		if what == executed {
			var re redis.Error
			if errors.As(err, &re) {
				outage.there()
			}
			return answer{}, l.failed("acquire", what, err)
		}
		c.replay = c.replay || what == unknown
		c.trouble(err)
		if attempt < maxAttempts && !probe && time.Since(begin) <= maxSending {
			sleep(backoff(attempt), nil, l.client.closed)
			attempt++
			continue
		}
		failed := l.failed("acquire", what, err)
		full := errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
		if !full {
			outage.away(failed)
		}
		if !c.endure(failed, begin) {
			return answer{}, errAbandoned
		}
		if full { // this process' fault, not Redis': no reason to keep others from asking
			sleep(probePause(), nil, l.client.closed)
		}
	}
}

// sleep sleeps for d unless one of the channels is closed first.
func sleep(d time.Duration, one, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-one:
	case <-other:
	}
}

func (c *call) trouble(err error) {
	c.engine.bucket.mu.Lock()
	c.engine.trouble = err
	c.engine.bucket.mu.Unlock()
}

// endure tells those who do not wait that Redis is away, and after the outage limit everybody. It
// answers whether somebody in the call waits on.
func (c *call) endure(err error, since time.Time) (waits bool) {
	e := c.engine
	e.bucket.mu.Lock()
	patient := time.Since(since) < e.l.client.cfg.outageLimit
	ended := c.ended[:0]
	end := func(r *request) {
		r.err = err
		ended = r.end(ended)
	}
	for i := range c.runs {
		for j, r := range c.runs[i].callers {
			switch {
			case r == nil || !r.live():
			case r.blocking && patient:
				waits = true
			default:
				end(r)
				c.runs[i].callers[j] = nil
			}
		}
	}
	for e.tries.n > 0 {
		end(e.tries.first)
	}
	for !patient && e.waiters.n > 0 && !e.waiters.first.inCall {
		end(e.waiters.first)
	}
	e.bucket.mu.Unlock()
	wake(ended)
	return waits
}

// fail ends everybody in the call with err.
func (c *call) fail(err error) {
	e := c.engine
	e.bucket.mu.Lock()
	ended := c.ended[:0]
	for i := range c.runs {
		for _, r := range c.runs[i].callers {
			if r != nil && r.live() {
				r.err = err
				ended = r.end(ended)
			}
		}
		c.runs[i].callers = c.runs[i].callers[:0]
	}
	if c.inOrder {
		e.newHead()
	}
	e.bucket.mu.Unlock()
	wake(ended)
}

// settle hands out what was granted, and decides how the call goes on.
func (c *call) settle(a *answer, begin time.Time) {
	e := c.engine
	e.bucket.mu.Lock()
	e.trouble, e.typ = nil, c.typ
	if a.rate.Interval > 0 {
		e.interval = a.rate.Interval
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

	c.walked, c.walkedPermits, c.again = 0, 0, false
	switch {
	case a.again == againAudit && !c.audited:
		c.again, c.audit, c.audited, c.check = left, true, true, false
	case !left:
	case a.again == againRest || heir:
		c.again = true
	case a.again == againWalk:
		c.again = true
		if c.runs[0].permits == permits {
			c.walked, c.walkedPermits = a.walked, a.walkedPermits
		}
	case a.again == againNot && !c.check && !c.audited && !begin.Before(e.nextAudit):
		// Refused. Lost permits are looked for now and then: at most once an interval, and in large
		// sets no more than 1 % of the time.
		e.nextAudit = begin.Add(auditEvery(a.rate.Interval))
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
				r.err = c.engine.l.exceeds(run.permits, a.rate.Permits)
				ended = r.end(ended)
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
		for r := e.waiters.first; r != nil && r.permits <= o.had-o.keeps; r = e.waiters.first {
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
			if r.live() {
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
			r.answered = true
			switch {
			case r.blocking && !r.overdue:
				r.inCall = false
			case i > 0 && !c.inOrder && r.wantsWait:
				rest = append(rest, r)
			default:
				r.available, r.wait, r.answer = a.available, a.wait, a
				ended = r.end(ended)
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
	e.freeAt = now.Add(a.wait)
	e.askAt = now.Add(min(a.wait, e.l.client.cfg.recheck))
	if c.changes != e.changes {
		e.askAt = time.Time{}
	}
	for r := e.waiters.first; r != nil; {
		next := r.next
		if e.tooLate(r) {
			r.available, r.wait, r.answer = a.available, a.wait, a
			ended = r.end(ended)
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
	for attempt := 1; err == nil; attempt++ {
		_, failed := l.client.sendOnce(ctx, giveBackScript, cmd)
		if failed == nil || classify(failed) == executed || attempt == maxAttempts {
			return
		}
		sleep(backoff(attempt), nil, nil)
	}
}

// runAudit looks for lost permits.
func (c *call) runAudit() {
	begin := time.Now()
	_, _ = c.engine.l.audit(context.WithoutCancel(c.ctx), c.typ) // the next answer tells
	e := c.engine
	e.bucket.mu.Lock()
	e.nextAudit = begin.Add(max(auditEvery(e.interval), 100*time.Since(begin)))
	e.bucket.mu.Unlock()
}

func (l *RateLimiter) exceeds(permits, rate int64) error {
	return fmt.Errorf("%w: %d permits asked of %q, whose rate is %d", ErrPermitsExceedRate, permits, l.name, rate)
}

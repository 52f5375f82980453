package ratelimiter

import (
	"time"
)

// An engine carries the acquires of one limiter in this process to Redis.
//
// Requests that must not wait leave at once, or together with the next call when enough calls are in
// flight. Requests that may wait stand in a queue, first come, first served: a request that does not
// fit lets nobody pass it. The queue is asked for in one call at a time, when the first in it is due,
// and the call asks for as many of it as fit.
//
// It is guarded by its bucket's lock. A goroutine exists while a call is in flight, and a timer while
// somebody waits.
type engine struct {
	l      *RateLimiter
	bucket *bucket
	next   *engine // in the bucket

	tries   queue
	waiters queue
	trying  int      // calls of tries in flight
	asking  bool     // a call of waiters is in flight
	held    *request // has its turn: nobody of the waiters asks
	calls   []*call  // in flight

	reserver *reservations // gathers permits: nobody of the waiters asks

	askAt     time.Time // when the waiters are due; zero for now
	freeAt    time.Time // when the first of them can be served at the soonest, as Redis said
	headSince time.Time // when the first of them became it
	timer     *time.Timer
	changes   int   // made by this process: what was answered before is no longer so
	trouble   error // of the last attempt, nil when it was answered

	typ       RateType      // that of the last answer
	interval  time.Duration // of the last answer
	rate      Rate          // of the last answer to a call
	nextAudit time.Time     // for a refusal
	nextCheck time.Time     // for a call that may be granted
	suspect   bool          // the next call checks: the rate is another
	unchecked bool          // there have been calls since the last check that did not
	lowered   bool          // and it is a lower one
	noTTL     time.Time     // until when the hash is taken to have no TTL
	spare     *call

	sharing sharing

	memory     *memory // for the time without Redis; nil as long as all policies are closed
	shareTimer *time.Timer
	shareDue   time.Time // when it serves
}

// maxTrying is how many calls of tries are in flight at most. With one, a caller that comes alone
// while a call is on its way waits for that; with more, gathering suffers. A call that takes longer
// than slowCall, for a connection that hangs, does not hold the others up: then up to maxSlow.
const (
	maxTrying = 2
	maxSlow   = 16
	slowCall  = 100 * time.Millisecond
)

// trustNoTTL is how long the hash is taken to have no TTL after it had none. Who gives it one gives it
// to the other keys too; within this time a key that is made anew could miss it.
const trustNoTTL = time.Second

func (e *engine) mayTry() bool {
	if e.trying < maxTrying {
		return true
	}
	// The clock is not looked at for everyone of a crowd: that would be a tenth of what an acquire costs.
	return e.trying < maxSlow && (e.tries.n < 8 || e.tries.n%64 == 0) && time.Since(e.calls[0].begin) > slowCall
}

// reset makes an idle engine one that has served nobody, with nothing armed.
func (e *engine) reset() {
	for _, t := range []*time.Timer{e.timer, e.shareTimer} {
		if t != nil {
			t.Stop()
		}
	}
	*e = engine{bucket: e.bucket, timer: e.timer, shareTimer: e.shareTimer, calls: e.calls, spare: e.spare}
}

func (e *engine) idle() bool {
	return len(e.calls) == 0 && e.tries.n == 0 && e.waiters.n == 0 && e.held == nil && e.reserver == nil
}

// add takes a request in, or refuses it at once and answers true. kick or alone goes on with it.
func (e *engine) add(r *request) (refused bool) {
	if !r.blocking {
		e.tries.push(r)
	} else {
		if e.waiters.n > 0 && !r.degraded && e.tooLate(r) {
			return true
		}
		e.waiters.push(r)
		if e.waiters.n == 1 {
			e.newHead()
		}
	}
	return false
}

// tooLate says that r's time is up before the first of the waiters can be served, and that it does
// not want to wait for that.
func (e *engine) tooLate(r *request) bool {
	return e.l.client.cfg.refuseEarly && !r.deadline.IsZero() && r.deadline.Before(e.freeAt)
}

// newHead: the first of the waiters is another one, of whose wait nothing is known.
func (e *engine) newHead() {
	e.headSince, e.askAt, e.freeAt = time.Now(), time.Time{}, time.Time{}
}

// left: a request's caller waits no longer.
func (e *engine) left(r *request) {
	head := e.waiters.first == r
	r.unqueue()
	if head && e.waiters.n > 0 {
		if e.waiters.first.permits == r.permits {
			e.headSince = time.Now() // its wait is the same
		} else {
			e.newHead()
		}
	}
	e.kick()
	e.rest()
}

// yield: the first waiter has been passed over for a whole interval, in which every permit came back
// once. Until it is served, tries of this process stand behind the waiters: so a large request does
// not starve behind small ones.
func (e *engine) yield() bool {
	r := e.waiters.first
	return r != nil && r.answered && e.trouble == nil && e.interval > 0 && time.Since(e.headSince) > e.interval
}

// kick starts the calls that can be made now.
func (e *engine) kick() {
	if e.bucket.closed {
		return
	}
	if c := e.nextAsking(); c != nil {
		e.start(c)
	}
	if c := e.nextTrying(); c != nil {
		e.start(c)
	}
}

func (e *engine) start(c *call) {
	e.launch(c)
	go c.run()
}

func (e *engine) launch(c *call) {
	c.begin, c.memory = time.Now(), e.memory
	c.noTTL = c.begin.Before(e.noTTL)
	if !c.ask.probe {
		c.check, c.lowered = e.takeCheck(c.begin, checkSample)
	}
	e.calls = append(e.calls, c)
	e.l.client.calls.Add(1)
}

// alone is the call that r is about to make when nobody else has a part in it; nil when it has left
// already or must wait. The caller runs it itself, which saves the way over a goroutine: a quarter of
// the time that a call takes on loopback.
func (e *engine) alone(r *request) *call {
	var c *call
	if r.blocking {
		c = e.nextAsking()
	} else {
		c = e.nextTrying()
	}
	switch {
	case c == nil:
		return nil
	case c.size() > 1:
		e.start(c)
		return nil
	}
	e.launch(c)
	return c
}

// nextAsking is a call for the waiters, when they are due.
func (e *engine) nextAsking() *call {
	if e.asking || e.held != nil || e.reserver != nil || e.bucket.closed || e.waiters.n == 0 || !e.askAt.IsZero() && time.Now().Before(e.askAt) {
		return nil
	}
	if r := e.waiters.first; r.turn != nil {
		e.giveTurn(r)
		return nil
	}
	c := e.newCall()
	c.inOrder = true
	for r := e.waiters.first; r != nil && r.turn == nil && c.append(r); r = r.next {
		r.inCall = true
	}
	if e.tries.n > 0 && e.yield() {
		c.takeTries(&e.tries)
	}
	c.changes = e.changes
	c.share = e.share()
	e.asking = true
	return c
}

// nextTrying is a call for the tries, when there are any.
func (e *engine) nextTrying() *call {
	if e.tries.n == 0 || e.bucket.closed || !e.mayTry() {
		return nil
	}
	reserved := e.reserved()
	if !reserved && e.waiters.n > 0 && e.yield() {
		if e.asking {
			return nil
		}
		e.askAt = time.Time{}
		if c := e.nextAsking(); c != nil {
			e.start(c)
		}
		return nil
	}
	c := e.newCall()
	c.probe = reserved
	c.takeTries(&e.tries)
	e.trying++
	e.sharing.touched = time.Now()
	return c
}

func (e *engine) newCall() *call {
	c := e.spare
	if c == nil {
		c = &call{engine: e}
	}
	e.spare = nil
	c.typ = e.typ
	return c
}

// finished takes a call's place in flight back and answers the one that goroutine makes next.
func (e *engine) finished(c *call) *call {
	var next *call
	if c.inOrder {
		e.asking = false
	} else {
		e.trying--
	}
	for i := range e.calls {
		if e.calls[i] == c {
			e.calls = append(e.calls[:i], e.calls[i+1:]...)
			break
		}
	}
	c.reset()
	e.spare = c
	if next = e.nextAsking(); next == nil {
		next = e.nextTrying()
	}
	if next != nil {
		e.launch(next)
	}
	e.kick()
	e.rest()
	e.l.client.calls.Done()
	return next
}

// rest sets the timer for the waiters, and lets an engine go that nobody needs: nothing of it stays armed.
func (e *engine) rest() {
	switch {
	case e.waiters.n == 0 || e.asking || e.held != nil || e.reserver != nil || e.bucket.closed:
		if e.timer != nil {
			e.timer.Stop()
		}
	case e.timer == nil:
		e.timer = time.AfterFunc(time.Until(e.askAt), e.due)
	default:
		e.timer.Reset(time.Until(e.askAt))
	}
	if e.idle() {
		e.setShareTimer(time.Time{})
		e.bucket.sweep(e)
	}
}

// due is what the timer of the waiters runs. One that has fired cannot be stopped any more: kick starts
// nothing that the engine, whoever's it is by now, is not due to start.
func (e *engine) due() {
	e.bucket.mu.Lock()
	defer e.bucket.mu.Unlock()
	e.kick()
}

// close fails everybody.
func (e *engine) close(ended []*request) []*request {
	for _, c := range e.calls {
		ended, _ = c.endCallers(ErrClosed, ended, nil)
	}
	for e.tries.n > 0 {
		ended = e.tries.first.fail(ErrClosed, ended)
	}
	for e.waiters.n > 0 {
		ended = e.waiters.first.fail(ErrClosed, ended)
	}
	e.rest()
	e.setShareTimer(time.Time{})
	return ended
}

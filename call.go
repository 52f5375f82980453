package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
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
	ghost   bool // nobody's: it has been let to probe Redis
	alone   bool // in its caller's goroutine
	resumed bool // in another now, under the same id
	memory  *memory
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

// errLater: the call goes on, but not in its caller's goroutine.
var errLater = errors.New("later")

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
		r.unqueue()
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
		if len(c.ended) > 1 {
			// Those who have their answers may ask again at once. Let them: what they ask for gathers.
			runtime.Gosched()
		}
		e.bucket.mu.Lock()
		c = e.finished(c)
		e.bucket.mu.Unlock()
	}
}

// runAlone carries the call of one caller in that caller's goroutine, as far as one step goes.
func (c *call) runAlone() {
	e := c.engine
	c.alone = true
	if !c.step() {
		e.bucket.mu.Lock()
		c = e.finished(c)
		e.bucket.mu.Unlock()
	}
	if c != nil {
		c.alone = false
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
	if !c.resumed {
		c.id, c.replay = c.engine.l.client.requestID(), false
	}
	c.resumed = false
	begin := time.Now()
	a, err := c.send()
	if err == errLater {
		c.resumed = true
		return true
	}
	if err != nil {
		c.fail(err)
		return false
	}
	if c.ghost {
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
		tries  = redisscript.Attempts{Begin: time.Now()}
		flips  = 0
		first  = c.ghost // which was claimed when the call was made
	)
	for {
		if l.client.isClosed() {
			return answer{}, ErrClosed
		}
		var (
			next = tries.Begin
			over <-chan struct{}
			err  error
		)
		if !first {
			next, over, err = outage.enter()
		}
		first = false
		if err != nil {
			if !c.endure(l.failed("acquire", redisscript.Unknown, err), tries.Begin) {
				return answer{}, errAbandoned
			}
			if c.alone {
				return answer{}, errLater // its caller may be served without Redis
			}
			redisscript.Sleep(time.Until(next), over, l.client.closed)
			if !c.trim() {
				return answer{}, errAbandoned
			}
			continue
		}
		probe := !next.IsZero()
		var raw any
		if err = c.pay(); err == nil {
			var cmd []any
			if cmd, err = l.acquireCommand(&c.ask); err != nil {
				return answer{}, err
			}
			raw, err = l.client.sendOnce(c.ctx, acquireScript, cmd)
		}
		if err == nil {
			l.there()
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
		what, again := tries.Failed(err)
		if what == redisscript.Executed {
			var re redis.Error
			if errors.As(err, &re) {
				l.there()
			}
			return answer{}, l.failed("acquire", what, err)
		}
		c.replay = c.replay || tries.Replay
		c.trouble(err)
		if again && !probe {
			tries.Pause(nil, l.client.closed)
			continue
		}
		failed := l.failed("acquire", what, err)
		full := errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
		if !full {
			l.away(err)
		}
		if !c.endure(failed, tries.Begin) {
			return answer{}, errAbandoned
		}
		if full { // this process' fault, not Redis': no reason to keep others from asking
			redisscript.Sleep(probePause(), nil, l.client.closed)
		}
	}
}

func (c *call) trouble(err error) {
	c.engine.bucket.mu.Lock()
	c.engine.trouble = err
	c.engine.bucket.mu.Unlock()
}

// trim drops those who have left or were answered without Redis while the call slept. It answers whether
// somebody is left.
func (c *call) trim() bool {
	c.engine.bucket.mu.Lock()
	defer c.engine.bucket.mu.Unlock()
	c.memory = c.engine.memory
	if c.replay {
		return true // it asks for what it asked for
	}
	c.walked, c.walkedPermits = 0, 0
	return c.prune()
}

// endure has those answered whom an outage policy answers, tells the others who do not wait that Redis is
// away, and after the outage limit everybody. It answers whether somebody in the call waits on.
func (c *call) endure(err error, since time.Time) bool {
	e := c.engine
	e.bucket.mu.Lock()
	patient := time.Since(since) < e.l.client.cfg.outageLimit
	ended := c.degrade(c.ended[:0])
	stays := func(r *request) bool { return r.blocking && (patient || r.degraded) }
	ended, waits := c.endCallers(err, ended, stays)
	for e.tries.n > 0 {
		ended = e.tries.first.fail(err, ended)
	}
	for r := e.waiters.first; r != nil && !patient; {
		next := r.next
		if !r.inCall && !stays(r) {
			ended = r.fail(err, ended)
		}
		r = next
	}
	e.bucket.mu.Unlock()
	wake(ended)
	return waits
}

// endCallers ends those in the call with err who do not stay; nil for nobody. The lock is held.
func (c *call) endCallers(err error, ended []*request, stays func(*request) bool) (_ []*request, stay bool) {
	for i := range c.runs {
		for j, r := range c.runs[i].callers {
			switch {
			case r == nil || !r.live():
			case stays != nil && stays(r):
				stay = true
			default:
				ended = r.fail(err, ended)
				c.runs[i].callers[j] = nil
			}
		}
	}
	return ended, stay
}

// fail ends everybody in the call with err.
func (c *call) fail(err error) {
	e := c.engine
	e.bucket.mu.Lock()
	ended, _ := c.endCallers(err, c.ended[:0], nil)
	if c.inOrder {
		e.newHead()
	}
	e.bucket.mu.Unlock()
	wake(ended)
}

func (l *RateLimiter) exceeds(permits, rate int64) error {
	return fmt.Errorf("%w: %d permits asked of %q, whose rate is %d", ErrPermitsExceedRate, permits, l.name, rate)
}

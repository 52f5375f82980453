// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/stack"
	"github.com/redis/go-redis/v9"
)

// The bounds of a pipeline. Redis executes what it has read of a pipeline before it turns to the next client, so they
// also bound how long others wait.
const (
	maxCalls  = 64
	maxBytes  = 16 << 10 // of keys and arguments; Redis reads so many at once
	maxMicros = 800      // of Redis' time, by what each script usually takes

	usualMicros = 12

	// If two pipelines in a row have kept Redis busy for longer than tooLong, by the clock of Redis, the largest
	// number of calls in a pipeline is halved. A single one may be due to a machine that gave Redis no time. Full
	// pipelines that take less than three quarters of tooLong let the number grow again.
	tooLong    = 2 * time.Millisecond
	leastCalls = 2
)

// The bounds of how many pipelines are in flight.
const (
	// Two pipelines keep Redis busy while the replies of one are on their way, and so do fewCalls calls, in any number
	// of pipelines. A third leaves if it has maxCalls calls: so many callers take longer to come back than Redis for the
	// two. A pipeline older than youth does not count: it has a long network path, or is stuck behind something slow.
	maxYoung = 2
	fewCalls = 8
	youth    = time.Millisecond

	// Once maxPipelines are in flight, all of them slow, the next one leaves when no pipeline has left for this long.
	maxPipelines = 12
	stuck        = 100 * time.Millisecond

	// A call that has waited for this long is not sent any more: there are more calls than such a Redis can reply to.
	maxWait = time.Second
)

// errNotSent reports that a call has waited for maxWait.
var errNotSent = &retry.Shortage{Err: errors.New("redis: the command was not sent, because it has waited for a second behind others of this process")}

// A lane takes script calls to one node. Calls leave in the order in which they came.
type lane struct {
	d    *Dispatcher
	node *redis.Client // of a cluster or a ring; nil for a client with one node

	joins joins

	mu          sync.Mutex
	air         []departure // of the pipelines that have not landed
	left        int64       // how many pipelines have left
	newest      departure   // the last one to leave that has had a reply
	landing     int         // how many have landed and are waking their callers
	first, last *call       // the queue; it may hold calls whose callers have left
	queued      int         // how many calls it holds
	timer       *time.Timer // nil if none was needed yet
	due         time.Time   // when it fires; zero if it does not run
	most        int         // calls that a pipeline has at most
	wasTooLong  bool        // the last pipeline whose time is known took too long
}

// newLane returns the lane of d to a node of a cluster or a ring, or, if node is nil, to the only one.
func newLane(d *Dispatcher, node *redis.Client) *lane {
	l := &lane{d: d, node: node, most: maxCalls}
	if d.cluster != nil || d.separate.Load() {
		l.joins.never()
	}
	return l
}

// A departure says when a pipeline left, with how many calls, and how many had left with it.
type departure struct {
	at    time.Time
	calls int
	n     int64
}

// departsLocked records that a pipeline leaves.
func (l *lane) departsLocked(now time.Time, calls int) departure {
	l.left++
	d := departure{now, calls, l.left}
	l.air = append(l.air, d)
	return d
}

// A call waits in the queue of a lane, or is in flight, in a pipeline or by itself.
type call struct {
	script  *Script
	evalsha []any
	ctx     context.Context
	came    time.Time
	bytes   int
	micros  int
	next    *call
	left    bool // its caller does not wait any more; guarded by the lane's lock

	// Of one that goes by itself.
	to    Sender
	by    trip
	carry func() // carried, made once, since each would be an allocation

	reply  any
	err    error
	resend bool // it has done nothing, and its caller is to send it by itself
	done   chan struct{}
}

// A trip is a departure from a lane. It is zero for a command that no lane sends.
type trip struct {
	*lane
	departure
}

// enter has a command of s leave at once and by itself, if there is room for another pipeline. Otherwise it returns a call
// that is in the queue, for await.
func (l *lane) enter(ctx context.Context, s *Script, evalsha []any) (departure, *call) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil && l.roomLocked(now) {
		return l.departsLocked(now, 1), nil
	}
	c := l.d.newCall(ctx, s, evalsha)
	c.came = now
	if l.first == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
	l.queued++
	l.leaveLocked(now) // if a pipeline has grown old and the timer is late
	return departure{}, c
}

// await returns the outcome of a call when it has landed, or ctx.Err() when ctx is done. It reports false if the call is to be
// sent by itself: it was not executed, or it found nothing among others and there is a reply.
func (l *lane) await(ctx context.Context, c *call) (reply any, landed bool, err error) {
	if ctx.Done() == nil {
		<-c.done
	} else {
		select {
		case <-c.done:
		case <-ctx.Done():
			l.mu.Lock()
			c.left = true
			l.mu.Unlock()
			return nil, true, ctx.Err()
		}
	}
	if reply, landed = c.reply, !c.resend; landed {
		err = c.err
	}
	l.d.recycle(c)
	return reply, landed, err
}

func (d *Dispatcher) newCall(ctx context.Context, s *Script, evalsha []any) *call {
	c := d.blankCall()
	c.ctx, c.script, c.evalsha = ctx, s, evalsha
	if c.micros = s.Micros; c.micros == 0 {
		c.micros = usualMicros
	}
	for _, arg := range evalsha {
		switch v := arg.(type) {
		case string:
			c.bytes += len(v)
		case []byte:
			c.bytes += len(v)
		}
		c.bytes += 10
	}
	return c
}

// blankCall returns a call to be filled in. Neither it nor recycle needs a Dispatcher, but without one nothing is reused.
func (d *Dispatcher) blankCall() *call {
	if d != nil {
		if c, ok := d.free.Get().(*call); ok {
			return c
		}
	}
	c := &call{done: make(chan struct{}, 1)}
	c.carry = c.carried
	return c
}

func (d *Dispatcher) recycle(c *call) {
	if d != nil {
		*c = call{done: c.done, carry: c.carry}
		d.free.Put(c)
	}
}

// roomLocked reports whether another pipeline may leave. None may while the callers of a landed one are being woken:
// they may call again, and their calls then leave together; see fly.
func (l *lane) roomLocked(now time.Time) bool {
	return l.landing == 0 && (len(l.air) == 0 || l.roomAtLocked(now).IsZero())
}

// roomAtLocked returns when another pipeline may leave if none lands before, or zero if one may leave now.
func (l *lane) roomAtLocked(now time.Time) time.Time {
	var oldest, newest time.Time // of those that are young; of all
	young, calls := 0, 0         // those that are young, and their calls
	for _, d := range l.air {
		if now.Sub(d.at) < youth {
			calls += d.calls
			if young++; young == 1 || d.at.Before(oldest) {
				oldest = d.at
			}
		}
		if d.at.After(newest) {
			newest = d.at
		}
	}
	switch {
	case len(l.air) >= maxPipelines && now.Sub(newest) < stuck:
		return newest.Add(stuck)
	case young >= maxYoung && calls >= fewCalls && (young > maxYoung || l.queued < maxCalls || l.most < maxCalls):
		return oldest.Add(youth)
	}
	return time.Time{}
}

// departLocked returns the calls of a pipeline that is to leave now, or nil. It drops those that have waited for too long.
func (l *lane) departLocked(now time.Time) ([]*call, departure) {
	for c := l.first; c != nil && now.Sub(c.came) >= maxWait; c = l.first {
		l.popLocked()
		c.err = errNotSent
		c.wake()
	}
	if l.first == nil || !l.roomLocked(now) {
		return nil, departure{}
	}
	most := l.most
	if len(l.air) == 0 && l.queued >= fewCalls {
		most = min(most, (l.queued+1)/2) // so that Redis has the other half while the callers of these come back
	}
	calls, bytes, micros := make([]*call, 0, most), 0, 0
	for c := l.first; c != nil && len(calls) < most; c = l.first {
		if !c.left {
			bytes, micros = bytes+c.bytes, micros+c.micros
			if len(calls) > 0 && (bytes > maxBytes || micros > maxMicros) {
				break
			}
			calls = append(calls, c)
		}
		l.popLocked()
	}
	if len(calls) == 0 {
		return nil, departure{}
	}
	return calls, l.departsLocked(now, len(calls))
}

// popLocked takes the first call out of the queue.
func (l *lane) popLocked() {
	c := l.first
	l.first, c.next = c.next, nil
	if l.first == nil {
		l.last = nil
	}
	l.queued--
}

// leaveLocked starts as many pipelines as there is room for. It also makes sure that calls which still wait leave as
// soon as there is room, even if no pipeline lands. While one is landing, fly does that.
func (l *lane) leaveLocked(now time.Time) {
	for {
		calls, d := l.departLocked(now)
		if calls == nil {
			break
		}
		go l.fly(calls, d)
	}
	if l.first == nil || l.landing > 0 {
		return
	}
	// A timer that runs may be for later: for when a call would leave if nothing landed, and since then much has.
	if at := l.roomAtLocked(now); l.due.IsZero() || at.Before(l.due) {
		l.due = at
		if l.timer == nil {
			l.timer = time.AfterFunc(at.Sub(now), l.onTimer)
		} else {
			l.timer.Reset(at.Sub(now))
		}
	}
}

// took records how long Redis took for a pipeline of n calls, from the first to the last.
func (l *lane) took(n int, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch again := l.wasTooLong; {
	case d >= tooLong && again:
		l.most, l.wasTooLong = max(leastCalls, min(l.most, n/2)), false
	case d >= tooLong:
		l.wasTooLong = true
	default:
		l.wasTooLong = false
		if d < tooLong*3/4 && n >= l.most {
			l.most = min(maxCalls, l.most+l.most/4+1)
		}
	}
}

func (l *lane) onTimer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = time.Time{}
	l.leaveLocked(time.Now())
}

// landed ends a pipeline that has ended with err, and starts the pipelines that there is room for then.
func (l *lane) landed(d departure, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.landLocked(d, err)
	if l.first != nil {
		l.leaveLocked(time.Now())
	}
}

func (l *lane) landLocked(d departure, err error) {
	if err == nil || isReply(err) {
		if d.n > l.newest.n {
			l.newest = d
		}
	}
	if i := slices.Index(l.air, d); i >= 0 {
		n := len(l.air) - 1
		l.air[i] = l.air[n]
		l.air = l.air[:n]
	}
}

func (l *lane) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.air) == 0 && l.first == nil && l.landing == 0
}

// fly takes calls that have left to Redis, and then calls that have arrived in the meantime, until there are none.
func (l *lane) fly(calls []*call, d departure) {
	stack.Grow()
	ended := false
	defer func() {
		if !ended { // a hook has ended the goroutine
			l.landed(d, errGone)
		}
	}()
	for calls != nil {
		var err error
		calls, err = l.send(calls)
		l.mu.Lock()
		l.landLocked(d, err)
		l.landing++
		l.mu.Unlock()
		for _, c := range calls {
			c.wake()
		}
		// Let the callers call again, so that their calls leave together.
		runtime.Gosched()
		now := time.Now()
		l.mu.Lock()
		l.landing--
		calls, d = l.departLocked(now)
		l.leaveLocked(now) // those who came while several pipelines were landing may be more than one takes
		l.mu.Unlock()
	}
	ended = true
}

package ratelimiter

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
)

// A debt is what was granted without Redis and is yet to be charged there, as a grant of that instant.
type debt struct {
	at      time.Time
	permits int64
	id      requestID
	replay  bool // a call that charges it may have run
}

// maxDebts is into how many the log is divided: each takes a call, and counts from its newest grant on.
const maxDebts = 8

// maxCharges is how often a debt is sent: smaller where it does not fit, again where a call has to
// reclaim more than it may at once.
const maxCharges = 16

func (m *memory) owes() bool {
	n := len(m.log)
	return len(m.debts) > 0 || n > 0 && !m.log[n-1].charged
}

// owe makes debts of what the log holds and forgets those that have expired. Nobody else pays meanwhile.
func (m *memory) owe(now time.Time) {
	m.expire(now)
	kept := m.debts[:0]
	for _, d := range m.debts {
		if now.Before(d.at.Add(m.window)) {
			kept = append(kept, d)
		}
	}
	m.debts = kept
	var begin time.Time
	for i := range m.log {
		g := &m.log[i]
		if g.charged {
			continue
		}
		if begin.IsZero() || g.last.Sub(begin) > m.window/maxDebts {
			begin = g.first
			m.debts = append(m.debts, debt{id: newRequestID()})
		}
		d := &m.debts[len(m.debts)-1]
		d.at, d.permits = g.last, d.permits+g.permits
		g.charged = true
	}
}

// pay charges Redis with what this process granted without it, before the call asks for more. While
// Redis has no room for it, it has none for others either. Only errors of the way to Redis are answered:
// what Redis itself has to say, the call will be told.
func (c *call) pay() error {
	m, e := c.memory, c.engine
	if m == nil {
		return nil
	}
	for {
		e.bucket.mu.Lock()
		busy, owes := m.paying, m.owes()
		if busy == nil && owes {
			m.paying = make(chan struct{})
		}
		e.bucket.mu.Unlock()
		if busy == nil && !owes {
			return nil
		}
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-e.l.client.closed:
			return nil
		}
	}
	err := c.charge(m)
	e.bucket.mu.Lock()
	close(m.paying)
	m.paying = nil
	e.bucket.mu.Unlock()
	if err != nil && redisscript.Classify(err) == redisscript.Executed {
		return nil
	}
	return err
}

// charge sends the debts. It first asks for the time, by which they are dated back.
func (c *call) charge(m *memory) error {
	l, begin := c.engine.l, time.Now()
	there, err := c.chargeOnce(ask{id: newRequestID(), runs: []run{{permits: 1, count: 1}}, probe: true})
	if err != nil {
		return err
	}
	l.there() // from now on nothing more is granted without Redis
	l.bucket.mu.Lock()
	m.owe(time.Now())
	debts := m.debts
	l.bucket.mu.Unlock()
	for sent := 0; err == nil && len(debts) > 0 && sent < maxCharges; sent++ {
		d := debts[0]
		age := begin.Sub(d.at)
		if age >= there.rate.Interval {
			debts = debts[1:]
			continue
		}
		var a answer
		a, err = c.chargeOnce(ask{id: d.id, runs: []run{{permits: d.permits, count: 1}}, replay: d.replay, at: there.now.Add(-age)})
		switch room := a.room(); {
		case err != nil:
			debts[0].replay = d.replay || redisscript.Classify(err) == redisscript.Unknown
		case a.granted[0] == 1:
			debts = debts[1:]
		case a.again == againRest:
		case room < 1 || room >= d.permits:
			sent = maxCharges // Redis has no room now
		default:
			debts[0] = debt{at: d.at, permits: room, id: newRequestID()}
			debts = append(debts, debt{at: d.at, permits: d.permits - room, id: newRequestID()})
		}
	}
	l.bucket.mu.Lock()
	m.debts = debts
	l.bucket.mu.Unlock()
	return err
}

// room is how many permits a request could have that was refused.
func (a *answer) room() int64 {
	if len(a.granted) > 0 && a.granted[0] < 0 {
		return a.rate.Permits
	}
	return a.available
}

// chargeOnce makes one acquire call.
func (c *call) chargeOnce(a ask) (answer, error) {
	l := c.engine.l
	a.typ = c.typ
	cmd, err := l.acquireCommand(&a)
	if err != nil {
		return answer{}, err
	}
	raw, err := l.client.sendOnce(c.ctx, acquireScript, cmd)
	if err != nil {
		return answer{}, err
	}
	return l.readAcquire(&a, raw)
}

package ratelimiter

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
	"github.com/redis/go-redis/v9"
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

// owes reports whether anything is left to charge. What was granted an interval ago or longer is not.
func (m *memory) owes(now time.Time) bool {
	if len(m.log) == 0 && len(m.debts) == 0 {
		return false
	}
	m.lapse(now)
	n := len(m.log)
	return len(m.debts) > 0 || n > 0 && !m.log[n-1].charged
}

// lapse forgets the grants and the debts that no longer count. Nobody pays meanwhile.
func (m *memory) lapse(now time.Time) {
	m.expire(now)
	kept := m.debts[:0]
	for _, d := range m.debts {
		if now.Before(d.at.Add(m.window)) {
			kept = append(kept, d)
		}
	}
	m.debts = kept
}

// owe makes debts of what the log holds, each with an id of newID. Nobody else pays meanwhile.
func (m *memory) owe(now time.Time, newID func() requestID) {
	m.lapse(now)
	var begin time.Time
	for i := range m.log {
		g := &m.log[i]
		if g.charged {
			continue
		}
		if begin.IsZero() || g.last.Sub(begin) > m.window/maxDebts {
			begin = g.first
			m.debts = append(m.debts, debt{id: newID()})
		}
		d := &m.debts[len(m.debts)-1]
		d.at, d.permits = g.last, d.permits+g.permits
		g.charged = true
	}
}

// pay charges Redis with what this process granted without it, before the call asks for more.
func (c *call) pay() error {
	if c.memory == nil {
		return nil
	}
	return c.engine.l.pay(c.ctx, c.memory, &c.typ)
}

// pay charges Redis with what m holds of l. Every error it returns is one of the way to Redis. A reply
// that is an error, such as that the limiter has no rate, is none: Redis is there, and what it has to say
// the caller's own request is told. What could not be charged then stays owed until the limiter can be
// charged again or the interval in which it counts is over. While Redis has no room for a debt, it has
// none for other requests either.
//
// It needs no engine: one that is idle may be let go, and be another limiter's, while the call is on its way.
func (l *RateLimiter) pay(ctx context.Context, m *memory, typ *RateType) error {
	for {
		l.bucket.mu.Lock()
		busy := m.paying
		owes := busy == nil && m.owes(time.Now())
		if owes {
			m.paying = make(chan struct{})
		}
		l.bucket.mu.Unlock()
		if busy == nil && !owes {
			return nil
		}
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-l.client.closed:
			return nil
		}
	}
	err := l.charge(ctx, m, typ)
	l.bucket.mu.Lock()
	close(m.paying)
	m.paying = nil
	l.bucket.mu.Unlock()
	return err
}

// charge sends the debts. It first asks for the time, by which they are dated back.
func (l *RateLimiter) charge(ctx context.Context, m *memory, typ *RateType) error {
	begin := time.Now()
	there, refusal, err := l.chargeOnce(ctx, ask{id: l.client.requestID(), runs: []run{{permits: 1, count: 1}}, probe: true}, typ)
	if err != nil || refusal != nil {
		return err
	}
	l.bucket.mu.Lock()
	m.owe(time.Now(), l.client.requestID)
	debts := m.debts
	l.bucket.mu.Unlock()
	for sent := 0; err == nil && refusal == nil && len(debts) > 0 && sent < maxCharges; sent++ {
		d := debts[0]
		age := begin.Sub(d.at)
		if age >= there.rate.Interval {
			debts = debts[1:]
			continue
		}
		var a answer
		a, refusal, err = l.chargeOnce(ctx, ask{id: d.id, runs: []run{{permits: d.permits, count: 1}}, replay: d.replay, at: there.now.Add(-age)}, typ)
		switch room := a.room(); {
		case err != nil:
			debts[0].replay = d.replay || redisscript.Classify(err) == redisscript.Unknown
		case refusal != nil:
		case a.granted[0] == 1:
			debts = debts[1:]
		case a.again == againRest:
		case room < 1 || room >= d.permits:
			sent = maxCharges // Redis has no room now
		default:
			debts[0] = debt{at: d.at, permits: room, id: l.client.requestID()}
			debts = append(debts, debt{at: d.at, permits: d.permits - room, id: l.client.requestID()})
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

// chargeOnce makes one acquire call, and another where the limiter has the other type than *typ, which it
// then corrects. A refusal is what Redis replied instead of an answer; err is one of the way to Redis.
// After any reply nothing more is granted without Redis.
func (l *RateLimiter) chargeOnce(ctx context.Context, a ask, typ *RateType) (got answer, refusal, err error) {
	for flips := 0; ; flips++ {
		a.typ = *typ
		cmd, err := l.acquireCommand(&a)
		if err != nil {
			return answer{}, err, nil
		}
		l.touched()
		raw, err := l.client.sendOnce(ctx, acquireScript, cmd)
		l.touched()
		if err != nil {
			if redisscript.Classify(err) != redisscript.Executed {
				return answer{}, nil, err
			}
			var re redis.Error
			if errors.As(err, &re) {
				l.there()
			}
			return answer{}, err, nil
		}
		l.there()
		got, err := l.readAcquire(&a, raw)
		var other *otherTypeError
		if !errors.As(err, &other) || flips == maxFlips {
			return got, err, nil
		}
		*typ = other.typ
		l.learn(other.typ)
	}
}

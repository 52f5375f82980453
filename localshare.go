package ratelimiter

import (
	"fmt"
	"time"
)

// A memory is what a process knows of one limiter without Redis, for the policies that are not closed: the
// last rate, a cool-down, and what it granted itself, exactly, as the script does it in Redis. It outlives
// the limiter's engine. The bucket's lock guards it.
type memory struct {
	rate    Rate          // the last one that Redis told; zero until then
	cooling time.Time     // no permit before, as Redis said or was told
	known   time.Time     // since when that is so
	untold  time.Time     // no permit before, which Redis could not be told as yet
	paced   time.Time     // nor before
	log     []localGrant  // oldest first
	window  time.Duration // how long they count
	used    int64         // permits in it
	debts   []debt
	paying  chan struct{} // closed when the call that pays is through; nil when none does
}

// A localGrant is what was granted from first to last, which counts as granted at last.
type localGrant struct {
	first, last time.Time
	permits     int64
	charged     bool // it is among the debts, or paid
}

// maxLog bounds the log: what is granted within this part of an interval makes up one entry.
const maxLog = 4096

// maxMemories is how many limiters a bucket remembers at most besides those that are in use and those
// with grants of their own.
const maxMemories = 64

// remember is the memory of the engine's limiter, made if need be.
func (e *engine) remember() *memory {
	if e.memory == nil {
		b, hash := e.bucket, e.l.keys.hash
		m := b.memories[hash]
		if m == nil {
			if b.memories == nil {
				b.memories = map[string]*memory{}
			}
			b.forget()
			m = &memory{rate: e.rate}
			b.memories[hash] = m
		}
		e.memory = m
	}
	return e.memory
}

// forget makes room for another memory: of those that nobody needs, any.
func (b *bucket) forget() {
	now := time.Now()
	for hash, m := range b.memories {
		if len(b.memories) < maxMemories {
			return
		}
		if m.expire(now); len(m.log) == 0 && b.find(hash) == nil {
			delete(b.memories, hash)
		}
	}
}

// learn: Redis answered a call that began then. Longer than an interval its wait is a cool-down, which outlives
// Redis. A cool-down that is longer than the answer allows is over, by whoever it was lifted.
func (m *memory) learn(a *answer, begin time.Time) {
	m.rate = a.rate
	now := time.Now()
	switch {
	case a.wait > a.rate.Interval:
		if at := now.Add(a.wait); at.After(m.cooling) || !begin.Before(m.known) {
			m.cooling, m.known = at, now
		}
	case begin.Before(m.known) || len(a.granted) == 0 || a.granted[0] < 0:
		// It may have been answered before the cool-down began, or says nothing of it.
	case a.wait == 0:
		m.cooling = time.Time{}
	case m.cooling.After(now.Add(a.wait)):
		m.cooling = now.Add(a.wait)
	}
}

// noteCoolDown has the policies of this process obey a cool-down, until Redis has been told of it too; the zero time
// ends it.
func (l *RateLimiter) noteCoolDown(until time.Time) {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	m := l.bucket.engine(l).remember()
	if until.IsZero() {
		m.cooling, m.untold = until, until
	} else if until.After(m.untold) {
		m.untold = until
	}
}

// toldCoolDown: Redis has been told of a cool-down, and may from now on say that it is over.
func (l *RateLimiter) toldCoolDown(until time.Time) {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	m := l.bucket.engine(l).remember()
	m.known = time.Now()
	if until.After(m.cooling) {
		m.cooling = until
	}
	if !m.untold.After(until) {
		m.untold = time.Time{}
	}
}

// coolsUntil is before when nothing is granted without Redis.
func (m *memory) coolsUntil() time.Time {
	if m.untold.After(m.cooling) {
		return m.untold
	}
	return m.cooling
}

// share is how many permits of an interval are this process', under p.
func (m *memory) share(p *OutagePolicy) (permits int64, r Rate) {
	if r = m.rate; r.Interval == 0 {
		r = p.rate
	}
	return r.Permits / int64(p.nodes), r
}

// when is the instant at which permits can be granted under p while Redis has been away since then, and
// how many are left now. A request for more than the share is an error.
func (m *memory) when(p *OutagePolicy, permits int64, now, since time.Time) (at time.Time, left int64, err error) {
	if p.kind == failOpen {
		return m.coolsUntil(), 0, nil
	}
	share, r := m.share(p)
	if permits > share {
		return at, 0, fmt.Errorf("%d permits asked of a local share of %d: %v among %d", permits, share, r, p.nodes)
	}
	m.window = r.Interval
	m.expire(now)
	at = since.Add(r.Interval)
	if left = max(0, share-m.used); at.After(now) {
		left = 0
	}
	for _, t := range []time.Time{m.coolsUntil(), m.paced} {
		if t.After(at) {
			at = t
		}
	}
	free := share - m.used
	for i := 0; free < permits; i++ {
		free += m.log[i].permits
		if back := m.log[i].last.Add(r.Interval); back.After(at) {
			at = back
		}
	}
	return at, left, nil
}

// answer is what those get that p has answered.
func (m *memory) answer(p *OutagePolicy, now time.Time) *answer {
	r := m.rate
	if p.kind == localShare {
		_, r = m.share(p)
	}
	return &answer{rate: r, now: now}
}

// take grants permits at now, which when has allowed.
func (m *memory) take(p *OutagePolicy, permits int64, now time.Time) {
	if p.kind == failOpen {
		return
	}
	_, r := m.share(p)
	m.used += permits
	if r.MinGap > 0 {
		pause := r.Interval
		if gaps := permits * int64(p.nodes); gaps < int64(r.Interval/r.MinGap) {
			pause = time.Duration(gaps) * r.MinGap
		}
		m.paced = now.Add(pause)
	}
	if n := len(m.log); n > 0 {
		if last := &m.log[n-1]; !last.charged && now.Sub(last.first) < r.Interval/maxLog {
			last.last, last.permits = now, last.permits+permits
			return
		}
	}
	m.log = append(m.log, localGrant{first: now, last: now, permits: permits})
}

// expire forgets what was granted an interval ago or longer.
func (m *memory) expire(now time.Time) {
	n := 0
	for n < len(m.log) && !now.Before(m.log[n].last.Add(m.window)) {
		m.used -= m.log[n].permits
		n++
	}
	if n == len(m.log) {
		m.log = nil
	} else if n > 0 {
		m.log = m.log[n:]
	}
}

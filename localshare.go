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
	cooling time.Time     // no permit before
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

// learn: Redis told the rate, and how long it takes until a permit is free. Longer than an interval is
// a cool-down, which outlives Redis.
func (m *memory) learn(r Rate, wait time.Duration) {
	m.rate = r
	if wait > r.Interval {
		m.cooling = time.Now().Add(wait)
	}
}

// noteCoolDown has the policies of this process obey a cool-down that Redis has or could not be told; the
// zero time ends it.
func (l *RateLimiter) noteCoolDown(until time.Time) {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if m := l.bucket.engine(l).remember(); until.IsZero() || until.After(m.cooling) {
		m.cooling = until
	}
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
		return m.cooling, 0, nil
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
	for _, t := range []time.Time{m.cooling, m.paced} {
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

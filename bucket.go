package ratelimiter

import (
	"sync"
	"time"
)

// A bucket holds the engines of the limiters whose names hash alike, under one lock, which is held
// for bookkeeping only and never while Redis is asked. An engine that is idle may stay, one a bucket,
// so that it need not be told again what it has learnt; a hundred thousand names used once leave
// nothing else behind.
type bucket struct {
	mu     sync.Mutex
	first  *engine
	spare  *engine // one that was swept out, for the next limiter
	closed bool
	outage outage // of a cluster's part

	memories map[string]*memory // by hash key
}

// find is the engine of the limiter with that hash key, nil when there is none.
func (b *bucket) find(hash string) *engine {
	for e := b.first; e != nil; e = e.next {
		if e.l.keys.hash == hash {
			return e
		}
	}
	return nil
}

// engine is that of l, made if need be.
func (b *bucket) engine(l *RateLimiter) *engine {
	e := b.find(l.keys.hash)
	if e == nil {
		if e = b.spare; e == nil {
			e = &engine{bucket: b}
		}
		b.spare = nil
		e.l, e.next = l, b.first
		b.first = e
		b.sweep(e)
	}
	return e
}

// sweep removes the idle engines other than keep.
func (b *bucket) sweep(keep *engine) {
	for at := &b.first; *at != nil; {
		if e := *at; e != keep && e.idle() {
			*at = e.next
			e.reset()
			b.spare = e
		} else {
			at = &e.next
		}
	}
}

// close fails everybody and stops the timers. No engine starts anything afterwards.
func (b *bucket) close() {
	b.mu.Lock()
	b.closed = true
	var ended []*request
	for e := b.first; e != nil; e = e.next {
		ended = e.close(ended)
	}
	b.first = nil
	b.mu.Unlock()
	wake(ended)
}

// hint is the type that the limiter's hash had when it was last seen. Without one it is Overall;
// being wrong costs a round trip.
func (l *RateLimiter) hint() RateType {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if e := l.bucket.find(l.keys.hash); e != nil {
		return e.typ
	}
	return Overall
}

// learn: the hash has a new rate, or another type than was thought. Lost permits may be looked for
// again.
func (l *RateLimiter) learn(typ RateType) {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if typ != Overall || l.bucket.find(l.keys.hash) != nil {
		e := l.bucket.engine(l)
		e.typ, e.nextAudit, e.noTTL = typ, time.Time{}, time.Time{}
	}
}

// lookAtTTL: the limiter may have got a TTL.
func (l *RateLimiter) lookAtTTL() {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if e := l.bucket.find(l.keys.hash); e != nil {
		e.noTTL = time.Time{}
	}
}

// changed lets those who wait for the limiter in this process ask again at once.
func (l *RateLimiter) changed() {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if e := l.bucket.find(l.keys.hash); e != nil {
		e.changes++
		e.askAt = time.Time{}
		e.kick()
	}
}

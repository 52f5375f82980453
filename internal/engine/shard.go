package engine

import (
	"sync"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// A shard holds the limiters whose keys hash alike, under one lock, which is held for bookkeeping only and
// never during a call. One idle limiter may stay, so that it need not learn again what it knows; a hundred
// thousand names that are used once leave nothing else behind.
type shard struct {
	mu     sync.Mutex
	first  *limiter
	free   *limiter // one that was evicted, kept for reuse
	closed bool
	health outage.Health // of a part of a divided Redis that cannot be told from others
	ready  []*flight     // they leave when the lock is free
	memory memory        // for outages
}

func (s *shard) lock() { s.mu.Lock() }

// unlock releases the lock, and starts the flights that became ready under it.
func (s *shard) unlock() {
	if len(s.ready) == 0 {
		s.mu.Unlock()
		return
	}
	var some [4]*flight // rarely are there more
	ready := append(some[:0], s.ready...)
	clear(s.ready)
	s.ready = s.ready[:0]
	s.mu.Unlock()
	for _, f := range ready {
		go f.fly()
	}
}

// findLocked returns the limiter with that key, or nil.
func (s *shard) findLocked(key string) *limiter {
	for l := s.first; l != nil; l = l.next {
		if l.h.key == key {
			return l
		}
	}
	return nil
}

// limiterLocked returns the limiter of h, and makes it if need be.
func (s *shard) limiterLocked(h *Handle) *limiter {
	l := s.findLocked(h.key)
	if l == nil {
		if l = s.free; l == nil {
			l = &limiter{shard: s}
		}
		s.free = nil
		l.h, l.next = h, s.first
		s.first = l
		s.evictIdleLocked(l)
	}
	return l
}

// evictIdleLocked removes all idle limiters except keep.
func (s *shard) evictIdleLocked(keep *limiter) {
	for at := &s.first; *at != nil; {
		if l := *at; l != keep && l.idleLocked() {
			*at = l.next
			l.resetLocked()
			s.free = l
		} else {
			at = &l.next
		}
	}
}

// close fails all requests and stops the timers. No flight leaves afterwards.
func (s *shard) close() {
	s.lock()
	s.closed = true
	var ended []*request
	for l := s.first; l != nil; l = l.next {
		ended = l.closeLocked(ended)
	}
	s.first = nil
	s.unlock()
	wake(ended)
}

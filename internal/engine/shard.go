// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/known"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A shard holds the limiters whose keys hash alike. It has one lock, which is held for bookkeeping only and never
// during a call. One idle limiter may stay, so that it need not learn again what it knows; a hundred thousand names
// that are used once leave nothing else behind.
type shard struct {
	sync.Mutex
	engine   *Engine
	limiters []*limiter
	byKey    map[link.QueueID]*limiter // the same; nil while there are few
	idle     *limiter                  // the one that was idle last; any other is in use
	free     *limiter                  // one that was evicted, kept for reuse
	closed   bool
	ready    []*flight      // they leave when the lock is free
	ended    []*request     // their callers go on when the lock is free
	memory   *outage.Memory // for outages; nil as long as no request has a policy

	rejections known.Rejections // of limiters that may be idle
}

// few is how many limiters a shard searches one by one, which is faster than a map.
const few = 8

// Unlock releases the lock, wakes the callers whose requests ended under it, and starts the flights that became ready.
func (s *shard) Unlock() {
	if len(s.ready) == 0 && len(s.ended) == 0 {
		s.Mutex.Unlock()
		return
	}
	var fewFlights [4]*flight // rarely are there more
	var fewRequests [16]*request
	ready, ended := append(fewFlights[:0], s.ready...), append(fewRequests[:0], s.ended...)
	clear(s.ready)
	clear(s.ended)
	s.ready, s.ended = s.ready[:0], s.ended[:0]
	s.Mutex.Unlock()
	for _, r := range ended {
		r.done <- struct{}{}
	}
	for _, f := range ready {
		go f.flies()
	}
}

// addLocked and removeLocked maintain the limiters, and the map that finds them when there are more than few.
func (s *shard) addLocked(l *limiter) {
	s.limiters = append(s.limiters, l)
	l.slot = len(s.limiters)
	switch {
	case s.byKey != nil:
		s.byKey[l.link.QueueID] = l
	case len(s.limiters) > few:
		s.byKey = make(map[link.QueueID]*limiter, 2*few)
		for _, l := range s.limiters {
			s.byKey[l.link.QueueID] = l
		}
	}
}

func (s *shard) removeLocked(l *limiter) {
	last := len(s.limiters) - 1
	s.limiters[l.slot-1] = s.limiters[last]
	s.limiters[l.slot-1].slot = l.slot
	s.limiters[last] = nil
	s.limiters, l.slot = s.limiters[:last], 0
	delete(s.byKey, l.link.QueueID)
	if last <= few/2 {
		s.byKey = nil
	}
}

// findLocked returns the limiter with that key, or nil.
func (s *shard) findLocked(key link.QueueID) *limiter {
	if s.byKey != nil {
		return s.byKey[key]
	}
	for _, l := range s.limiters {
		if l.link.QueueID == key {
			return l
		}
	}
	return nil
}

// rememberedLocked returns what is known of a limiter without Redis, or nil.
func (s *shard) rememberedLocked(key string) *outage.Ledger {
	if s.memory == nil {
		return nil
	}
	return s.memory.Find(key)
}

// usesLocked reports whether the process uses the limiter with that key.
func (s *shard) usesLocked(key string) bool { return s.findLocked(link.QueueID{Key: key}) != nil }

// limiterLocked returns the limiter of k, and makes it if need be.
func (s *shard) limiterLocked(k *link.Link) *limiter {
	l := s.findLocked(k.QueueID)
	if l == nil {
		if l = s.free; l == nil {
			l = &limiter{shard: s}
		}
		s.free = nil
		l.link = k
		s.addLocked(l)
		s.evictIdleLocked(l)
	}
	return l
}

// evictIdleLocked removes the idle limiter, if there is one, unless it is keep. The caller is about to use keep for
// the first time, or keep has just become idle. It is called whenever a limiter becomes idle, so there is never a
// second one.
func (s *shard) evictIdleLocked(keep *limiter) {
	if l := s.idle; l != nil && l != keep && l.slot > 0 && l.idleLocked() {
		s.removeLocked(l)
		l.resetLocked()
		s.free = l
	}
	s.idle = keep
}

// close fails all requests and stops the timers. No flight leaves afterwards.
func (s *shard) close() {
	s.Lock()
	s.closed = true
	for _, l := range slices.Clone(s.limiters) { // those that become idle leave
		l.closeLocked()
	}
	for len(s.limiters) > 0 {
		s.removeLocked(s.limiters[0])
	}
	s.Unlock()
}

// The methods below make a shard a link.Queue.

// Background runs f in a goroutine of its own, for which Close waits. It returns ErrClosed if the Engine is closed.
func (s *shard) Background(f func()) error {
	s.Lock()
	defer s.Unlock()
	if s.closed { // Close waits only for those counted before
		return permit.ErrClosed
	}
	s.engine.calls.Add(1)
	go func() {
		defer s.engine.calls.Done()
		f()
	}()
	return nil
}

// Changed wakes the callers in this process that wait for the limiter, and forgets its cached rejections.
func (s *shard) Changed(key string) {
	s.Lock()
	defer s.Unlock()
	s.rejections.ForgetLimiter(key)
	for _, l := range s.limiters {
		if l.link.Key == key {
			l.changes++
			l.first.askAt = time.Time{}
			l.scheduleLocked()
		}
	}
}

// Touch tells the fair share that a call which does not come from the queue begins or has ended.
func (s *shard) Touch(key string) {
	s.Lock()
	defer s.Unlock()
	if l := s.findLocked(link.QueueID{Key: key}); l != nil {
		l.share.Touch(time.Now())
	}
}

// Learn records what the reply to a call outside of the queue says about the rate.
func (s *shard) Learn(k *link.Link, a *permit.Reply, began time.Time) {
	s.Lock()
	defer s.Unlock()
	l := s.limiterLocked(k)
	l.learnRateLocked(a, began)
	l.failExceedingLocked(began)
}

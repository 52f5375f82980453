// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Handle is how a caller reaches one limiter: its wait queue in this process, and by the Link, for calls that do not come from
// the queue, its permits in Redis. It holds no state of the limiter; handles with the same QueueID share one.
type Handle struct {
	link.Link
	shard *shard
}

// Handle returns a Handle of the limiter with that key. Errors call the limiter name.
func (e *Engine) Handle(key, name string, b link.Backend) Handle {
	s := e.shardOf(key)
	return Handle{Link: link.Link{QueueID: link.QueueID{Key: key}, Name: name, Backend: b, System: &e.system, Queue: s}, shard: s}
}

// Lower returns a Handle of the same limiter for a lower class of requests, which are granted only if that many permits
// stay free. They have a wait queue of their own, reserve nothing, and during an outage are like any others.
func (h *Handle) Lower(floor int64) Handle {
	low := *h
	low.Floor = floor
	return low
}

// The methods below make a shard a link.Queue.

// Background runs f in a goroutine of its own, for which Close waits. It returns ErrClosed if the Engine is closed.
func (s *shard) Background(f func()) error {
	s.lock()
	defer s.unlock()
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

// Changed lets the callers in this process that wait for the limiter ask again at once, and forgets its rejections.
func (s *shard) Changed(key string) {
	s.lock()
	defer s.unlock()
	s.rejections.ForgetLimiter(key)
	for _, l := range s.limiters {
		if l.link.Key == key {
			l.changes++
			l.first.askAt = time.Time{}
			l.scheduleLocked()
		}
	}
}

// Touch tells the fair share that a call begins or has ended that does not come from the queue.
func (s *shard) Touch(key string) {
	s.lock()
	defer s.unlock()
	if l := s.findLocked(link.QueueID{Key: key}); l != nil {
		l.share.Touch(time.Now())
	}
}

// Learn takes in what the reply to a call outside of the queue says about the rate.
func (s *shard) Learn(k *link.Link, a *permit.Reply, began time.Time) {
	s.lock()
	defer s.unlock()
	s.limiterLocked(k).learnRateLocked(a, began)
}

// Health returns that of the limiters of the shard, if the part of Redis that holds each is not known.
func (s *shard) Health() *outage.Health { return &s.health }

// Lock locks the shard for a moment in which no flight becomes ready.
func (s *shard) Lock() { s.mu.Lock() }

// Unlock is the counterpart of Lock.
func (s *shard) Unlock() { s.mu.Unlock() }

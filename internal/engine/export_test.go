// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// CheckStates returns an error if a limiter is in a state that the comment of its type does not list.
func (e *Engine) CheckStates() error {
	for i := range e.shards {
		if err := e.shards[i].checkStates(); err != nil {
			return err
		}
	}
	return nil
}

func (s *shard) checkStates() error {
	s.Lock()
	defer s.Unlock()
	for _, l := range s.limiters {
		switch {
		case l.flights.ofQueue() > 1:
			return fmt.Errorf("%s has %d flights of the line in the air", l.link.Name, l.flights.ofQueue())
		case l.turn != nil && (l.flights.ofQueue() > 0 || l.gathering != nil):
			return fmt.Errorf("a caller has its turn at %s, beside a flight of the line or a gathering", l.link.Name)
		}
	}
	return nil
}

// Fired returns the functions that the timers of the limiter run: the timer of the queue and that of the local
// share. Tests call them to act as timers that have fired and wait for the lock. Both are nil if the process does
// not keep the limiter.
func (h *Handle) Fired() (line, local func()) {
	h.shard.Lock()
	defer h.shard.Unlock()
	l := h.shard.findLocked(h.QueueID)
	if l == nil {
		return nil, nil
	}
	return l.onTimer, l.onLocalTimer
}

// Same returns a value that stays the same as long as the process keeps the limiter, and nil if it does not keep
// it.
func (h *Handle) Same() any {
	h.shard.Lock()
	defer h.shard.Unlock()
	if l := h.shard.findLocked(h.QueueID); l != nil {
		return l
	}
	return nil
}

// Spare returns the limiter that the shard of h has evicted and will reuse.
func (h *Handle) Spare() any {
	h.shard.Lock()
	defer h.shard.Unlock()
	return h.shard.free
}

// The bounds that tests refer to.
const (
	MaxLocals    = outage.MaxLedgers
	MaxSlowTries = maxSlowTries
)

// Bend makes the queue lead into a ring after its first n callers, so that whoever walks along it never arrives.
// It returns a function that straightens the queue.
func (h *Handle) Bend(n int) func() {
	h.shard.Lock()
	defer h.shard.Unlock()
	at := h.shard.findLocked(h.QueueID).waiters.first
	for range n - 1 {
		at = at.next
	}
	next, ring := at.next, &request{}
	ring.next, at.next = ring, ring
	return func() {
		h.shard.Lock()
		defer h.shard.Unlock()
		at.next = next
	}
}

// BendShard makes whoever looks at all limiters in the shard of h, or finds one without the map, panic. It returns a
// function that undoes that.
func (h *Handle) BendShard() func() {
	h.shard.Lock()
	defer h.shard.Unlock()
	all := h.shard.limiters
	h.shard.limiters = make([]*limiter, len(all))
	return func() {
		h.shard.Lock()
		defer h.shard.Unlock()
		copy(h.shard.limiters, all)
	}
}

// CachedRejections returns how many rejections are kept.
func (e *Engine) CachedRejections() (n int) {
	for i := range e.shards {
		s := &e.shards[i]
		s.Lock()
		n += s.rejections.Len()
		s.Unlock()
	}
	return n
}

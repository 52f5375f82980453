// SPDX-License-Identifier: Apache-2.0

package list

import (
	"slices"
	"sync"
	"time"
)

// A contenders holds the lists of a Lists that would otherwise starve, in the order in which their callers
// came. A list may reserve if no older one in here wants a limiter that it wants. So no two lists can hold what
// the other waits for, and the oldest is never passed over.
type contenders struct {
	mu     sync.Mutex
	lists  []*waiter
	pauses map[string]time.Time // until when the limiter with that key is not reserved
}

func (c *contenders) enter(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.contends {
		return
	}
	w.contends = true
	if w.next == nil {
		w.next = make(chan struct{}, 1)
		for _, p := range w.parts {
			w.wants = append(w.wants, p.Handle.Key)
		}
	}
	i := len(c.lists)
	for i > 0 && c.lists[i-1].since.After(w.since) {
		i--
	}
	c.lists = slices.Insert(c.lists, i, w)
}

// leave removes w, and wakes the lists that have waited for it.
func (c *contenders) leave(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.contends {
		return
	}
	w.contends = false
	i := slices.Index(c.lists, w)
	c.lists = slices.Delete(c.lists, i, i+1)
	for i := range c.lists {
		if w.overlaps(c.lists[i]) && !c.behindLocked(i) {
			select {
			case c.lists[i].next <- struct{}{}:
			default:
			}
		}
	}
}

// behindLocked reports whether an older list wants a limiter that the i-th list wants.
func (c *contenders) behindLocked(i int) bool {
	return slices.ContainsFunc(c.lists[:i], c.lists[i].overlaps)
}

// mayReserve reports whether w may reserve now. Otherwise w has to wait for an older list or, if at is not
// zero, until that instant, at which the last of its limiters may be reserved again.
func (c *contenders) mayReserve(w *waiter) (ok bool, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.behindLocked(slices.Index(c.lists, w)) {
		return false, time.Time{}
	}
	now := time.Now()
	for _, key := range w.wants {
		until, paused := c.pauses[key]
		if paused && !until.After(now) {
			delete(c.pauses, key)
		} else if until.After(at) {
			at = until
		}
	}
	return at.IsZero(), at
}

// pause prevents the limiter from being reserved before the given instant.
func (c *contenders) pause(key string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for key, at := range c.pauses {
		if !at.After(now) {
			delete(c.pauses, key)
		}
	}
	if c.pauses == nil {
		c.pauses = map[string]time.Time{}
	}
	if until.After(now) && until.After(c.pauses[key]) {
		c.pauses[key] = until
	}
}

// Contending returns how many lists starve and reserve permits, or wait to do so.
func (ls *Lists) Contending() int {
	c := &ls.contenders
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lists)
}

func (w *waiter) overlaps(o *waiter) bool {
	return slices.ContainsFunc(w.wants, func(key string) bool { return slices.Contains(o.wants, key) })
}

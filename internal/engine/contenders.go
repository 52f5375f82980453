package engine

import (
	"slices"
	"sync"
	"time"
)

// contenders are the lists of an Engine that would starve, by the time at which their callers came. A list may
// reserve when no older one in here wants a limiter that it wants: so no two can hold what the other waits
// for, and the oldest is never passed.
type contenders struct {
	mu    sync.Mutex
	lists []*listWaiter
	rests map[string]time.Time // by hash key: until when the limiter is not reserved
}

func (c *contenders) enter(w *listWaiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.contends {
		return
	}
	w.contends = true
	if w.next == nil {
		w.next = make(chan struct{}, 1)
		for _, p := range w.parts {
			w.wants = append(w.wants, p.h.key)
		}
	}
	i := len(c.lists)
	for i > 0 && c.lists[i-1].seq > w.seq {
		i--
	}
	c.lists = slices.Insert(c.lists, i, w)
}

// leave takes w out, and wakes those that have waited for it.
func (c *contenders) leave(w *listWaiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.contends {
		return
	}
	w.contends = false
	i := slices.Index(c.lists, w)
	c.lists = slices.Delete(c.lists, i, i+1)
	for i := range c.lists {
		if w.overlaps(c.lists[i]) && !c.behind(i) {
			select {
			case c.lists[i].next <- struct{}{}:
			default:
			}
		}
	}
}

// behind reports whether an older list wants a limiter that the i-th wants. The lock is held.
func (c *contenders) behind(i int) bool {
	return slices.ContainsFunc(c.lists[:i], c.lists[i].overlaps)
}

// mayReserve reports whether it is w's turn to reserve. Otherwise it has to wait for an older list, or until
// the instant at which the last of its limiters may be reserved again.
func (c *contenders) mayReserve(w *listWaiter) (ok bool, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.behind(slices.Index(c.lists, w)) {
		return false, time.Time{}
	}
	now := time.Now()
	for _, hash := range w.wants {
		until, rests := c.rests[hash]
		if rests && !until.After(now) {
			delete(c.rests, hash)
		} else if until.After(at) {
			at = until
		}
	}
	return at.IsZero(), at
}

// rest has the limiter not reserved before that instant.
func (c *contenders) rest(hash string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for hash, at := range c.rests {
		if !at.After(now) {
			delete(c.rests, hash)
		}
	}
	if c.rests == nil {
		c.rests = map[string]time.Time{}
	}
	if until.After(now) && until.After(c.rests[hash]) {
		c.rests[hash] = until
	}
}

func (c *contenders) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lists)
}

func (w *listWaiter) overlaps(o *listWaiter) bool {
	return slices.ContainsFunc(w.wants, func(hash string) bool { return slices.Contains(o.wants, hash) })
}

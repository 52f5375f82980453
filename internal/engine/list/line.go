// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"slices"
	"sync"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// A line has the lists of a process that would otherwise starve, oldest first. Of those that share a limiter one at a time
// acquires its parts, so that little of what they share lies idle.
type line struct {
	mu    sync.Mutex
	lists []*series
	left  outage.Broadcast // a list has left
}

// enter lets s stand in line until it may begin, and reports false if ctx is done before that.
func (c *line) enter(ctx context.Context, s *series) bool {
	c.mu.Lock()
	i := 0
	for i < len(c.lists) && !c.lists[i].w.since.After(s.w.since) {
		i++
	}
	c.lists = slices.Insert(c.lists, i, s)
	c.mu.Unlock()
	for {
		left := c.left.Next()
		if c.begins(s) {
			return true
		}
		select {
		case <-left:
		case <-ctx.Done():
			return false
		}
	}
}

// begins reports whether s may begin: no other one that shares a limiter with it has begun, or is older.
func (c *line) begins(s *series) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	older := true
	for _, o := range c.lists {
		if o == s {
			older = false
		} else if (older || o.begun) && o.overlaps(s) {
			return false
		}
	}
	s.begun = true
	return true
}

func (c *line) leave(s *series) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.lists, s)
	c.lists = slices.Delete(c.lists, i, i+1)
	c.left.Happened()
}

// overlaps reports whether a limiter of s is one of o.
func (s *series) overlaps(o *series) bool {
	return slices.ContainsFunc(s.keys, func(key string) bool { return slices.Contains(o.keys, key) })
}

// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"slices"
	"sync"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// A line has the lists of a process that would otherwise starve, oldest first. Of those that share a limiter as many acquire their
// parts at a time as half of its rate is enough for, at least one, so that little of what they share lies idle.
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

// begins reports whether s may begin: none of the lists that have begun, or are older, shares a limiter with it, or half of what each
// shared limiter has in an interval is enough for all of them.
func (c *line) begins(s *series) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	older := true
	wants := make([]int64, len(s.keys)) // of each limiter by the others, or 0
	for _, o := range c.lists {
		if o == s {
			older = false
		} else if older || o.begun {
			for i, key := range s.keys {
				if j := slices.Index(o.keys, key); j >= 0 {
					wants[i] += o.parts[j].Permits
				}
			}
		}
	}
	for i, n := range wants {
		if n > 0 && n+s.parts[i].Permits > s.room[i] {
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

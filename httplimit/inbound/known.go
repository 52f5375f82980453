// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"sync"
	"time"
)

// rejections are what RRateLimiters last said when several rules were looked at. [ratelimiter.RateLimiter.CachedRejections] is for one that is
// asked alone.
type rejections struct {
	mu     sync.Mutex
	byName map[string]rejection
}

type rejection struct {
	part
	weight int64
	asked  time.Time // no later than the instant at which Redis decided
}

// maxRejections bounds the limiters of which a rejection is known.
const maxRejections = 4096

// of returns a rejection of s that is no older than bound and decides about a request of that weight.
func (c *rejections) of(s spend, weight int64, bound time.Duration) (part, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, ok := c.byName[s.name]
	passed := time.Since(x.asked)
	if !ok || weight < x.weight || weight > x.result.Rate.Permits || passed < 0 || passed >= min(bound, x.result.Wait) {
		return part{}, false
	}
	x.result.Wait -= passed
	return x.part, true
}

func (c *rejections) learn(p *part, weight int64, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil || len(c.byName) >= maxRejections {
		c.byName = map[string]rejection{}
	}
	c.byName[p.name] = rejection{part: *p, weight: weight, asked: asked}
}

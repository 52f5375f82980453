// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"sync"
	"time"
)

// rejections are the last rejections of RRateLimiters, for requests with several rules. A limiter that is asked alone
// uses [ratelimiter.RateLimiter.CachedRejections].
type rejections struct {
	mu     sync.Mutex
	byName map[string]rejection
}

type rejection struct {
	part
	weight int64
	asked  time.Time // no later than the instant at which Redis decided
}

// maxRejections is how many limiters' rejections are kept.
const maxRejections = 4096

// of returns a rejection of s that is no older than bound and applies to a request of the given weight.
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

// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"sync"
	"time"
)

// rejections are the last rejections of RRateLimiters, for requests with several rules. A limiter that is asked alone
// uses [ratelimiter.RateLimiter.CachedRejections].
type rejections struct {
	mu sync.Mutex
	of map[asked]rejection
}

// An asked is what was asked for. The wait of a request is not that of a heavier one.
type asked struct {
	limiter string
	weight  int64
}

type rejection struct {
	part
	begin time.Time // no later than the instant at which Redis decided
}

// maxRejections is how many limiters' rejections are kept.
const maxRejections = 4096

// known returns a rejection of s that is no older than bound.
func (c *rejections) known(s spend, bound time.Duration) (part, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, ok := c.of[asked{s.name, s.weight}]
	passed := time.Since(x.begin)
	if !ok || s.weight > x.result.Rate.Permits || passed < 0 || passed >= min(bound, x.result.Wait) {
		return part{}, false
	}
	x.result.Wait -= passed
	return x.part, true
}

func (c *rejections) learn(p *part, begin time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxRejections {
		c.of = map[asked]rejection{}
	}
	c.of[asked{p.name, p.weight}] = rejection{part: *p, begin: begin}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
)

// A pace counts what a limiter grants, from what Redis recorded. The instants at which workers learn of
// their grants could show more in a window than were granted. A grant that expires before pace has looked
// is not counted, so that it may count less, but never more.
type pace struct {
	limiter *ratelimiter.RateLimiter

	mu     sync.Mutex
	grants map[string]grant // by the member's bytes
}

type grant struct {
	at      time.Time
	permits int64
}

// watch calls look ten times an interval until ctx ends.
func (p *pace) watch(ctx context.Context, interval time.Duration) {
	for sleep(ctx, interval/10) == nil {
		p.look(ctx)
	}
}

// look adds the grants that are in Redis now. After an error the next call reads them.
func (p *pace) look(ctx context.Context) {
	state, err := p.limiter.Admin().Inspect(ctx)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range state.Members {
		if m.Time.UnixMilli() == 0 {
			continue // no grant, but a mark that waiters leave for callers of Redisson
		}
		p.grants[string(m.Raw)] = grant{m.Time, int64(m.Permits)}
	}
}

// most returns the most permits granted in any window of the interval. A window that begins with a grant
// ends before the instant at which the permits of that grant are back.
func (p *pace) most(interval time.Duration) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]grant, 0, len(p.grants))
	for _, g := range p.grants {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b grant) int { return a.at.Compare(b.at) })
	var most, inWindow int64
	first := 0
	for _, g := range all {
		inWindow += g.permits
		for !all[first].at.Add(interval).After(g.at) {
			inWindow -= all[first].permits
			first++
		}
		most = max(most, inWindow)
	}
	return most
}

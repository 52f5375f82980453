package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A pace counts what a limiter grants, from what Redis recorded: the instants at which workers notice
// a grant would show more in a window than there was. It sees a grant when it looks before that expires;
// one that it misses makes it count less, never more.
type pace struct {
	limiter *ratelimiter.RateLimiter

	mu     sync.Mutex
	grants map[string]grant // by the member's bytes
}

type grant struct {
	at      time.Time
	permits int64
}

// watch looks ten times as often as grants expire, until ctx ends.
func (p *pace) watch(ctx context.Context, interval time.Duration) {
	for retry.Sleep(ctx, interval/10) == nil {
		p.look(ctx)
	}
}

// look adds the grants that Redis holds now. What cannot be read now is read the next time.
func (p *pace) look(ctx context.Context) {
	state, err := p.limiter.Inspect(ctx)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range state.Members {
		if m.Time.UnixMilli() == 0 {
			continue // the tripwire of workers that wait, nobody's grant
		}
		p.grants[string(m.Raw)] = grant{m.Time, int64(m.Permits)}
	}
}

// most is the most permits granted in any window of the interval. One that begins with a grant ends
// before the instant at which its permits are back.
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

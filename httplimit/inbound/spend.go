// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/guard"
	"github.com/goredisson/ratelimiter/limit"
)

// A spend is a limiter of a rule that a request takes permits from.
type spend struct {
	rule *rule
	key  string // each of its parts with a colon before it
	name string // of the limiter: that of the rule, and the key

	weight int64 // how many permits
}

func (r *rule) spend(key string) spend {
	return spend{rule: r, key: key, name: r.Name + key, weight: 1}
}

// A part is what a limiter replied.
type part struct {
	spend
	limiter *ratelimiter.RateLimiter // nil where the rule has a Limiter
	result  ratelimiter.Result
	unknown bool // how many permits are left
	err     error
}

func (p *part) granted() bool  { return p.err == nil && p.result.Granted }
func (p *part) rejected() bool { return p.err == nil && !p.result.Granted }

// limiter returns the RRateLimiter of s. If it has no rate, it is new, has expired, or was deleted. Asking it before
// setting a rate needs no list of limiters that have one, and lets the outage policy decide first when Redis is
// unavailable.
func (m *Middleware) limiter(s spend) *ratelimiter.RateLimiter {
	l := m.client.RateLimiter(s.name).CachedRejections(m.cfg.known).WithRate(s.rule.now())
	if m.cfg.outage != nil {
		l = l.OnOutage(*m.cfg.outage)
	}
	return l
}

// allow asks one limiter.
func (m *Middleware) allow(ctx context.Context, s spend) part {
	if s.rule.LimiterFor != nil {
		return s.ask(func(l limit.Limiter) (ratelimiter.Result, error) { return l.Allow(ctx, s.weight) })
	}
	l := m.limiter(s)
	result, err := l.Allow(ctx, s.weight)
	return part{spend: s, limiter: l, result: result, err: err}
}

// ask asks the limiter of Rule.LimiterFor.
func (s spend) ask(do func(limit.Limiter) (ratelimiter.Result, error)) part {
	p := part{spend: s}
	panicked := guard.Call("Rule.LimiterFor", func() {
		l := s.rule.LimiterFor(strings.TrimPrefix(s.key, ":"))
		if l == nil {
			p.err = invalid("Rule.LimiterFor of %q returned nil", s.rule.Name)
			return
		}
		var r ratelimiter.Result
		r, p.err = do(l)
		p.result = r
		if rate := s.rule.rateOf(l); rate != (ratelimiter.Rate{}) {
			p.result.Rate = rate
		}
		// Under FailOpen nobody counts, and a request that passes has 0 left. A local quota does count.
		p.unknown = r.Degraded && r.Granted && r.Available == 0 && r.Reset == 0
	})
	if panicked != nil {
		p.err = panicked
	}
	return p
}

// allowAll takes permits of all limiters or of none, see [NewRules]. If a rejection is cached, it returns that part
// alone.
func (m *Middleware) allowAll(ctx context.Context, spends []spend) []part {
	for _, s := range spends {
		if p, ok := m.rejections.known(s, m.cfg.known); ok {
			return []part{p}
		}
	}
	parts, begin := make([]part, len(spends)), time.Now()
	var looks sync.WaitGroup
	for i, s := range spends {
		looks.Go(func() { parts[i] = m.peek(ctx, s) })
	}
	looks.Wait()
	passes := true
	for i := range parts {
		if p := &parts[i]; p.rejected() && p.rule.LimiterFor == nil { // others cache their own
			m.rejections.learn(p, begin)
		}
		passes = passes && parts[i].granted()
	}
	if passes {
		m.takeAll(ctx, parts)
	}
	return parts
}

// peek checks a limiter without taking permits. A limiter whose reply is not known before it is asked counts as one
// that grants: a RRateLimiter without a rate, and one whose outage policy decides. If ctx has ended, nothing more is asked.
func (m *Middleware) peek(ctx context.Context, s spend) part {
	if s.rule.LimiterFor != nil {
		return s.ask(func(l limit.Limiter) (ratelimiter.Result, error) { return l.Peek(ctx, s.weight) })
	}
	l := m.limiter(s)
	result, err := l.Peek(ctx, s.weight)
	if errors.Is(err, ratelimiter.ErrUnavailable) && ctx.Err() == nil {
		result, err = ratelimiter.Result{Granted: true}, nil
	} else if errors.Is(err, ratelimiter.ErrNotInitialized) {
		r := s.rule.now()
		result, err = ratelimiter.Result{Granted: true, Rate: r, Available: r.Permits}, nil
	}
	return part{spend: s, limiter: l, result: result, err: err}
}

// takeAll takes the permits of limiters that would all have granted them when they were checked.
func (m *Middleware) takeAll(ctx context.Context, parts []part) {
	var demands []ratelimiter.Demand
	for _, p := range parts {
		if p.rule.LimiterFor == nil {
			demands = append(demands, ratelimiter.Demand{Limiter: p.limiter, Permits: p.weight})
		}
	}
	giveBack, ok := m.takeTogether(ctx, parts, demands)
	if !ok {
		return
	}
	for i := range parts {
		s := parts[i].spend
		if s.rule.LimiterFor == nil {
			continue
		}
		parts[i] = s.ask(func(l limit.Limiter) (ratelimiter.Result, error) { return l.Allow(ctx, s.weight) })
		if !parts[i].granted() {
			giveBack()
			return
		}
	}
}

// takeTogether takes the permits of the RRateLimiters among parts; giveBack gives them back.
func (m *Middleware) takeTogether(ctx context.Context, parts []part, demands []ratelimiter.Demand) (giveBack func(), ok bool) {
	if len(demands) == 0 {
		return func() {}, true
	}
	var all ratelimiter.AllResult
	var grants []*ratelimiter.Grant
	var err error
	if len(demands) == len(parts) { // nothing comes after it: no grant is a member of its own
		all, err = m.client.TryAcquireAll(ctx, 0, demands...)
	} else {
		grants, all, err = m.client.TryAcquireAllGrants(ctx, 0, demands...)
	}
	bound := max(0, slices.IndexFunc(demands, func(d ratelimiter.Demand) bool { return d.Limiter == all.RejectedBy }))
	at := 0
	for i := range parts {
		p := &parts[i]
		if p.rule.LimiterFor != nil {
			continue
		}
		p.err, p.result.Degraded = err, all.Degraded
		if all.Granted {
			p.result = taken(p.result, p.weight)
		} else if at == bound {
			p.result.Granted, p.result.Wait, p.result.Available = false, all.Wait, min(p.result.Available, p.weight-1)
		}
		at++
	}
	giveBack = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.longest)
		defer cancel()
		for _, g := range grants {
			_ = g.Cancel(ctx) // what cannot be given back stays taken until it expires
		}
	}
	return giveBack, all.Granted
}

// taken returns r as it is after permits were taken.
func taken(r ratelimiter.Result, permits int64) ratelimiter.Result {
	if r.Available = max(r.Available-permits, 0); r.Available < r.Rate.Permits {
		r.Reset = r.Rate.Interval // all permits are back then at the latest
	}
	return r
}

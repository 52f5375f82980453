// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Demand asks for a number of permits of one limiter; see [Client.TryAcquireAll].
type Demand struct {
	Limiter *RateLimiter
	Permits int64
}

// An AllResult is the outcome of [Client.TryAcquireAll].
type AllResult struct {
	// Granted reports whether all permits were acquired.
	Granted bool
	// RejectedBy is the limiter that rejected the request, the one with the longest wait if several did, and nil if
	// Granted is true.
	RejectedBy *RateLimiter
	// Wait is how long it takes until RejectedBy could grant its part, provided that nobody else acquires first. It is 0
	// if Granted is true. With an error it is the last wait known, if all demands were for one limiter.
	Wait time.Duration
	// Degraded reports that an [OutagePolicy] decided at least one part.
	Degraded bool
}

// TryAcquireAll acquires permits of several limiters, all of them or none, waiting for them until timeout is over. With
// timeout <= 0 it asks once. Demands for the same limiter are added up, with the strictest [OutagePolicy] of any, the
// most that any leaves free, and the rate that any carries.
//
// One script decides up to 6 limiters at one instant, if their keys are in one hash slot or Redis is neither a cluster
// nor a ring. Otherwise the limiters are asked in turn, and what some granted before another rejects is given back.
//
// A call that waits for longer than an interval may hold permits of a limiter while it waits for others, for at most
// eight of its intervals. They lie idle, and other callers wait. See "Several limiters at once" in
// docs/design/engine.md.
//
// It returns the errors of [RateLimiter.TryAcquire], such as ErrUnavailable, and ErrInvalidArgument for no demand, more
// than 64, or a limiter of another Client. After an error it has given back what was granted.
func (c *Client) TryAcquireAll(ctx context.Context, timeout time.Duration, demands ...Demand) (AllResult, error) {
	return c.acquireAll(ctx, timeout > 0, engine.Deadline(timeout), demands, nil)
}

// AcquireAll is like [Client.TryAcquireAll] but waits as long as it takes. An outage of Redis ends the wait with
// ErrUnavailable, as with [RateLimiter.Acquire].
func (c *Client) AcquireAll(ctx context.Context, demands ...Demand) error {
	_, err := c.acquireAll(ctx, true, time.Time{}, demands, nil)
	return err
}

// TryAcquireAllGrants is like [Client.TryAcquireAll] and also returns a [Grant] for each limiter, in the order in which
// the demands first name them; there are none if the permits were rejected. It returns the same errors, such as
// ErrUnavailable.
func (c *Client) TryAcquireAllGrants(ctx context.Context, timeout time.Duration, demands ...Demand) (grants []*Grant, r AllResult, err error) {
	wait, deadline := timeout > 0, engine.Deadline(timeout)
	r, err = c.acquireAll(ctx, wait, deadline, demands, &grants)
	slices.SortFunc(grants, func(a, b *Grant) int {
		return cmp.Compare(slices.IndexFunc(demands, a.isOf), slices.IndexFunc(demands, b.isOf))
	})
	return grants, r, err
}

func (g *Grant) isOf(d Demand) bool { return g.limiter.redis.Keys.Hash == d.key() }

// acquireAll appends the grants to own, if that is not nil.
func (c *Client) acquireAll(ctx context.Context, wait bool, deadline time.Time, demands []Demand, own *[]*Grant) (got AllResult, err error) {
	first := ""
	if len(demands) > 0 && demands[0].Limiter != nil {
		first = demands[0].Limiter.name
	}
	demands, err = c.distinct(ctx, demands)
	if c != nil && c.hooked {
		permits := int64(0)
		for _, d := range demands {
			permits += d.Permits
		}
		r := c.hooks.begin(ctx, OperationAll, first, permits, wait && err == nil)
		defer func() {
			if r.Degraded = got.Degraded; got.RejectedBy != nil {
				r.Limiter = got.RejectedBy.name
			}
			r.end(got.Granted, deadline.Sub(r.Begin), err)
		}()
	}
	if err != nil {
		return got, err
	}
	byContext := false
	if wait && c.cfg.rejectEarly {
		deadline, byContext = boundByContext(ctx, deadline)
	}
	for sets := (carriedSets{}); ; {
		got, err = c.acquireOnce(ctx, wait, deadline, demands, own)
		if err == nil || !sets.again(ctx, &err, demands...) {
			break
		}
	}
	if byContext && err == nil && !got.Granted {
		name := first
		if got.RejectedBy != nil {
			name = got.RejectedBy.name
		}
		err = permit.TooLate(name, got.Wait)
	}
	return got, err
}

func (c *Client) acquireOnce(ctx context.Context, wait bool, deadline time.Time, demands []Demand, own *[]*Grant) (AllResult, error) {
	parts := make([]list.Demand, len(demands))
	for i, d := range demands {
		parts[i] = list.Demand{Handle: &d.Limiter.handle, Permits: d.Permits, Policy: d.Limiter.want.Policy, Own: own != nil,
			Floor: d.Limiter.want.Floor, Age: d.Limiter.want.Age}
	}
	var a list.Outcome
	var err error
	if wait {
		a, err = c.lists.Wait(ctx, parts, deadline)
	} else {
		a, err = c.lists.Allow(ctx, parts)
	}
	if err != nil {
		return AllResult{Wait: a.Wait}, err
	}
	r := AllResult{Granted: a.Granted, Wait: a.Wait, Degraded: a.Degraded}
	if a.Bound >= 0 {
		r.RejectedBy = demands[a.Bound].Limiter
	}
	if a.Granted && own != nil {
		for i, d := range demands {
			g := &Grant{limiter: d.Limiter, permits: d.Permits}
			if len(a.Asked) > 0 {
				g.asked = a.Asked[i]
			}
			*own = append(*own, g)
		}
	}
	return r, nil
}

// distinct returns the demands with each limiter once, in the order of the keys.
func (c *Client) distinct(ctx context.Context, demands []Demand) (list []Demand, err error) {
	if ctx == nil {
		return nil, invalid("the context is nil")
	}
	if c == nil || c.engine == nil {
		return nil, errNotMade
	}
	if len(demands) == 0 {
		return nil, invalid("asked for several limiters without any demand")
	}
	if len(demands) > maxDemands {
		return nil, invalid("asked for several limiters with %d demands, of which there may be %d", len(demands), maxDemands)
	}
	for _, d := range demands {
		if d.Limiter == nil {
			return nil, invalid("a demand for %d permits has no limiter", d.Permits)
		}
		if d.Limiter.client != c {
			return nil, invalid("limiter %q belongs to another Client; make it with the RateLimiter method of this one", d.Limiter.name)
		}
		if err := d.Limiter.checkPermits(ctx, d.Permits); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(list, func(o Demand) bool { return o.key() == d.key() })
		if i < 0 {
			list = append(list, d)
			continue
		}
		list[i].Permits += d.Permits
		if list[i].Limiter, err = merged(list[i].Limiter, d.Limiter); err != nil {
			return nil, err
		}
		if err := d.Limiter.checkPermits(ctx, list[i].Permits); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b Demand) int { return cmp.Compare(a.key(), b.key()) })
	return list, nil
}

// merged returns one handle for two demands of a limiter, whichever comes first: it leaves free what the one leaves that leaves
// more, carries the rate that either carries, and has the stricter policy.
func merged(a, b *RateLimiter) (*RateLimiter, error) {
	if b.want.Floor > a.want.Floor {
		a, b = b, a
	}
	if a.rate != nil && b.rate != nil && *a.rate != *b.rate {
		return nil, invalid("the demands for %q carry two rates, %v and %v", a.name, *a.rate, *b.rate)
	}
	one := *a
	one.rate = cmp.Or(a.rate, b.rate)
	if strictness(b.want.Policy) > strictness(a.want.Policy) {
		one.want.Policy = b.want.Policy
	}
	if one.rate == a.rate && one.want.Policy == a.want.Policy {
		return a, nil
	}
	return &one, nil
}

// strictness returns a number that is larger for a policy that grants less.
func strictness(p *outage.Policy) int {
	switch {
	case p == nil:
		return 2
	case p.Kind == outage.LocalQuota:
		return 1
	}
	return 0
}

func (d Demand) key() string { return d.Limiter.redis.Keys.Hash }

// maxDemands is the largest number of demands in one call. If no script decides them all, each costs a round trip.
const maxDemands = 64

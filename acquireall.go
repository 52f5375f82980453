// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/list"
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
	// Limiter is the limiter that rejected; if several did, the one with the longest wait. It is nil if Granted
	// is true.
	Limiter *RateLimiter
	// Wait is how long it takes until Limiter could grant its part, provided that nobody else acquires first.
	// It is 0 if Granted is true. With an error it is the wait as far as it was known, for a demand of one limiter.
	Wait time.Duration
	// Degraded reports that Redis was unavailable and an [OutagePolicy] decided at least one part.
	Degraded bool
}

// TryAcquireAll acquires permits of several limiters, all of them or none, waiting for them until timeout is over; with
// timeout <= 0 it asks once. If they were rejected, the AllResult reports which limiter did. Demands for the same limiter
// are added up.
//
// Up to 6 limiters are decided by one script at one instant, if their keys are in one hash slot or Redis is neither a
// cluster nor a ring. Otherwise TryAcquireAll asks one after another, in the order of their keys, and gives back what was
// granted when one rejects; in the meantime other callers may be rejected permits that nobody gets.
//
// Calls of one Client that wait for the same limiter are served in the order in which they came. A call that is passed
// over for longer than an interval reserves its permits: for one interval at most, other callers of a limiter wait until
// the reservation is complete, in all processes. In the long run no more than a tenth of a limiter's rate lies idle for
// the reservations of a Client. See docs/design/engine.md.
//
// TryAcquireAll returns the same errors as [RateLimiter.TryAcquire], such as ErrUnavailable, and ErrInvalidArgument if
// there is no demand or a limiter belongs to another Client. After an error, and at once when ctx is done, what was
// granted or reserved goes back.
func (c *Client) TryAcquireAll(ctx context.Context, timeout time.Duration, demands ...Demand) (AllResult, error) {
	if timeout <= 0 {
		return c.acquireAll(ctx, false, time.Time{}, demands, nil)
	}
	return c.acquireAll(ctx, true, time.Now().Add(timeout), demands, nil)
}

// AcquireAll acquires permits of several limiters, all of them or none, waiting as long as it takes; while Redis is
// unavailable, until ErrUnavailable after the time that [WithOutageLimit] sets. In every other respect it is like
// [Client.TryAcquireAll].
func (c *Client) AcquireAll(ctx context.Context, demands ...Demand) (AllResult, error) {
	return c.acquireAll(ctx, true, time.Time{}, demands, nil)
}

// TryAcquireAllGrants is [Client.TryAcquireAll] with a [Grant] for each limiter, in the order in which the demands name them,
// which can be settled one by one. There are none if the permits were rejected. It has the same errors, such as
// ErrUnavailable.
func (c *Client) TryAcquireAllGrants(ctx context.Context, timeout time.Duration, demands ...Demand) (AllResult, []*Grant, error) {
	var grants []*Grant
	wait, deadline := timeout > 0, deadlineAfter(timeout)
	r, err := c.acquireAll(ctx, wait, deadline, demands, &grants)
	slices.SortFunc(grants, func(a, b *Grant) int {
		return cmp.Compare(slices.IndexFunc(demands, a.isOf), slices.IndexFunc(demands, b.isOf))
	})
	return r, grants, err
}

func (g *Grant) isOf(d Demand) bool { return g.limiter.redis.Keys.Hash == d.key() }

// acquireAll appends the grants to own, if that is not nil.
func (c *Client) acquireAll(ctx context.Context, wait bool, deadline time.Time, demands []Demand, own *[]*Grant) (AllResult, error) {
	if c != nil && c.hooked {
		return c.acquireAllHooked(ctx, wait, deadline, demands, own)
	}
	demands, err := c.distinct(ctx, demands)
	if err != nil {
		return AllResult{}, err
	}
	return c.acquireDistinct(ctx, wait, deadline, demands, own)
}

// acquireDistinct acquires the permits of demands that [Client.distinct] has returned.
func (c *Client) acquireDistinct(ctx context.Context, wait bool, deadline time.Time, demands []Demand, own *[]*Grant) (AllResult, error) {
	return carry(ctx, demands, func() (AllResult, error) { return c.acquireOnce(ctx, wait, deadline, demands, own) })
}

func (c *Client) acquireOnce(ctx context.Context, wait bool, deadline time.Time, demands []Demand, own *[]*Grant) (AllResult, error) {
	parts, age := make([]list.Demand, len(demands)), time.Duration(0)
	for i, d := range demands {
		parts[i] = list.Demand{Handle: d.Limiter.in(true), Permits: d.Permits, Policy: d.Limiter.policy, Own: own != nil}
		age = max(age, d.Limiter.ageing())
	}
	waitIn := func(ctx context.Context, lower bool, deadline time.Time) (list.Outcome, error) {
		for i, d := range demands {
			parts[i].Handle = d.Limiter.in(lower)
		}
		return c.lists.Wait(ctx, parts, deadline)
	}
	var a list.Outcome
	var err error
	switch {
	case !wait:
		a, err = c.lists.Allow(ctx, parts)
	case age > 0:
		a, err = whileYoung(ctx, age, deadline, waitIn)
	default:
		a, err = waitIn(ctx, false, deadline)
	}
	if err != nil {
		return AllResult{Wait: a.Wait}, err
	}
	r := AllResult{Granted: a.Granted, Wait: a.Wait, Degraded: a.Degraded}
	if a.Bound >= 0 {
		r.Limiter = demands[a.Bound].Limiter
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
func (c *Client) distinct(ctx context.Context, demands []Demand) ([]Demand, error) {
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
	var list []Demand
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
		if d.Limiter.floor() > list[i].Limiter.floor() {
			list[i].Limiter = d.Limiter
		}
		if err := d.Limiter.checkPermits(ctx, list[i].Permits); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b Demand) int { return cmp.Compare(a.key(), b.key()) })
	return list, nil
}

func (d Demand) key() string { return d.Limiter.redis.Keys.Hash }

// maxDemands is the largest number of demands in one call. Each costs a round trip where no script decides them
// all.
const maxDemands = 64

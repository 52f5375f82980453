package ratelimiter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
)

// A Demand is a number of permits of one limiter.
type Demand struct {
	Limiter *RateLimiter
	Permits int64
}

// An AllResult is the answer to a TryAcquireAll.
type AllResult struct {
	// Granted says whether all permits were acquired.
	Granted bool
	// Limiter is the one that bound: of those that refused, the one with the longest wait. It is nil
	// when Granted.
	Limiter *RateLimiter
	// Wait is how long until Limiter could grant its part, if nobody else acquires first. It is 0 when
	// Granted.
	Wait time.Duration
	// Degraded says that Redis was away and an outage policy decided at least one part.
	Degraded bool
}

// TryAcquireAll acquires permits of several limiters, all of them or none, waiting at most timeout; with
// timeout <= 0 it asks once. The answer names the limiter that bound. Demands of the same limiter are
// added up.
//
// Where all keys are in one hash slot (or the Redis is no cluster and no ring), and there are at most 6
// limiters, one script decides at one instant. Otherwise the limiters are asked one after another, in the
// order of their keys, and what was granted is given back when one refuses: then others may for a moment be
// refused what nobody gets.
//
// A caller that waits stands in the line of the limiter that bound, among that limiter's other callers
// of this Client, by the time at which it came; the permits of the other limiters are free for others
// meanwhile. A list that is passed over, because its limiters refuse it in turns or one has refused it for
// longer than an interval, reserves its permits: it gathers them in Redis as they come back, and is granted
// all of them when it has them. They count in the window from the instant of the grant on.
//
// That is bounded for others. While permits of a limiter are gathered, its other callers of this Client wait:
// for an interval of that limiter at most, and where other processes take permits of it too, for four. What
// has been gathered is kept for four intervals at most, counted from the beginning, and goes back at once
// when another limiter is known to take longer, as in a cool-down. In the long run no more than a tenth of a limiter's
// rate lies idle for the lists of a Client: afterwards the limiter is left alone until that is made up for,
// at most ten times as long as the attempt took, 40 intervals.
//
// Of lists that want the same limiter one at a time does so, the oldest first. Where only callers of this
// Client compete, an attempt takes about an interval. Where other processes do too, a list competes with them
// for each permit as it comes back, and keeps those that it has got; it is not promised to win. A process that
// takes every permit at the instant at which it comes back can keep a list waiting for as long as it does so.
//
// When ctx is done it returns at once; what was granted or reserved at that moment goes back.
//
// Errors are those of TryAcquire, and ErrInvalidArgument when there is no demand or a limiter is of
// another Client. Then nothing is kept.
func (c *Client) TryAcquireAll(ctx context.Context, timeout time.Duration, demands ...Demand) (AllResult, error) {
	if timeout <= 0 {
		return c.acquireAll(ctx, false, time.Time{}, demands)
	}
	return c.acquireAll(ctx, true, time.Now().Add(timeout), demands)
}

// AcquireAll acquires permits of several limiters, all of them or none, waiting as long as it takes. It
// answers nil when it has them. Everything else is as TryAcquireAll has it.
func (c *Client) AcquireAll(ctx context.Context, demands ...Demand) error {
	_, err := c.acquireAll(ctx, true, time.Time{}, demands)
	return err
}

func (c *Client) acquireAll(ctx context.Context, wait bool, deadline time.Time, demands []Demand) (AllResult, error) {
	demands, err := c.distinct(ctx, demands)
	if err != nil {
		return AllResult{}, err
	}
	list := make([]engine.Demand, len(demands))
	for i, d := range demands {
		list[i] = engine.Demand{Handle: &d.Limiter.handle, Permits: d.Permits, Policy: d.Limiter.policy}
	}
	a, err := c.engine.AcquireAll(ctx, list, wait, deadline)
	if err != nil {
		return AllResult{}, err
	}
	r := AllResult{Granted: a.Granted, Wait: a.Wait, Degraded: a.Degraded}
	if a.Bound >= 0 {
		r.Limiter = demands[a.Bound].Limiter
	}
	return r, nil
}

// distinct returns the demands, each limiter once, in the order of the keys.
func (c *Client) distinct(ctx context.Context, demands []Demand) ([]Demand, error) {
	if len(demands) == 0 {
		return nil, invalid("there is no demand")
	}
	if len(demands) > maxDemands {
		return nil, invalid("%d demands are more than %d", len(demands), maxDemands)
	}
	var list []Demand
	for _, d := range demands {
		if d.Limiter == nil {
			return nil, invalid("a demand without a limiter")
		}
		if d.Limiter.client != c {
			return nil, invalid("%q is a limiter of another client", d.Limiter.name)
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
		if err := d.Limiter.checkPermits(ctx, list[i].Permits); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b Demand) int { return cmp.Compare(a.key(), b.key()) })
	return list, nil
}

func (d Demand) key() string { return d.Limiter.redis.Keys.Hash }

// maxDemands bounds the demands of one call; each is a round trip where the limiters are apart.
const maxDemands = 64

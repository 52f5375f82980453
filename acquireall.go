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
	// Limiter is the limiter that refused; if several did, the one with the longest wait. It is nil if Granted
	// is true.
	Limiter *RateLimiter
	// Wait is how long it takes until Limiter could grant its part, provided that nobody else acquires first.
	// It is 0 if Granted is true.
	Wait time.Duration
	// Degraded reports that Redis was unavailable and an [OutagePolicy] decided at least one part.
	Degraded bool
}

// TryAcquireAll acquires permits of several limiters, all of them or none, waiting for them until timeout is
// over; with timeout <= 0 it asks once. If it was refused, the AllResult names the limiter to blame. Demands
// for the same limiter are added up.
//
// If all keys are in one hash slot, or Redis is neither a cluster nor a ring, and there are at most 6 limiters,
// one script decides all of them at one instant. Otherwise TryAcquireAll asks the limiters one after another,
// in the order of their keys, and returns what was granted when one of them refuses. In that case other callers
// may for a moment be refused permits that nobody gets.
//
// A caller that waits stands in the line of the limiter that refused it, in the order in which the callers of
// this Client came; meanwhile the permits of the other limiters are free for others. A list that is passed
// over, because its limiters refuse it in turns or because one has refused it for longer than an interval,
// reserves its permits: it takes them in Redis ahead of their return, and is granted all of them when they have
// come back. They count in the window from the instant of the grant on.
//
// What a reservation costs other callers is bounded. While permits of a limiter are taken ahead, its other callers
// wait, in all processes: for one interval of that limiter at most. Then nobody takes permits of it ahead for a while.
// Permits that have come back are kept for four intervals at most, counted from the beginning,
// and go back at once when another limiter is known to take longer, as in a cool-down. In the long run no more
// than a tenth of a limiter's rate lies idle for the lists of a Client: after an attempt the limiter is not
// reserved again until the idle time is made up for, which takes at most ten times as long as the attempt and
// at most 40 intervals.
//
// Lists that want the same limiter reserve one at a time, the oldest first. An attempt takes about one interval,
// also if other processes take every permit at the instant at which it comes back. Callers in other processes that
// take permits ahead, too, are served before it if they came first.
//
// When ctx is done, TryAcquireAll returns at once, and what was granted or reserved at that moment goes back.
//
// TryAcquireAll returns the same errors as [RateLimiter.TryAcquire], such as ErrUnavailable, and ErrInvalidArgument if
// there is no demand or a limiter belongs to another Client. After an error no permits are kept.
func (c *Client) TryAcquireAll(ctx context.Context, timeout time.Duration, demands ...Demand) (AllResult, error) {
	if timeout <= 0 {
		return c.acquireAll(ctx, false, time.Time{}, demands)
	}
	return c.acquireAll(ctx, true, time.Now().Add(timeout), demands)
}

// AcquireAll acquires permits of several limiters, all of them or none, waiting as long as it takes; while Redis is
// unavailable, until ErrUnavailable after the time that [WithOutageLimit] sets. In every other respect it is like
// [Client.TryAcquireAll].
func (c *Client) AcquireAll(ctx context.Context, demands ...Demand) error {
	_, err := c.acquireAll(ctx, true, time.Time{}, demands)
	return err
}

func (c *Client) acquireAll(ctx context.Context, wait bool, deadline time.Time, demands []Demand) (AllResult, error) {
	if c != nil && c.hooks.ofRequests() {
		return c.acquireAllHooked(ctx, wait, deadline, demands)
	}
	demands, err := c.distinct(ctx, demands)
	if err != nil {
		return AllResult{}, err
	}
	return c.acquireDistinct(ctx, wait, deadline, demands)
}

// acquireDistinct acquires the permits of demands that [Client.distinct] has returned.
func (c *Client) acquireDistinct(ctx context.Context, wait bool, deadline time.Time, demands []Demand) (AllResult, error) {
	parts := make([]list.Demand, len(demands))
	for i, d := range demands {
		parts[i] = list.Demand{Handle: &d.Limiter.handle, Permits: d.Permits, Policy: d.Limiter.policy}
	}
	var a list.Outcome
	var err error
	if wait {
		a, err = c.lists.Wait(ctx, parts, deadline)
	} else {
		a, err = c.lists.Try(ctx, parts)
	}
	if err != nil {
		return AllResult{}, err
	}
	r := AllResult{Granted: a.Granted, Wait: a.Wait, Degraded: a.Degraded}
	if a.Bound >= 0 {
		r.Limiter = demands[a.Bound].Limiter
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

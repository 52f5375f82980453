// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
)

// A contestant is one kind of limiter, with parameters that make it comparable: the rate of the traffic, and
// room for the permits of one interval wherever it has room for some.
type contestant struct {
	name      string
	algorithm func(limit.Rate) limit.Algorithm
	redisson  bool // it is an RRateLimiter; algorithm only has the same bound
}

func theContestants() []contestant {
	perSecond := func(r limit.Rate) float64 { return float64(r.Permits) / r.Interval.Seconds() }
	return []contestant{
		{name: "FixedWindow", algorithm: func(r limit.Rate) limit.Algorithm { return limit.FixedWindow{Rate: r} }},
		{name: "SlidingLog", algorithm: func(r limit.Rate) limit.Algorithm { return limit.SlidingLog{Rate: r} }},
		{name: "RRateLimiter", redisson: true, algorithm: func(r limit.Rate) limit.Algorithm { return limit.SlidingLog{Rate: r} }},
		{name: "SlidingCounter", algorithm: func(r limit.Rate) limit.Algorithm { return limit.SlidingCounter{Rate: r} }},
		{name: "IntervalBucket", algorithm: func(r limit.Rate) limit.Algorithm {
			return limit.IntervalBucket{Rate: r, Burst: r.Permits}
		}},
		{name: "TokenBucket", algorithm: func(r limit.Rate) limit.Algorithm {
			return limit.TokenBucket{Rate: r, Burst: r.Permits}
		}},
		{name: "GCRA", algorithm: func(r limit.Rate) limit.Algorithm { return limit.GCRA{Rate: r, Burst: r.Permits} }},
		{name: "DebtBucket", algorithm: func(r limit.Rate) limit.Algorithm {
			return limit.DebtBucket{Rate: r, Burst: r.Permits, Debt: r.Permits}
		}},
		{name: "LeakyQueue", algorithm: func(r limit.Rate) limit.Algorithm {
			return limit.LeakyQueue{Rate: r, Capacity: r.Permits}
		}},
		{name: "SmoothBursty", algorithm: func(r limit.Rate) limit.Algorithm {
			return limit.SmoothBursty{PermitsPerSecond: perSecond(r), MaxBurst: r.Interval}
		}},
		{name: "SmoothWarmingUp", algorithm: func(r limit.Rate) limit.Algorithm {
			return limit.SmoothWarmingUp{PermitsPerSecond: perSecond(r), Warmup: r.Interval}
		}},
	}
}

// chosen returns the contestants of those names, in the order of theContestants; all if names is empty.
func chosen(names []string) ([]contestant, error) {
	all := theContestants()
	if len(names) == 0 {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[strings.ToLower(strings.TrimSpace(n))] = true
	}
	var who []contestant
	var known []string
	for _, c := range all {
		known = append(known, c.name)
		if wanted[strings.ToLower(c.name)] {
			who = append(who, c)
			delete(wanted, strings.ToLower(c.name))
		}
	}
	for _, n := range names {
		if wanted[strings.ToLower(strings.TrimSpace(n))] {
			return nil, fmt.Errorf("--limiter: there is no %q; there are %s", n, strings.Join(known, ", "))
		}
	}
	return who, nil
}

// An asker asks a limiter for permits. A limiter that can grant permits ahead of their time does so up to
// atMost.
type asker func(ctx context.Context, n int64, atMost time.Duration) (limit.Result, error)

// asker makes the limiter in rdb. An RRateLimiter is one of client's.
func (c contestant) asker(ctx context.Context, rdb *redis.Client, client *ratelimiter.Client, r limit.Rate) (asker, error) {
	if c.redisson {
		l := client.RateLimiter(c.name)
		rate := ratelimiter.Rate{Type: ratelimiter.Overall, Permits: r.Permits, Interval: r.Interval}
		if err := l.SetRate(ctx, rate); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		adapted := limit.NewAdapter(l)
		return func(ctx context.Context, n int64, _ time.Duration) (limit.Result, error) {
			return adapted.Allow(ctx, n)
		}, nil
	}
	l, err := limit.NewShared(rdb, c.name, c.algorithm(r), limit.WithoutCachedRejections()) // only the clock of Redis moves
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return l.Reserve, nil
}

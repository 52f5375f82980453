// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goredisson/ratelimiter"
)

const (
	oursKey    = "ours"
	endableKey = "ours-endable"
)

// ours is this library, through its public API.
type ours struct {
	rdb    redis.UniversalClient
	client *ratelimiter.Client
	// endable reports whether its contexts can be cancelled, as those of requests to a server can. Then each
	// caller must be able to return while its call is in flight, which takes another goroutine.
	endable bool
}

func newOurs(rdb redis.UniversalClient, endable bool) *ours {
	client, err := ratelimiter.New(rdb)
	if err != nil { // rdb is nil
		panic(err)
	}
	return &ours{rdb, client, endable}
}

func (o *ours) on(rdb redis.UniversalClient) (contestant, error) { return newOurs(rdb, o.endable), nil }

func (o *ours) about() about {
	if o.endable {
		return about{key: endableKey, title: "this library, contexts that can end", version: "this commit", keeps: true, again: true}
	}
	return about{key: oursKey, title: "**this library**", version: "this commit", keeps: true}
}

func (o *ours) open(ctx context.Context, j job) (session, error) {
	if err := writeRates(ctx, o.rdb, j); err != nil {
		return nil, err
	}
	limiters := make([]*ratelimiter.RateLimiter, j.limiters)
	for i := range limiters {
		limiters[i] = o.client.RateLimiter(j.name(i))
	}
	return &goSession{
		ask: func(ctx context.Context, pick uint64) (int64, error) {
			if !o.endable {
				ctx = context.Background()
			}
			granted, err := limiters[pick%uint64(len(limiters))].TryAcquire(ctx, 1, 0)
			return permit(granted), err
		},
		count: func(ctx context.Context) (int64, error) { return spentPermits(ctx, o.rdb, j) },
		in:    redissonKeys(j),
	}, nil
}

func (o *ours) wait(ctx context.Context, name string, callers int, stagger time.Duration) ([]time.Time, error) {
	limiter := o.client.RateLimiter(name)
	return arrive(ctx, callers, stagger, func(ctx context.Context) error { return limiter.Acquire(ctx, 1) })
}

func (o *ours) close() error {
	if err := o.client.Close(); err != nil {
		return err
	}
	return o.rdb.Close()
}

func redissonKeys(j job) []string {
	return []string{j.prefix, valueKey(j.prefix), permitsKey(j.prefix)}
}

func permit(granted bool) int64 {
	if granted {
		return 1
	}
	return 0
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
)

// The two limiters here keep one instant, the theoretical arrival time (TAT), which each grant moves ahead by
// the emission interval. If the emission interval is long compared with the run, the TAT counts the grants: it
// is ahead of the first one by so many intervals.

// emission is also how long a limiter with one grant is kept. Multiplied by plenty it must be less than 292
// years, the longest time.Duration.
const emission = time.Minute

// countedByTAT returns how many grants the TATs of a job's limiters stand for. The first grants were made less
// than an emission interval after opened.
func countedByTAT(ctx context.Context, j job, opened time.Time, tat func(name string) (time.Time, error)) (int64, error) {
	total := int64(0)
	for _, name := range j.names() {
		at, err := tat(name)
		if err == redis.Nil {
			continue // it had no request
		}
		if err != nil {
			return 0, err
		}
		total += int64(at.Sub(opened) / emission)
	}
	return total, ctx.Err()
}

// redisRate is github.com/go-redis/redis_rate.
type redisRate struct {
	rdb        redis.UniversalClient
	limiter    *redis_rate.Limiter
	key, title string
	end        func() error // nil if only the client is to be closed; otherwise it comes first
}

const redisRateKey = "redis_rate"

func newRedisRate(rdb redis.UniversalClient) *redisRate {
	return &redisRate{rdb: rdb, limiter: redis_rate.NewLimiter(rdb), key: redisRateKey, title: "go-redis/redis_rate (GCRA)"}
}

func (r *redisRate) on(rdb redis.UniversalClient) (contestant, error) {
	switch r.key {
	case redisRateKey:
		return newRedisRate(rdb), nil
	case autoPipelineKey:
		return newAutoPipelined(rdb)
	}
	return nil, fmt.Errorf("%s has a client of its own", r.key)
}

func (r *redisRate) about() about {
	return about{key: r.key, title: r.title, version: moduleVersion("github.com/go-redis/redis_rate/v10"),
		beside: true, pipelined: r.end != nil}
}

func (r *redisRate) open(ctx context.Context, j job) (session, error) {
	opened, err := redisNow(ctx, r.rdb)
	if err != nil {
		return nil, err
	}
	names := j.names()
	permits, interval := j.refill()
	limit := redis_rate.Limit{Rate: int(permits), Period: interval, Burst: int(j.permits)}
	return &goSession{
		ask: func(ctx context.Context, pick uint64) (int64, error) {
			answer, err := r.limiter.Allow(ctx, names[pick%uint64(len(names))], limit)
			if err != nil {
				return 0, err
			}
			return int64(answer.Allowed), nil
		},
		count: func(ctx context.Context) (int64, error) {
			// Its seconds count from 2017.
			epoch := time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)
			return countedByTAT(ctx, j, opened, func(name string) (time.Time, error) {
				seconds, err := r.rdb.Get(ctx, "rate:"+name).Float64()
				// Rounded up, since its script keeps five decimal places.
				return epoch.Add(time.Duration((seconds + 2e-5) * 1e9)), err
			})
		},
		in: []string{"rate:" + j.prefix},
	}, nil
}

func (r *redisRate) close() error {
	if r.end != nil {
		if err := r.end(); err != nil {
			return err
		}
	}
	return r.rdb.Close()
}

// throttledGCRA is github.com/throttled/throttled with its store for go-redis v9.
type throttledGCRA struct {
	rdb   *redis.Client
	store *goredisstore.GoRedisStore
}

func newThrottled(addr string, pool int) (*throttledGCRA, error) {
	rdb := newClient(addr, pool)
	store, err := goredisstore.NewCtx(rdb, "throttled:")
	return &throttledGCRA{rdb, store}, err
}

func (t *throttledGCRA) about() about {
	return about{key: "throttled", title: "throttled (GCRA by compare and swap)", version: moduleVersion("github.com/throttled/throttled/v2"),
		fallible: true, beside: true, reads: true}
}

func (t *throttledGCRA) open(ctx context.Context, j job) (session, error) {
	opened, err := redisNow(ctx, t.rdb)
	if err != nil {
		return nil, err
	}
	permits, interval := j.refill()
	limiter, err := throttled.NewGCRARateLimiterCtx(t.store,
		throttled.RateQuota{MaxRate: throttled.PerDuration(int(permits), interval), MaxBurst: int(j.permits) - 1})
	if err != nil {
		return nil, err
	}
	names := j.names()
	return &goSession{
		ask: func(ctx context.Context, pick uint64) (int64, error) {
			limited, _, err := limiter.RateLimitCtx(ctx, names[pick%uint64(len(names))], 1)
			if err != nil {
				return 0, err
			}
			return permit(!limited), nil
		},
		count: func(ctx context.Context) (int64, error) {
			return countedByTAT(ctx, j, opened, func(name string) (time.Time, error) {
				text, err := t.rdb.Get(ctx, "throttled:"+name).Result()
				if err != nil {
					return time.Time{}, err
				}
				nanos, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return time.Time{}, fmt.Errorf("throttled keeps %q: %w", text, err)
				}
				return time.Unix(0, nanos), nil
			})
		},
		in: []string{"throttled:" + j.prefix},
	}, nil
}

func (t *throttledGCRA) close() error { return t.rdb.Close() }

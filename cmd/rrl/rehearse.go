// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/embedredis"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

// mostCopied is how many members a limiter has at most that is copied for a change without --write.
const mostCopied = 100_000

// rehearse copies the limiter of st into a Redis of its own, whose clock stands still at the instant of st. A change
// there is what it would be without the calls of others meanwhile. The caller calls end, also after an error.
func rehearse(ctx context.Context, from redis.UniversalClient, st *survey.State) (to *redis.Client, end func(), err error) {
	s, err := embedredis.Start()
	if err != nil {
		return nil, func() {}, err
	}
	s.SetTime(st.Time)
	to = s.NewClient()
	end = func() { _ = to.Close(); s.Close() }
	for _, key := range redisson.NewKeys(st.Name, st.ClientID).All(permit.Overall) {
		if err := copyKey(ctx, from, to, key); err != nil {
			return to, end, err
		}
	}
	return to, end, nil
}

// copyKey copies a key of a limiter with its TTL. Of a key that no limiter has, it copies that it is of another type.
func copyKey(ctx context.Context, from, to redis.UniversalClient, key string) error {
	typ, err := from.Type(ctx, key).Result()
	if err != nil {
		return err
	}
	switch typ {
	case "none":
		return nil
	case "hash":
		var fields map[string]string
		if fields, err = from.HGetAll(ctx, key).Result(); err == nil && len(fields) > 0 {
			err = to.HSet(ctx, key, fields).Err()
		}
	case "string":
		var value string
		if value, err = from.Get(ctx, key).Result(); err == nil {
			err = to.Set(ctx, key, value, 0).Err()
		}
	case "zset":
		err = copySet(ctx, from, to, key)
	default:
		err = to.RPush(ctx, key, typ).Err()
	}
	if err != nil && err != redis.Nil { // it has gone
		return err
	}
	ttl, err := from.PTTL(ctx, key).Result()
	if err == nil && ttl > 0 {
		err = to.PExpire(ctx, key, ttl).Err()
	}
	return err
}

// copySet copies a set of permits in steps.
func copySet(ctx context.Context, from, to redis.UniversalClient, key string) error {
	n, err := from.ZCard(ctx, key).Result()
	if err != nil {
		return err
	}
	if n > mostCopied {
		return fmt.Errorf("nothing was changed; what would be is not worked out for the %d members of %q, more than %d; --write changes it", n, key, mostCopied)
	}
	const step = 500
	for i := int64(0); i < n; i += step {
		part, err := from.ZRangeWithScores(ctx, key, i, i+step-1).Result()
		if err != nil || len(part) == 0 {
			return err
		}
		if err := to.ZAdd(ctx, key, part...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The functions in this file read and write Redisson's keys without the library, since a benchmark must not rely on
// what it measures. docs/design/protocol.md describes the keys.

func valueKey(name string) string   { return "{" + name + "}:value" }
func permitsKey(name string) string { return "{" + name + "}:permits" }

// writeRates gives limiters an OVERALL rate.
func writeRates(ctx context.Context, rdb redis.UniversalClient, j job) error {
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range j.names() {
			p.HSet(ctx, name, "rate", j.permits, "interval", j.interval.Milliseconds(), "type", 0, "keepAliveTime", 0)
		}
		return nil
	})
	return err
}

// permitsOf returns the permits of a member, which are at its end.
func permitsOf(member string) int64 {
	if len(member) < 8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint32([]byte(member[len(member)-4:])))
}

// addUp calls judge with the value and the permits in the set of each limiter that had a request, and returns the
// sum of the results.
func addUp(ctx context.Context, rdb redis.UniversalClient, j job, judge func(name string, value, used int64) (int64, error)) (int64, error) {
	total := int64(0)
	for _, name := range j.names() {
		used, err := usedPermits(ctx, rdb, name, "-inf")
		if err != nil {
			return 0, err
		}
		value, err := rdb.Get(ctx, valueKey(name)).Int64()
		if err == redis.Nil && used == 0 {
			continue // it had no request
		}
		if err != nil {
			return 0, fmt.Errorf("value of %s: %w", name, err)
		}
		n, err := judge(name, value, used)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// spentPermits returns the permits in the members of all limiters, and checks each sum against the limiter's value.
func spentPermits(ctx context.Context, rdb redis.UniversalClient, j job) (int64, error) {
	return addUp(ctx, rdb, j, func(name string, value, used int64) (int64, error) {
		if value+used != j.permits {
			return 0, fmt.Errorf("%s: value %d and %d permits in the set do not make up its rate %d", name, value, used, j.permits)
		}
		return used, nil
	})
}

// takenPermits is spentPermits for a lossy contestant. It returns what the values lack; the sets may hold less, but
// no more.
func takenPermits(ctx context.Context, rdb redis.UniversalClient, j job) (int64, error) {
	return addUp(ctx, rdb, j, func(name string, value, used int64) (int64, error) {
		taken := j.permits - value
		if used > taken || used < taken*9/10 {
			return 0, fmt.Errorf("%s: %d permits are gone from its value and %d are in the set", name, taken, used)
		}
		return taken, nil
	})
}

// usedPermits returns the permits in the members from a score on.
func usedPermits(ctx context.Context, rdb redis.UniversalClient, name, from string) (int64, error) {
	members, err := rdb.ZRangeArgs(ctx, redis.ZRangeArgs{Key: permitsKey(name), Start: from, Stop: "+inf", ByScore: true}).Result()
	used := int64(0)
	for _, m := range members {
		used += permitsOf(m)
	}
	return used, err
}

// seedMembers adds count members of one permit each to a limiter of so many permits, so that none is left. The score
// of the i-th is at(i), in ms.
func seedMembers(ctx context.Context, rdb redis.UniversalClient, name string, count int, interval time.Duration, at func(i int) int64) error {
	if err := writeRates(ctx, rdb, job{prefix: name, limiters: 1, permits: int64(count), interval: interval}); err != nil {
		return err
	}
	if err := rdb.Set(ctx, valueKey(name), strconv.Itoa(0), 0).Err(); err != nil {
		return err
	}
	const page = 10_000
	for from := 0; from < count; from += page {
		members := make([]redis.Z, min(page, count-from))
		for i := range members {
			members[i] = redis.Z{Score: float64(at(from + i)), Member: seedMember()}
		}
		added, err := rdb.ZAdd(ctx, permitsKey(name), members...).Result()
		if err != nil {
			return err
		}
		if added != int64(len(members)) {
			return fmt.Errorf("%d members of %d were new", added, len(members))
		}
	}
	return nil
}

// seedMember returns a member of one permit that every version of Redisson can read: the permits are in bytes 4 to 7,
// for 3.15.5, and at the end.
func seedMember() string {
	var m [21]byte
	binary.LittleEndian.PutUint64(m[9:], rand.Uint64())
	binary.LittleEndian.PutUint32(m[1:], rand.Uint32())
	m[0] = 16
	binary.LittleEndian.PutUint32(m[4:], 1)
	binary.LittleEndian.PutUint32(m[17:], 1)
	return string(m[:])
}

// redisNow returns the time of Redis.
func redisNow(ctx context.Context, rdb redis.UniversalClient) (time.Time, error) {
	return rdb.Time(ctx).Result()
}

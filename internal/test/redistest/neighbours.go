// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Neighbours fills a Redis with some 250 keys of made-up programs, none of them a limiter's, although many have names, types or
// fields like one. It returns the names that somebody who goes by names alone would take for limiters.
func Neighbours(t testing.TB, rdb redis.UniversalClient) (names []string) {
	t.Helper()
	do := func(args ...any) {
		require.NoError(t, rdb.Do(t.Context(), args...).Err(), "%v", args)
	}
	now := time.Now().UnixMilli()
	for i := range 12 {
		// What programs keep that have nothing to do with limiters.
		do("hset", fmt.Sprint("spring:session:sessions:", i), "creationTime", now, "maxInactiveInterval", 1800, "lastAccessedTime", now)
		do("set", fmt.Sprint("spring:session:sessions:expires:", i), "")
		do("hset", fmt.Sprint("cart:", i), "sku-1", 2, "type", "guest", "rate", "0.19")
		do("zadd", fmt.Sprint("{board", i, "}:scores"), 12, "ann", 9, "bob")
		do("hset", fmt.Sprint("bull:mail:", i), "name", "send", "data", "{}", "timestamp", now, "attempts", 3)
		do("set", fmt.Sprint("feature:{checkout}:", i), "on")
		do("hset", fmt.Sprint("{map", i, "}"), "a", "1")
		do("zadd", fmt.Sprint("redisson__timeout__set:{map", i, "}"), now, "a")
		do("hset", fmt.Sprintf("lock%d", i), "285475da-9152-4c83-822a-67ee2f116a79:52", 1)
		do("hset", fmt.Sprintf("{bloom%d}:config", i), "size", 95850, "hashIterations", 7, "expectedInsertions", 10000, "falseProbability", "0.01")
		do("set", fmt.Sprintf("semaphore%d", i), i)
		do("zadd", fmt.Sprintf("{semaphore%d}:timeout", i), now, "b6a1c8d2e4f60718")
		do("set", fmt.Sprintf("{expirable%d}:permits", i), 3)
		do("zadd", fmt.Sprintf("{expirable%d}:timeout", i), now, "b6a1c8d2e4f60718")

		// What a name or a type has in common with those of limiters.
		do("hset", fmt.Sprint("sensor:", i), "type", "temperature", "interval", "5m", "rate", 10)
		do("hset", fmt.Sprint("device:", i), "type", 1, "interval", 5000, "rate", 10, "unit", "C")
		do("hset", fmt.Sprint("loan:", i), "type", 1, "interval", 12, "rate", "0.035")
		do("set", fmt.Sprintf("{tenant-%d}:value", i), "hello")
		do("set", fmt.Sprintf("{counter-%d}:value", i), i)
		do("set", fmt.Sprintf("{user%d}:profile:value", i), "x")
		do("zadd", fmt.Sprintf("{building%d}:permits", i), 3, "ann", 5, "bob")
		do("sadd", fmt.Sprintf("{user%d}:permits:admin", i), "read", "write")
		names = append(names, fmt.Sprint("sensor:", i), fmt.Sprint("device:", i), fmt.Sprint("loan:", i), fmt.Sprint("tenant-", i), fmt.Sprint("counter-", i),
			fmt.Sprintf("{user%d}:profile", i), fmt.Sprint("building", i), fmt.Sprint("user", i), fmt.Sprint("expirable", i))
	}
	for _, key := range []string{"queue:default", "celery", "unacked_index", "resque:failed"} {
		do("rpush", key, "job")
	}
	do("sadd", "queues", "default")
	do("zadd", "schedule", now, `{"class":"Job"}`)
	do("hset", "stat", "processed", 12, "failed", 1)

	// What is made to look nearly like a limiter's: a whole number beside a set of grants, but for one thing.
	for name, members := range map[string][]any{
		"near-21":      {now, "exactly-21-characters"},
		"near-20":      {now, "exactly20-characters"},
		"near-13":      {now, "13-characters"},
		"near-8":       {now, "ann-1234", now, "bob-5678"},
		"near-binary":  {now, "\x00\x00\x01\x00\x00\x00\x00\x00", now, "\x00\x00\x00\x02\x00\x00\x00\x4d"},
		"near-none":    {now, "\x10" + strings.Repeat("i", 16) + "\x00\x00\x00\x00"},
		"near-score":   {5, "\x04\x04\x04\x04\x01\x00\x00\x00"},
		"near-seconds": {now / 1000, "\x04\x04\x04\x04\x01\x00\x00\x00"},
		"near-mixed":   {now, "\x10" + strings.Repeat("i", 16) + "\x01\x00\x00\x00", now, "room 12"},
	} {
		do("set", "{"+name+"}:value", 7)
		do(append([]any{"zadd", "{" + name + "}:permits"}, members...)...)
		names = append(names, name)
	}
	// The set is one of grants, and the value is a text, or is not there.
	grant := "\x10" + strings.Repeat("i", 16) + "\x01\x00\x00\x00"
	do("set", "{near-text}:value", "open")
	do("zadd", "{near-text}:permits", now, grant)
	do("zadd", "{near-alone}:permits", now, grant)
	do("set", "{near-queue}:ahead", "ann 12 5")
	do("hset", "near-fields", "rate", 10, "interval", "often", "type", "hourly", "keepAliveTime", 60)
	return append(names, "near-text", "near-alone", "near-queue", "near-fields")
}

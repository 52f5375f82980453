// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// The functions in this file read and write Redisson's keys without the library, since a benchmark must not rely on what it
// measures. docs/design/protocol.md describes the keys.

func valueKey(name string) string   { return "{" + name + "}:value" }
func permitsKey(name string) string { return "{" + name + "}:permits" }

// openRedisson returns a session of limiters in Redisson's keys, without ask.
func openRedisson(t require.TestingT, at place, j job) *session {
	rdb, ctx := at.client(), context.Background()
	redistest.Must(rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range j.Limiters {
			p.HSet(ctx, j.name(i), "rate", j.Permits, "interval", j.Interval.Milliseconds(), "type", 0, "keepAliveTime", 0)
		}
		return nil
	}))(t)
	s := &session{rdb: rdb, close: func() { _ = rdb.Close() },
		held: func(ctx context.Context, told []int64) error { return heldIn(ctx, rdb, j, told, false) }}
	if j.Limiters == 1 {
		s.keys = keysOf(j.name(0))
	}
	return s
}

func keysOf(name string) []string { return []string{name, valueKey(name), permitsKey(name)} }

func keysOfAll(j job) (keys [][]string) {
	for i := range j.Limiters {
		keys = append(keys, keysOf(j.name(i)))
	}
	return keys
}

// heldIn compares what callers were told with the values of the limiters and the members of their sets. The sets of a lossy
// contestant may hold a little less than the values tell, since two of its grants can become one member.
func heldIn(ctx context.Context, rdb redis.UniversalClient, j job, told []int64, lossy bool) error {
	var total, want int64
	for _, n := range told {
		want += n
	}
	values, sets := make([]*redis.StringCmd, j.Limiters), make([]*redis.StringSliceCmd, j.Limiters)
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range values {
			values[i], sets[i] = p.Get(ctx, valueKey(j.name(i))), p.ZRange(ctx, permitsKey(j.name(i)), 0, -1)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for i := range values {
		used := permitsIn(sets[i].Val())
		value, err := values[i].Int64()
		if errors.Is(err, redis.Nil) && used == 0 {
			continue // it had no request
		}
		taken := j.Permits - value
		if err != nil || used > taken || used < taken && (!lossy || used < taken*9/10) {
			return cmp.Or(err, fmt.Errorf("%s: %d permits are gone from its value and %d are in the set", j.name(i), taken, used))
		}
		total += taken
	}
	if total > want || total < want && !j.Expires || total == 0 {
		return fmt.Errorf("callers were told of %d permits, and Redis holds %d", want, total)
	}
	return nil
}

// permitsIn adds up the permits of members, which are at their ends.
func permitsIn(members []string) (total int64) {
	for _, m := range members {
		total += int64(binary.LittleEndian.Uint32([]byte(m[len(m)-4:])))
	}
	return total
}

// seedMember returns a member of one permit that every version of Redisson can read: the permits are in bytes 4 to 7, for 3.15.5,
// and at the end.
func seedMember() string {
	var m [21]byte
	binary.LittleEndian.PutUint64(m[9:], rand.Uint64())
	binary.LittleEndian.PutUint32(m[1:], rand.Uint32())
	m[0] = 16
	binary.LittleEndian.PutUint32(m[4:], 1)
	binary.LittleEndian.PutUint32(m[17:], 1)
	return string(m[:])
}

// seed takes all permits of the first limiter of a job, each with a member of its own, whose score is at(i) in ms.
func seed(t require.TestingT, rdb redis.UniversalClient, j job, at func(i int) int64) {
	const page = 10_000
	for from := 0; from < int(j.Permits); from += page {
		members := make([]redis.Z, min(page, int(j.Permits)-from))
		for i := range members {
			members[i] = redis.Z{Score: float64(at(from + i)), Member: seedMember()}
		}
		require.EqualValues(t, len(members), rdb.ZAdd(context.Background(), permitsKey(j.name(0)), members...).Val())
	}
	require.NoError(t, rdb.Set(context.Background(), valueKey(j.name(0)), 0, 0).Err())
}

// openOurs opens this library, by its public API.
func openOurs(t require.TestingT, at place, j job) *session {
	s := openRedisson(t, at, j)
	client := redistest.Must(ratelimiter.New(s.rdb))(t)
	limiters := make([]*ratelimiter.RateLimiter, j.Limiters)
	for i := range limiters {
		limiters[i] = client.RateLimiter(j.name(i))
	}
	s.ask = func(ctx context.Context, i int) (bool, error) { return limiters[i].TryAcquire(ctx, 1, 0) }
	s.wait = func(t require.TestingT, callers int, apart time.Duration) []time.Time {
		return arrive(t, callers, apart, func(ctx context.Context) error { return limiters[0].Acquire(ctx, 1) })
	}
	s.close = func() { _, _ = client.Close(), s.rdb.Close() }
	return s
}

// openScript opens the acquire script that Redisson sends, by plain go-redis, with one EVALSHA an acquire. Its text comes from
// the wire.
func openScript(t require.TestingT, at place, j job) *session {
	script, keys := redis.NewScript(scriptText(t)), make([][]string, j.Limiters)
	s := openRedisson(t, at, j)
	for i := range keys {
		const id = ":00000000-0000-0000-0000-000000000000" // of Redisson's client
		value, permits := valueKey(j.name(i)), permitsKey(j.name(i))
		keys[i] = []string{j.name(i), value, value + id, permits, permits + id}
	}
	acquire := func(ctx context.Context, i int) (wait int64, err error) { // ms; 0 if it is granted
		random := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, rand.Uint64()), rand.Uint64())
		wait, err = script.EvalSha(ctx, s.rdb, keys[i], 1, time.Now().UnixMilli(), random).Int64()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		return max(1, wait), err
	}
	s.ask = func(ctx context.Context, i int) (bool, error) {
		wait, err := acquire(ctx, i)
		return wait == 0, err
	}
	// It does what Redisson's acquire does: it asks, sleeps as long as it is told, and asks again.
	s.wait = func(t require.TestingT, callers int, apart time.Duration) []time.Time {
		return arrive(t, callers, apart, func(ctx context.Context) error {
			wait, err := acquire(ctx, 0)
			for ; err == nil && wait > 0; wait, err = acquire(ctx, 0) {
				time.Sleep(time.Duration(wait) * time.Millisecond)
			}
			return err
		})
	}
	require.NoError(t, script.Load(context.Background(), s.rdb).Err())
	return s
}

//go:embed least.lua
var leastText string

// openLeast opens the floor of the format: the least script that Redisson's keys allow, on a client that gathers all calls
// into pipelines over one connection. It has none of the promises of this library.
func openLeast(t require.TestingT, at place, j job) *session {
	s := openRedisson(t, at, j)
	client := redistest.Must(rueidis.NewClient(rueidis.ClientOption{InitAddress: at.addrs, DisableCache: true, AlwaysPipelining: true}))(t)
	script, keys := rueidis.NewLuaScript(leastText), keysOfAll(j)
	s.ask = func(ctx context.Context, i int) (bool, error) {
		reply, err := script.Exec(ctx, client, keys[i], []string{seedMember()}).AsIntSlice()
		return err == nil && reply[2] == 0, err
	}
	s.close = func() { client.Close(); _ = s.rdb.Close() }
	return s
}

// openLeastByGoRedis is openLeast with plain go-redis, one EVALSHA a request.
func openLeastByGoRedis(t require.TestingT, at place, j job) *session {
	s := openRedisson(t, at, j)
	script, keys := redis.NewScript(leastText), keysOfAll(j)
	s.ask = func(ctx context.Context, i int) (bool, error) {
		reply, err := script.EvalSha(ctx, s.rdb, keys[i], seedMember()).Int64Slice()
		return err == nil && reply[2] == 0, err
	}
	require.NoError(t, script.Load(context.Background(), s.rdb).Err())
	return s
}

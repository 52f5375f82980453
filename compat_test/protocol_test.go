// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
)

// TestRedissonHash checks what Redisson writes to the limiter's hash.
func TestRedissonHash(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		for _, c := range []struct{ typ, wire string }{{"OVERALL", "0"}, {"PER_CLIENT", "1"}} {
			want := map[string]string{"rate": "5", "interval": "10000", "type": c.wire}
			if v.since("3.38.0") {
				want["keepAliveTime"] = "0"
			}
			for _, operation := range []string{"trySetRate", "setRate"} {
				name := redistest.Key(t)
				p.must(t, operation, name, c.typ, 5, 10*time.Second)
				require.Equal(t, want, rdb.HGetAll(t.Context(), name).Val(), "%s %s", operation, c.typ)
				require.EqualValues(t, -1, rdb.PTTL(t.Context(), name).Val())
				require.False(t, p.truth(t, "trySetRate", name, "OVERALL", 6, 20*time.Second))
				require.Equal(t, want, rdb.HGetAll(t.Context(), name).Val(), "a rejected trySetRate changes nothing")
			}
		}
	})
}

// TestRedissonKeepAlive checks the field that 3.38.0 added, and the TTL that follows from it.
func TestRedissonKeepAlive(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		for _, operation := range []string{"trySetRate", "setRate"} {
			name := redistest.Key(t)
			p.must(t, operation, name, "OVERALL", 5, 10*time.Second, time.Minute)
			require.Equal(t, "60000", rdb.HGet(t.Context(), name, "keepAliveTime").Val())
			require.InDelta(t, 60000, rdb.PTTL(t.Context(), name).Val().Milliseconds(), 1000)
		}
		_, err := p.call("trySetRate", redistest.Key(t), "OVERALL", 5, 10*time.Second, time.Second)
		var thrown *javaError
		require.ErrorAs(t, err, &thrown)
		require.Equal(t, "IllegalArgumentException", thrown.Class)
	}, from("3.38.0"))
}

// TestRedissonTTLRule checks that since 3.17.3 an acquire copies the hash's TTL to the state.
func TestRedissonTTLRule(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		name := redistest.Key(t)
		p.must(t, "trySetRate", name, "OVERALL", 5, 10*time.Second)
		require.True(t, p.truth(t, "expire", name, time.Minute))
		require.True(t, p.truth(t, "tryAcquire", name, 2))
		for _, key := range []string{"{" + name + "}:value", "{" + name + "}:permits"} {
			ttl := rdb.PTTL(t.Context(), key).Val()
			if v.since("3.17.3") {
				require.InDelta(t, 60000, ttl.Milliseconds(), 1000, key)
			} else {
				require.EqualValues(t, -1, ttl, key)
			}
		}
	})
}

// TestRedissonMembers checks the bytes of a grant, version by version, and that our codec reads them.
func TestRedissonMembers(t *testing.T) {
	const permits = 0x01020304
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		var size int
		var prefix []byte
		format := wire.FormatBc0I
		switch {
		case v.since("3.21.0"):
			size, prefix = 21, []byte{16}
		case v.since("3.17.0"):
			size, prefix = 13, []byte{8}
		case v.since("3.16.4"):
			size, prefix, format = 20, binary.LittleEndian.AppendUint64(nil, 8), wire.FormatLc0I
		default:
			size, format = 8, wire.FormatFI
		}
		for _, typ := range []string{"OVERALL", "PER_CLIENT"} {
			name := redistest.Key(t)
			suffix := ""
			if typ == "PER_CLIENT" {
				suffix = ":" + p.id
			}
			p.must(t, "trySetRate", name, typ, 2*permits, 10*time.Second)
			began := p.number(t, "currentTimeMillis")
			require.True(t, p.truth(t, "tryAcquire", name, permits))
			ended := p.number(t, "currentTimeMillis")
			keys := redistest.Must(rdb.Keys(t.Context(), "*"+name+"*").Result())(t)
			require.ElementsMatch(t, []string{name, "{" + name + "}:value" + suffix, "{" + name + "}:permits" + suffix}, keys)
			require.Equal(t, strconv.Itoa(permits), rdb.Get(t.Context(), "{"+name+"}:value"+suffix).Val())
			members := rdb.ZRangeWithScores(t.Context(), "{"+name+"}:permits"+suffix, 0, -1).Val()
			require.Len(t, members, 1)
			require.GreaterOrEqual(t, int64(members[0].Score), began, "the score is this JVM's clock")
			require.LessOrEqual(t, int64(members[0].Score), ended)
			bytes := []byte(members[0].Member.(string))
			require.Len(t, bytes, size)
			require.Equal(t, string(prefix), string(bytes[:len(prefix)]))
			require.EqualValues(t, permits, binary.LittleEndian.Uint32(bytes[size-4:]))
			member := redistest.Must(wire.ParseMember(bytes))(t)
			require.Equal(t, format, member.Format)
			require.EqualValues(t, permits, member.Permits)
		}
	})
}

// TestRedissonAnswers checks what each version returns to its callers.
func TestRedissonAnswers(t *testing.T) {
	versionsAbreast(t, func(t testing.TB, v version) {
		p := fleet.peer(t, v)
		name := redistest.Key(t)

		for _, call := range [][]any{{"tryAcquire", name, 1}, {"availablePermits", name}, {"acquire", name, 1}} {
			_, err := p.call(call[0].(string), call[1:]...)
			require.ErrorContains(t, err, "RateLimiter is not initialized", "%v", call)
		}
		config, err := p.call("getConfig", name)
		if v.since("3.18.0") {
			require.NoError(t, err)
			require.Equal(t, "OVERALL 0 0", config)
		} else {
			require.ErrorContains(t, err, "RedisException")
		}
		require.False(t, p.truth(t, "isExists", name))
		require.EqualValues(t, -2, p.number(t, "remainTimeToLive", name))
		require.False(t, p.truth(t, "delete", name))

		require.True(t, p.truth(t, "trySetRate", name, "OVERALL", 3, 400*time.Millisecond))
		require.False(t, p.truth(t, "trySetRate", name, "PER_CLIENT", 9, time.Hour))
		require.Equal(t, "OVERALL 3 400", p.must(t, "getConfig", name))
		require.True(t, p.truth(t, "isExists", name))
		require.EqualValues(t, -1, p.number(t, "remainTimeToLive", name))

		excess := "Requested permits amount cannot exceed defined rate"
		if !v.since("3.35.0") {
			excess = "Requested permits amount could not exceed defined rate"
		}
		for _, call := range [][]any{{"tryAcquire", name, 4}, {"tryAcquire", name, 4, time.Second}, {"acquire", name, 4}} {
			_, err := p.call(call[0].(string), call[1:]...)
			require.ErrorContains(t, err, excess, "%v", call)
		}

		require.EqualValues(t, 3, p.number(t, "availablePermits", name))
		for wide := false; !wide; { // until the calls of a window fall within one
			began := time.Now()
			require.True(t, p.truth(t, "tryAcquire", name, 2))
			left := p.number(t, "availablePermits", name)
			rejected := []bool{p.truth(t, "tryAcquire", name, 2), p.truth(t, "tryAcquire", name, 2, 0),
				p.truth(t, "tryAcquire", name, 2, 50*time.Millisecond)}
			if wide = time.Since(began) < 350*time.Millisecond; wide {
				require.EqualValues(t, 1, left)
				require.Equal(t, []bool{false, false, false}, rejected)
				require.True(t, p.truth(t, "tryAcquire", name, 2, 5*time.Second))
				require.GreaterOrEqual(t, time.Since(began), 390*time.Millisecond)
				p.must(t, "acquire", name, 3)
				require.GreaterOrEqual(t, time.Since(began), 790*time.Millisecond)
			} else {
				time.Sleep(500 * time.Millisecond)
			}
		}

		// 3.13.4 checks the request against the rate only at the first use, and treats a count of 3 deleted keys as
		// false.
		got, err := p.call("tryAcquire", name, 4)
		if v.since("3.14.0") {
			require.ErrorContains(t, err, excess)
		} else {
			require.NoError(t, err)
			require.Equal(t, "false", got)
		}
		require.Equal(t, v.since("3.14.0"), p.truth(t, "delete", name))
		require.False(t, p.truth(t, "isExists", name))
	})
}

// TestRedissonNegativeTimeout checks that older versions treat any negative timeout as "wait forever", newer ones
// only -1 ms, and that we never wait.
func TestRedissonNegativeTimeout(t *testing.T) {
	versionsAbreast(t, func(t testing.TB, v version) {
		p := fleet.peer(t, v)
		for timeout, waits := range map[time.Duration]bool{
			0:                     false,
			-time.Millisecond:     true,
			-2 * time.Millisecond: !v.since("3.37.0"),
			-time.Hour:            !v.since("3.37.0"),
		} {
			name := redistest.Key(t)
			p.must(t, "trySetRate", name, "OVERALL", 1, 200*time.Millisecond)
			require.True(t, p.truth(t, "tryAcquire", name, 1))
			require.Equal(t, waits, p.truth(t, "tryAcquire", name, 1, timeout), "%v", timeout)
		}
	})
}

// TestRedissonRelease checks that a release gives the permits back and leaves the grant in the set.
func TestRedissonRelease(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		name := redistest.Key(t)
		p.must(t, "trySetRate", name, "OVERALL", 5, time.Minute)
		require.True(t, p.truth(t, "tryAcquire", name, 4))
		require.Equal(t, "null", p.must(t, "release", name, 3))
		require.Equal(t, "4", rdb.Get(t.Context(), "{"+name+"}:value").Val())
		require.EqualValues(t, 4, used(t, rdb, "{"+name+"}:permits"), "left as it is up to 4.7.0")
		p.must(t, "release", name, 3)
		require.Equal(t, "5", rdb.Get(t.Context(), "{"+name+"}:value").Val(), "never above the rate")
	}, from("3.52.0"))
}

// TestRedissonUpdateRate checks setRate(args) and updateRate(args) of 4.4.0.
func TestRedissonUpdateRate(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		name := redistest.Key(t)
		require.False(t, p.truth(t, "updateRate", name, "OVERALL", 5, time.Minute, "-", true))
		require.Zero(t, rdb.Exists(t.Context(), name).Val(), "it writes nothing")
		for _, operation := range []string{"setRateArgs", "updateRate"} {
			p.must(t, "setRate", name, "OVERALL", 5, time.Minute)
			require.True(t, p.truth(t, "tryAcquire", name, 4))
			p.must(t, operation, name, "OVERALL", 10, time.Hour, "-", true)
			require.Equal(t, "OVERALL 10 3600000", p.must(t, "getConfig", name))
			require.EqualValues(t, 6, p.number(t, "availablePermits", name), "%s keeps the state", operation)
			p.must(t, operation, name, "OVERALL", 2, time.Hour, "-", true)
			require.EqualValues(t, 0, p.number(t, "availablePermits", name), "%s to fewer than are in use", operation)
			p.must(t, operation, name, "OVERALL", 7, time.Hour, "-", false)
			require.EqualValues(t, 7, p.number(t, "availablePermits", name), "%s forgets the state", operation)
			p.must(t, operation, name, "OVERALL", 7, time.Hour, 2*time.Hour, false)
			require.Equal(t, "7200000", rdb.HGet(t.Context(), name, "keepAliveTime").Val())
			require.True(t, p.truth(t, "delete", name))
		}
	}, from("4.4.0"))
}

// TestRedissonTakesNegativePermits checks the reason why we reject negative permits: Redisson accepts them, and the
// state is corrupt afterwards.
func TestRedissonTakesNegativePermits(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		name := redistest.Key(t)
		p.must(t, "trySetRate", name, "OVERALL", 5, time.Minute)
		require.True(t, p.truth(t, "tryAcquire", name, -5))
		require.Equal(t, "10", rdb.Get(t.Context(), "{"+name+"}:value").Val())
	})
}

// TestClientKeyTTL checks that by default our PER_CLIENT state expires, which Redisson's never does (row 17 of the
// design's list), and that Redisson reads it all the same.
func TestClientKeyTTL(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		p, rdb := fleet.peer(t, v), redistest.Client(t)
		options := []ratelimiter.Option{ratelimiter.WithClientID(p.id)}
		if v.since("3.16.4") && !v.since("3.17.0") {
			options = append(options, ratelimiter.WithMemberFormat(wire.FormatLc0I))
		}
		client := clienttest.New(t, rdb, options...)
		defer client.Close()
		name := redistest.Key(t)
		p.must(t, "trySetRate", name, "PER_CLIENT", 5, time.Minute)
		require.True(t, redistest.Must(client.RateLimiter(name).TryAcquire(t.Context(), 2, 0))(t))
		for _, key := range []string{"{" + name + "}:value:" + p.id, "{" + name + "}:permits:" + p.id} {
			require.InDelta(t, time.Hour.Milliseconds(), rdb.PTTL(t.Context(), key).Val().Milliseconds(), 1000)
		}
		require.EqualValues(t, -1, rdb.PTTL(t.Context(), name).Val())
		require.EqualValues(t, 3, p.number(t, "availablePermits", name))
		require.True(t, p.truth(t, "tryAcquire", name, 3))
		require.False(t, p.truth(t, "tryAcquire", name, 1))
	})
}

// used returns the sum of the permits in a set. In every format they are at the end of a member.
func used(t testing.TB, rdb *redis.Client, key string) int64 {
	t.Helper()
	members := redistest.Must(rdb.ZRange(t.Context(), key, 0, -1).Result())(t)
	var sum int64
	for _, m := range members {
		require.GreaterOrEqual(t, len(m), 8)
		sum += int64(binary.LittleEndian.Uint32([]byte(m[len(m)-4:])))
	}
	return sum
}

// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
)

// TestRedissonMembers checks the bytes of a grant, version by version, and that our codec reads them.
func TestRedissonMembers(t *testing.T) {
	t.Parallel()
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

// TestRedissonNegativeTimeout checks that older versions treat any negative timeout as "wait forever", newer ones
// only -1 ms, and that we never wait.
func TestRedissonNegativeTimeout(t *testing.T) {
	t.Parallel()
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

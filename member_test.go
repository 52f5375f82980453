package ratelimiter

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Members that we write read the same by every layout that Redisson 3.13.3 to 3.16.3 and 3.17.0 and later
// expect, and by the 20-byte layout if that is asked for.
func FuzzEncodeMember(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), uint32(5))
	f.Fuzz(func(t *testing.T, raw []byte, permits uint32) {
		var id permit.ID
		copy(id[:], raw)
		b := redisson.Member(false, id, permits)
		require.Len(t, b, 21)
		m, err := wire.ParseMember(b)
		require.NoError(t, err)
		require.Equal(t, permits, m.Permits)
		require.Equal(t, redistest.LuaPack("fI", 0, b[:4], permits), b[:8], "as fI")
		require.Equal(t, redistest.LuaPack("BcI", 16, b[1:17], permits), b, "as Bc0I")
		require.True(t, bytes.Contains(b, id[7:]) && bytes.Contains(b, id[:3]), "the id is in it")
		require.Equal(t, redistest.LuaPack("LcI", 8, id[:], permits), redisson.Member(true, id, permits))
	})
}

// The acquire script builds the same bytes as the codec.
func TestAcquireWritesTheCodecsMember(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		inWorld(t, overall(1<<32-1, time.Hour), func(t *testing.T, w *world) {
			for _, n := range []int64{1, 255, 256, 65535, 1 << 24, 1<<31 - 1, 1<<32 - 1} {
				require.NoError(t, w.l.SetRate(w.ctx, overall(1<<32-1, time.Hour)))
				id := redisson.RandomID()
				w.ask(permit.Batch{ID: id, Runs: []permit.Run{{Permits: n, Count: 1}, {Permits: 3, Count: 1}, {Permits: 7, Count: 2}}})
				want := []string{string(redisson.Member(format == wire.FormatLc0I, id.Run(0), uint32(n)))}
				if n < 1<<32-1 {
					want = append(want, string(redisson.Member(format == wire.FormatLc0I, id.Run(1), 3)), string(redisson.Member(format == wire.FormatLc0I, id.Run(2), 14)))
				}
				require.ElementsMatch(t, want, w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val())
			}
		}, WithMemberFormat(format))
	}
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		require.Len(t, w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val()[0], 20)
	}, WithMemberFormat(wire.FormatLc0I))
}

// The struct library of Redis reads what we write, with the formats that the versions of Redisson use.
func TestLuaStructReadsOurMembers(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		w := newWorld(t, rdb)
		for range 200 {
			permits := rand.Uint32()
			m := redisson.Member(false, redisson.RandomID(), permits)
			for script, want := range map[string]int64{
				"local f, n = struct.unpack('fI', ARGV[1]) return n":    int64(permits),
				"local r, n = struct.unpack('Bc0I', ARGV[1]) return n":  int64(permits),
				"local r, n = struct.unpack('Bc0I', ARGV[1]) return #r": 16,
			} {
				n, err := rdb.Eval(w.ctx, script, nil, m).Int64()
				require.NoError(t, err)
				require.Equal(t, want, n)
			}
			m = redisson.Member(true, redisson.RandomID(), permits)
			n, err := rdb.Eval(w.ctx, "local r, n = struct.unpack('Lc0I', ARGV[1]) return n", nil, m).Int64()
			require.NoError(t, err)
			require.EqualValues(t, permits, n)
		}
	})
}

// A limiter whose set holds grants of every layout works, and reclaims each of them.
func TestGrantsOfEveryVersionCount(t *testing.T) {
	inWorld(t, overall(30, time.Second), func(t *testing.T, w *world) {
		for _, m := range redistest.JavaMembers(5) {
			w.put(-500*time.Millisecond, m)
		}
		w.setValue(10)
		w.granted(10)
		w.rejected(1, 500*time.Millisecond)
		w.at(500 * time.Millisecond)
		w.granted(20)
		require.NoError(t, w.l.Release(w.ctx, 25))
		w.available(25)
	})
}

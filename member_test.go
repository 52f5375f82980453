package ratelimiter

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// luaPack is an oracle that knows nothing of the codec: Lua's struct.pack for the formats in use,
// little endian, written down byte by byte.
func luaPack(format string, length int, id []byte, permits uint32) []byte {
	var b []byte
	for _, f := range format {
		switch f {
		case 'f':
			b = append(b, id[:4]...) // any 4 bytes are a float
		case 'B':
			b = append(b, byte(length))
		case 'L':
			b = append(b, byte(length), 0, 0, 0, 0, 0, 0, 0)
		case 'c':
			b = append(b, id[:length]...)
		case 'I':
			b = append(b, byte(permits), byte(permits>>8), byte(permits>>16), byte(permits>>24))
		}
	}
	return b
}

// javaMembers is one member of each layout, as the Redisson versions write them.
func javaMembers(permits uint32) [][]byte {
	id := make([]byte, 16)
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return [][]byte{
		luaPack("fI", 0, id, permits),
		luaPack("LcI", 8, id, permits),
		luaPack("BcI", 8, id, permits),
		luaPack("BcI", 16, id, permits),
	}
}

func TestParseMemberReadsAllLayouts(t *testing.T) {
	want := []MemberFormat{MemberFI, MemberLc0I, MemberBc0I, MemberBc0I}
	lengths := []int{4, 8, 8, 16}
	for _, permits := range []uint32{0, 1, 255, 256, 65536, 1<<31 + 7, 1<<32 - 1} {
		for i, b := range javaMembers(permits) {
			m, err := ParseMember(b)
			require.NoError(t, err)
			require.Equal(t, want[i], m.Format)
			require.Equal(t, permits, m.Permits)
			require.Len(t, m.ID, lengths[i])
		}
	}
	for _, b := range []string{"", "01", "0102030405060708090a", "09" + "000000000000000001000000"} {
		raw, _ := hex.DecodeString(b)
		m, err := ParseMember(raw)
		require.ErrorIs(t, err, ErrMalformed)
		require.Equal(t, MemberUnknown, m.Format)
	}
}

func FuzzParseMember(f *testing.F) {
	for _, b := range javaMembers(77) {
		f.Add(b)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMember(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		format := map[MemberFormat]string{MemberFI: "fI", MemberLc0I: "LcI", MemberBc0I: "BcI"}[m.Format]
		require.Equal(t, b, luaPack(format, len(m.ID), m.ID, m.Permits))
	})
}

// What we write reads the same by every layout that a Redisson of 3.13.3 to 3.16.3 and of 3.17.0 on
// expects, and by the 20-byte one when asked for.
func FuzzEncodeMember(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), uint32(5))
	f.Fuzz(func(t *testing.T, raw []byte, permits uint32) {
		var id permit.ID
		copy(id[:], raw)
		b := redisson.Member(false, id, permits)
		require.Len(t, b, 21)
		m, err := ParseMember(b)
		require.NoError(t, err)
		require.Equal(t, permits, m.Permits)
		require.Equal(t, luaPack("fI", 0, b[:4], permits), b[:8], "as fI")
		require.Equal(t, luaPack("BcI", 16, b[1:17], permits), b, "as Bc0I")
		require.True(t, bytes.Contains(b, id[7:]) && bytes.Contains(b, id[:3]), "the id is in it")
		require.Equal(t, luaPack("LcI", 8, id[:], permits), redisson.Member(true, id, permits))
	})
}

// The acquire script builds the same bytes as the codec.
func TestAcquireWritesTheCodecsMember(t *testing.T) {
	for _, format := range []MemberFormat{MemberBc0I, MemberLc0I} {
		inWorld(t, overall(1<<32-1, time.Hour), func(t *testing.T, w *world) {
			for _, n := range []int64{1, 255, 256, 65535, 1 << 24, 1<<31 - 1, 1<<32 - 1} {
				require.NoError(t, w.l.SetRate(w.ctx, overall(1<<32-1, time.Hour)))
				id := redisson.RandomID()
				w.ask(permit.Batch{ID: id, Runs: []permit.Run{{Permits: n, Count: 1}, {Permits: 3, Count: 1}, {Permits: 7, Count: 2}}})
				want := []string{string(redisson.Member(format == MemberLc0I, id.Run(0), uint32(n)))}
				if n < 1<<32-1 {
					want = append(want, string(redisson.Member(format == MemberLc0I, id.Run(1), 3)), string(redisson.Member(format == MemberLc0I, id.Run(2), 14)))
				}
				require.ElementsMatch(t, want, w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val())
			}
		}, WithMemberFormat(format))
	}
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		require.Len(t, w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val()[0], 20)
	}, WithMemberFormat(MemberLc0I))
}

// Redis' own struct library reads what we write, with the formats that the Redisson versions use.
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

// A limiter whose set holds grants of every layout works, and reclaims each.
func TestGrantsOfEveryVersionCount(t *testing.T) {
	inWorld(t, overall(30, time.Second), func(t *testing.T, w *world) {
		for _, m := range javaMembers(5) {
			w.put(-500*time.Millisecond, m)
		}
		w.setValue(10)
		w.granted(10)
		w.refused(1, 500*time.Millisecond)
		w.at(500 * time.Millisecond)
		w.granted(20)
		require.NoError(t, w.l.Release(w.ctx, 25))
		w.available(25)
	})
}

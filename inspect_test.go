package ratelimiter

import (
	"context"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestInspect(t *testing.T) {
	inWorld(t, overall(5, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(2)
		w.at(3 * time.Second)
		w.granted(1)
		w.at(11 * time.Second)

		s, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		name := w.l.Name()
		require.Equal(t, []string{name, "{" + name + "}:value", "{" + name + "}:permits"},
			[]string{s.HashKey, s.ValueKey, s.PermitsKey})
		require.Equal(t, map[string]string{"rate": "5", "interval": "10000", "type": "0", "keepAliveTime": "0"}, s.Fields)
		require.Equal(t, overall(5, 10*time.Second), s.Rate)
		require.True(t, s.HasValue)
		require.Equal(t, "2", s.Value, "as it is: nobody has reclaimed what expired")
		require.Equal(t, make([]time.Duration, 3), []time.Duration{s.HashTTL, s.ValueTTL, s.PermitsTTL})
		require.WithinDuration(t, w.epoch.Add(11*time.Second), s.Time, time.Millisecond)
		require.EqualValues(t, 2, s.MemberCount)
		require.Equal(t, map[wire.Format]int{wire.FormatBc0I: 2}, s.Formats)

		require.Len(t, s.Members, 2, "newest first")
		require.EqualValues(t, []uint32{1, 2}, []uint32{s.Members[0].Permits, s.Members[1].Permits})
		require.Equal(t, []bool{false, true}, []bool{s.Members[0].Expired, s.Members[1].Expired})
		require.WithinDuration(t, w.epoch.Add(3*time.Second), s.Members[0].Time, time.Millisecond)
		require.WithinDuration(t, w.epoch, s.Members[1].Time, time.Millisecond)
		for _, m := range s.Members {
			parsed, err := wire.ParseMember(m.Raw)
			require.NoError(t, err)
			require.Equal(t, parsed, m.Member)
		}

		again, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.Equal(t, s, again, "looking changes nothing")
	})
}

func TestInspectNamesTheKeysOfThisClient(t *testing.T) {
	inWorld(t, Rate{Type: PerClient, Permits: 3, Interval: time.Second, KeepAlive: time.Minute}, func(t *testing.T, w *world) {
		other := newClient(t, w.rdb, WithClientID("b"), func(c *config) { c.clientClock, c.sharedClock = w.client.cfg.clientClock, true })
		defer func() { require.NoError(t, other.Close()) }()
		w.granted(2)
		name := w.l.Name()

		s, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.Equal(t, "{"+name+"}:value:"+w.client.ID(), s.ValueKey)
		require.Equal(t, "{"+name+"}:permits:"+w.client.ID(), s.PermitsKey)
		require.Equal(t, "1", s.Value)
		require.Equal(t, PerClient, s.Rate.Type)
		for _, ttl := range []time.Duration{s.HashTTL, s.ValueTTL, s.PermitsTTL} {
			require.Greater(t, ttl, 50*time.Second)
			require.LessOrEqual(t, ttl, time.Minute)
		}

		// The other client has taken nothing, so its keys do not exist, unlike the hash.
		s, err = other.RateLimiter(name).Inspect(w.ctx)
		require.NoError(t, err)
		require.Equal(t, "{"+name+"}:value:b", s.ValueKey)
		require.False(t, s.HasValue)
		require.Empty(t, s.Members)
		require.NotNil(t, s.Members)
		require.Equal(t, make([]time.Duration, 2), []time.Duration{s.ValueTTL, s.PermitsTTL})
	})
}

func TestInspectIsBounded(t *testing.T) {
	inWorld(t, overall(1000, time.Minute), func(t *testing.T, w *world) {
		for i := range 300 {
			w.put(time.Duration(i)*time.Millisecond, grant(uint32(i+1)))
		}
		s, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 300, s.MemberCount)
		require.Len(t, s.Members, 100)
		require.EqualValues(t, 300, s.Members[0].Permits)
		require.EqualValues(t, 201, s.Members[99].Permits)
		require.Equal(t, map[wire.Format]int{wire.FormatBc0I: 100}, s.Formats)

		for i := range 100 {
			require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "junk"+string(rune('0'+i)), i).Err())
		}
		s, err = w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.Len(t, s.Fields, 4)
	})
}

// Every layout is decoded and counted, also that of a foreign member, whatever its score is.
func TestInspectCountsFormats(t *testing.T) {
	inWorld(t, overall(100, time.Minute), func(t *testing.T, w *world) {
		w.put(0, []byte{1, 2, 3, 4, 7, 0, 0, 0})
		w.put(1*time.Millisecond, redisson.Member(true, redisson.RandomID(), 8))
		w.put(2*time.Millisecond, grant(9))
		w.put(3*time.Millisecond, grant(10))
		inf := "-inf"
		require.NoError(t, w.rdb.Do(w.ctx, "ZADD", w.permitsKey(), inf, "who wrote this?").Err())
		s, err := w.l.Inspect(w.ctx)
		require.NoError(t, err)
		require.Equal(t, map[wire.Format]int{wire.FormatFI: 1, wire.FormatLc0I: 1, wire.FormatBc0I: 2, wire.FormatUnknown: 1}, s.Formats)
		var permits []uint32
		for _, m := range s.Members[:4] {
			permits = append(permits, m.Permits)
			require.False(t, m.Expired)
		}
		require.Equal(t, []uint32{10, 9, 8, 7}, permits)
		stranger := s.Members[4]
		require.Equal(t, wire.FormatUnknown, stranger.Format)
		require.Equal(t, "who wrote this?", string(stranger.Raw))
		require.True(t, stranger.Expired)
	})
}

func TestInspectOfNoLimiter(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		s, err := w.l.Inspect(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, w.l.Name())
		require.Equal(t, w.l.Name(), s.HashKey)
		require.Empty(t, s.Fields)
		require.Zero(t, s.HashTTL)

		// The hash is gone but its permits are not.
		w.put(0, grant(3))
		s, err = w.l.Inspect(w.ctx)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.Len(t, s.Members, 1)
		require.EqualValues(t, 3, s.Members[0].Permits)

		for _, typ := range []string{"0", "7"} {
			require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "rate", "many", "interval", "1000", "type", typ).Err())
			s, err = w.l.Inspect(w.ctx)
			require.ErrorIs(t, err, ErrMalformed)
			require.Equal(t, "many", s.Fields["rate"])
			require.Len(t, s.Members, 1)
		}
	})
}

func TestInspectErrors(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		require.NoError(t, w.rdb.Del(w.ctx, w.l.Name()).Err())
		require.NoError(t, w.rdb.Set(w.ctx, w.l.Name(), "a string", 0).Err())
		_, err := w.l.Inspect(w.ctx)
		require.ErrorContains(t, err, "WRONGTYPE")

		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		_, err = w.l.Inspect(ctx)
		require.Equal(t, context.Canceled, err)

		_, err = w.client.RateLimiter("").Inspect(w.ctx)
		require.ErrorIs(t, err, ErrInvalidArgument)

		require.NoError(t, w.client.Close())
		_, err = w.l.Inspect(w.ctx)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// A reply that the script cannot give is an error, not a panic.
func TestInspectOfABadReply(t *testing.T) {
	good := func() []any {
		return []any{int64(0), int64(1), []any{"rate", "1"}, "1", int64(1), []any{"m", "5"}, int64(-1), int64(-1), int64(-1)}
	}
	inspect := func(reply []any) (State, error) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		rdb.AddHook(&forger{forever: reply})
		client := newClient(t, rdb)
		defer client.Close()
		return client.RateLimiter("L").Inspect(t.Context())
	}
	s, err := inspect(good())
	require.ErrorIs(t, err, ErrNotInitialized)
	require.Len(t, s.Members, 1)
	for i, bad := range map[int]any{0: int64(1), 1: "1", 2: []any{"rate"}, 4: nil, 5: []any{"m", "x"}, 6: nil, 7: "", 8: nil} {
		r := good()
		r[i] = bad
		_, err := inspect(r)
		require.ErrorContains(t, err, "unexpected reply", "%d", i)
	}
	_, err = inspect(good()[:8])
	require.ErrorContains(t, err, "unexpected reply")
}

// This runs on the real clock and over a socket, in every lane.
func TestInspectOverASocket(t *testing.T) {
	rdb := redistest.Client(t)
	client := newClient(t, rdb)
	defer func() { require.NoError(t, client.Close()) }()
	l := client.RateLimiter(redistest.Key(t))
	ctx := context.Background()
	require.NoError(t, l.SetRate(ctx, overall(2, time.Hour)))
	r, err := l.Allow(ctx, 2)
	require.NoError(t, err)
	s, err := l.Inspect(ctx)
	require.NoError(t, err)
	require.Len(t, s.Members, 1)
	require.Equal(t, r.Time, s.Members[0].Time)
	require.Equal(t, "0", s.Value)
}

// TestInspectOfAMark checks that the permits of a peer with a fast clock are shown as expired an interval after they were
// first seen, and no earlier, whatever their score.
func TestInspectOfAMark(t *testing.T) {
	for _, ahead := range []time.Duration{5 * time.Second, time.Hour} {
		inWorld(t, overall(10, 20*time.Second), func(t *testing.T, w *world) {
			w.put(ahead, javaGrant(10))
			w.setValue(0)
			w.rejected(10, 20*time.Second)
			for _, expired := range []bool{false, true} {
				at := 20*time.Second - time.Millisecond
				if expired {
					at = 20 * time.Second
				}
				w.at(at)
				s, err := w.l.Inspect(w.ctx)
				require.NoError(t, err)
				require.Len(t, s.Members, 1)
				require.Equal(t, expired, s.Members[0].Expired, "%v ahead, at %v", ahead, at)
			}
		})
	}
}

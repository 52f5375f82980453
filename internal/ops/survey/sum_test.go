// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A meddler calls write after each page of members that a client reads.
type meddler struct {
	redistest.Passing
	write func()
}

func (m meddler) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "zrevrange" {
			m.write()
		}
		return err
	}
}

// TestCompleteWhileOthersWrite reads a set of 3,000 members, to which others write after each page.
func TestCompleteWhileOthersWrite(t *testing.T) {
	for name, write := range map[string]func(do func(...any), key string, now int64){
		"grants": func(do func(...any), key string, now int64) {
			for range 40 {
				do("zadd", "{"+key+"}:permits", now+1000, redisson.Member(false, redisson.RandomID(), 1))
				do("decr", "{"+key+"}:value")
			}
		},
		"expiry": func(do func(...any), key string, _ int64) {
			do("zremrangebyrank", "{"+key+"}:permits", 0, 39)
			do("incrby", "{"+key+"}:value", 40)
		},
		"a tripwire": func(do func(...any), key string, _ int64) {
			do("zadd", "{"+key+"}:permits", 0, "\x10~w~\x01\x00\x00\x00"+tag()+"\x01\x00\x00\x00")
			do("decr", "{"+key+"}:value")
		},
		"more grants than a page": func(do func(...any), key string, now int64) {
			for range 600 {
				do("zadd", "{"+key+"}:permits", now+1000, redisson.Member(false, redisson.RandomID(), 1))
				do("decr", "{"+key+"}:value")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, key := redistest.Client(t), redistest.Key(t)
			ctx, now := t.Context(), rdb.Time(t.Context()).Val().UnixMilli()
			do := func(args ...any) { require.NoError(t, rdb.Do(ctx, args...).Err()) }
			set(t, rdb, key, "0", 100_000, 3_600_000)
			for i := range 3000 {
				do("zadd", "{"+key+"}:permits", now-1000+int64(i/10), redisson.Member(false, redisson.RandomID(), 1))
			}
			do("set", "{"+key+"}:value", 97_000)
			n := 0
			reader := redistest.Client(t)
			reader.AddHook(meddler{write: func() {
				if n++; n < 6 {
					write(do, key, now)
				}
			}})
			s := New(reader)
			st := redistest.Must(s.Read(ctx, key, ""))(t)
			require.True(t, redistest.Must(s.Complete(ctx, st))(t))
			require.Len(t, st.Members, int(st.Count))
			off, ok := st.Off()
			require.True(t, ok)
			require.Zero(t, off)
			require.Positive(t, st.Took)
			require.Less(t, st.Took, time.Minute)
		})
	}
}

// TestBoundsOfWhatIsSettled settles a grant after it was read. The sum is wrong, by no more than what a second reading tells.
func TestBoundsOfWhatIsSettled(t *testing.T) {
	rdb, key := redistest.Client(t), redistest.Key(t)
	ctx, now := t.Context(), rdb.Time(t.Context()).Val().UnixMilli()
	do := func(args ...any) { require.NoError(t, rdb.Do(ctx, args...).Err()) }
	set(t, rdb, key, "0", 100_000, 3_600_000)
	for i := range 3000 {
		do("zadd", "{"+key+"}:permits", now-5000+int64(i), redisson.Member(false, redisson.RandomID(), 9))
	}
	do("set", "{"+key+"}:value", 73_000-2) // 2 are lost
	settled := false
	reader := redistest.Client(t)
	reader.AddHook(meddler{write: func() {
		if !settled {
			m := rdb.ZRevRangeWithScores(ctx, "{"+key+"}:permits", 700, 700).Val()[0]
			raw := m.Member.(string)
			do("zrem", "{"+key+"}:permits", raw)
			do("zadd", "{"+key+"}:permits", m.Score, raw[:17]+"\x01\x00\x00\x00")
			do("incrby", "{"+key+"}:value", 8)
			settled = true
		}
	}})
	s := New(reader)
	read := func() *State {
		st := redistest.Must(s.Read(ctx, key, ""))(t)
		require.True(t, redistest.Must(s.Complete(ctx, st))(t))
		return st
	}
	first, second := read(), read()
	off, _ := first.Off()
	require.EqualValues(t, 6, off, "8 too many, 2 too few")
	least, most := first.Bounds(second)
	require.EqualValues(t, []int64{-3, 7}, []int64{least, most})
	off, _ = second.Off()
	least, most = second.Bounds(read())
	require.EqualValues(t, []int64{-2, -2, -2}, []int64{off, least, most})
}

func tag() string {
	id := redisson.RandomID()
	return string(id[:9])
}

// The hash of Redisson before 3.38.0, which has no keepAliveTime, shows a limiter also while heal adds up its permits and keeps
// the sum there. With a field of somebody else's it shows none.
func TestHashShowsWhileHealed(t *testing.T) {
	rdb := redistest.Client(t)
	name := redistest.Key(t)
	do(t, rdb, "hset", name, "rate", 10, "interval", 60_000, "type", 1)
	for _, c := range []struct {
		field string
		shows bool
	}{{"coolDown", true}, {"{" + name + "}:permits:6a", true}, {"unit", false}} {
		do(t, rdb, "hset", name, c.field, "12 30 1 ")
		st := redistest.Must(New(rdb).Read(t.Context(), name, ""))(t)
		require.Equal(t, c.shows, st.HashShows(), c.field)
		do(t, rdb, "hdel", name, c.field)
	}
}

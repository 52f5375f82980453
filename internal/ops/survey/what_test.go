// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"fmt"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWhatMembersAre tells grants from what is none, in both formats that this package writes.
func TestWhatMembersAre(t *testing.T) {
	rdb := redistest.Client(t)
	ctx := t.Context()
	for format, tripwire := range map[wire.Format]string{
		wire.FormatBc0I: "\x10~w~\x01\x00\x00\x00ab\x00\x12\x34\x56\x00\x00\x00\x01\x00\x00\x00",
		wire.FormatLc0I: "\x08\x00\x00\x00\x00\x00\x00\x00~wab\x00\x12\x34\x56\x01\x00\x00\x00",
	} {
		t.Run(format.String(), func(t *testing.T) {
			name := redistest.Key(t)
			c := clienttest.New(t, rdb, map[wire.Format][]ratelimiter.Option{wire.FormatLc0I: {ratelimiter.WithRedisson316()}}[format]...)
			defer func() { _ = c.Close() }()
			l := c.RateLimiter(name)
			require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 20, Interval: time.Minute}))
			require.NoError(t, l.Acquire(ctx, 4))
			id, ended := redisson.RandomID(), redisson.RandomID()
			now := rdb.Time(ctx).Val()
			at := float64(now.UnixMilli())
			long := format == wire.FormatLc0I
			require.NoError(t, rdb.ZAdd(ctx, "{"+name+"}:permits", redis.Z{Score: 0, Member: tripwire},
				redis.Z{Score: at, Member: string(redisson.Member(long, id, 7))}, redis.Z{Score: at, Member: string(redisson.Member(long, ended, 3))}).Err())
			require.NoError(t, rdb.Set(ctx, "{"+name+"}:ahead",
				fmt.Sprintf("%x %d 0 %x %d 5 0 %d 0", id[:], now.Add(time.Hour).UnixMilli(), ended[:], now.Add(-time.Hour).UnixMilli(), now.Add(time.Hour).UnixMilli()), 0).Err())
			look := func() map[uint32]string {
				st := redistest.Must(New(rdb).Read(ctx, name, ""))(t)
				found := map[uint32]string{}
				for _, m := range st.Members {
					when := "never granted"
					if at, ok := m.Granted(); ok {
						require.WithinDuration(t, now, at, time.Minute)
						when = "granted"
					}
					found[m.Permits] = when + ", " + st.What(m)
				}
				newest, ok := st.LastGrant()
				require.True(t, ok)
				require.WithinDuration(t, now, newest, time.Minute)
				return found
			}
			require.Equal(t, map[uint32]string{1: "never granted, callers wait", 3: "granted, ", 4: "granted, ", 7: "granted, " + Reserved}, look())

			require.NoError(t, rdb.Del(ctx, name, "{"+name+"}:value", "{"+name+"}:permits").Err())
			require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 20, Interval: time.Minute}))
			require.NoError(t, l.Acquire(ctx, 4))
			require.NoError(t, l.CoolDown(ctx, time.Now().Add(time.Hour)))
			require.Equal(t, map[uint32]string{4: "granted, cool-down", 16: "never granted, cool-down"}, look())
		})
	}
}

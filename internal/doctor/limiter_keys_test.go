// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestTTL(t *testing.T) {
	w := newWard(t)
	expire := func(key string, d time.Duration) { require.NoError(t, w.rdb.PExpire(w.ctx, key, d).Err()) }
	w.rate("0")
	w.value(9)
	w.grant(1, 0)
	expire(w.name, 20*time.Second)
	f := w.finds("ttl", Warning, "the limiter expires in")
	require.Contains(t, f.Found, "permits are in use for")
	expire(w.name, 2*time.Minute)
	require.Empty(t, w.findings())
	expire(w.key("permits"), 5*time.Second)
	w.finds("ttl", Warning, "the grants expire in")
	expire(w.key("permits"), 2*time.Minute)
	w.finds("ttl", Info, "the value has no TTL but the grants have one")
	expire(w.key("value"), 2*time.Minute)
	require.Empty(t, w.findings("ttl"))
	w.hash("keepAliveTime", 1000)
	w.finds("ttl", Warning, "the keep-alive of 1s is shorter than the interval of 1m0s")
}

func TestRemains(t *testing.T) {
	w := newWard(t)
	_, err := (&Doctor{Survey: survey.New(w.rdb)}).Limiter(w.ctx, w.name)
	require.ErrorIs(t, err, permit.ErrNotInitialized)
	w.grant(1, 0)
	w.value(9)
	w.finds("remains", Warning, "and never expires")
	require.NoError(t, w.rdb.PExpire(w.ctx, w.key("value"), time.Minute).Err())
	require.NoError(t, w.rdb.PExpire(w.ctx, w.key("permits"), time.Minute).Err())
	w.finds("remains", Info, "and expires in 1m0s")
}

func TestOtherType(t *testing.T) {
	w := newWard(t)
	w.rate("1")
	w.grantOf(":a", 1, 0)
	w.valueOf(":a", 9)
	require.Empty(t, w.findings())
	w.grant(1, 0)
	w.finds("other-type", Warning, "the limiter is PER_CLIENT, and keys of an OVERALL one with 1 member are left")

	w.name = redistest.Key(t)
	w.rate("0")
	w.grantOf(":a", 1, 0)
	w.valueOf(":a", 9)
	f := w.finds("other-type", Warning, "the limiter is OVERALL, and keys of 1 client of a PER_CLIENT one are left")
	require.Contains(t, f.Fix, w.name+"}:value:a")
}

func TestDeadClients(t *testing.T) {
	w := newWard(t)
	w.rate("1")
	w.grantOf(":a", 10, 30*time.Minute)
	w.valueOf(":a", 0)
	require.Empty(t, w.findings())
	w.grantOf(":b", 10, 2*time.Hour)
	w.valueOf(":b", 0)
	f := w.finds("dead-clients", Warning, "1 of 2 clients have not acquired")
	require.Contains(t, f.Fix, ":value:b")
	require.NoError(t, w.rdb.PExpire(w.ctx, w.key("permits:b"), time.Minute).Err())
	require.NoError(t, w.rdb.PExpire(w.ctx, w.key("value:b"), time.Minute).Err())
	require.Empty(t, w.findings())
}

func TestHugeSet(t *testing.T) {
	w := newWard(t)
	w.hash("rate", 20_000, "interval", 60_000, "type", 0)
	fill := func(n int, age time.Duration) {
		for range n / 100 {
			var zs []redis.Z
			for range 100 {
				zs = append(zs, redis.Z{Score: float64(w.now.Add(-age).UnixMilli()), Member: redisson.Member(false, redisson.RandomID(), 1)})
			}
			require.NoError(t, w.rdb.ZAdd(w.ctx, w.key("permits"), zs...).Err())
		}
	}
	fill(4900, 2*time.Minute)
	w.value(15_100)
	require.Empty(t, w.findings("huge-set"), "Java reclaims so many in less than 10 ms")
	fill(100, 2*time.Minute)
	w.value(15_000)
	w.finds("huge-set", Info, "5000 of 5000 members have expired and nobody has reclaimed them")
	fill(5000, 0)
	w.value(10_000)
	require.Empty(t, w.findings("huge-set"), "they are not most of them")
	require.Empty(t, w.findings("huge-set"))
	fill(100, 0)
	w.value(9_900)
	w.finds("huge-set", Warning, "10100 members")
}

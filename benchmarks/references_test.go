// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// TestTokenBucketAgreesWithXTimeRate checks that our token bucket makes the same decisions as golang.org/x/time/rate
// in 200,000 calls.
func TestTokenBucketAgreesWithXTimeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := redistest.Must(limit.NewLocal(limit.TokenBucket{Rate: ratelimiter.Rate{Permits: 3, Interval: time.Second}, Burst: 8}))(t)
		theirs := rate.NewLimiter(3, 8)
		random := rand.New(rand.NewPCG(1, 1))
		const calls = 200_000
		differ := 0
		for range calls {
			n := 1 + random.IntN(5)
			r := redistest.Must(ours.Allow(t.Context(), int64(n)))(t)
			if r.Granted != theirs.AllowN(time.Now(), n) {
				differ++
				// After a divergence both become full again, so that it counts once.
				time.Sleep(time.Minute)
			}
			if random.IntN(2) == 0 {
				// Our bucket counts what flows in within the current microsecond, and theirs does not.
				time.Sleep(r.Wait + time.Microsecond)
			} else {
				time.Sleep(time.Duration(random.Int64N(1_500_000)) * time.Microsecond)
			}
		}
		require.Zero(t, differ, "of %d decisions", calls)
	})
}

// TestGCRAAgreesWithRedisRate checks that our GCRA makes the same decisions as redis_rate, whose clock is that of
// Redis, which is virtual in miniredis.
func TestGCRAAgreesWithRedisRate(t *testing.T) {
	t.Setenv("RATELIMITER_LANE", "miniredis")
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		time.Sleep(20 * 365 * 24 * time.Hour) // redis_rate counts from 2017
		ours, err := limit.NewShared(rdb, redistest.Key(t), limit.GCRA{Rate: ratelimiter.Rate{Permits: 4, Interval: time.Second}, Burst: 8})
		require.NoError(t, err)
		theirs, key := redis_rate.NewLimiter(rdb), redistest.Key(t)
		random := rand.New(rand.NewPCG(1, 1))
		const calls = 3_000
		differ := 0
		for range calls {
			n := 1 + random.IntN(5)
			r := redistest.Must(ours.Allow(t.Context(), int64(n)))(t)
			other := redistest.Must(theirs.AllowN(t.Context(), key, redis_rate.Limit{Rate: 4, Burst: 8, Period: time.Second}, n))(t)
			if r.Granted != (other.Allowed == n) {
				differ++
				time.Sleep(time.Minute)
			} else if !r.Granted {
				require.InDelta(t, r.Wait.Seconds(), other.RetryAfter.Seconds(), 2e-6)
			} else {
				require.InDelta(t, r.Reset.Seconds(), other.ResetAfter.Seconds(), 2e-6)
			}
			time.Sleep(time.Duration(random.Int64N(1_500_000)) * time.Microsecond)
		}
		require.Zero(t, differ, "of %d decisions", calls)
	})
}

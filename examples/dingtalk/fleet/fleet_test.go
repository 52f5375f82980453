// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.Main(m)
}

// TestWaitAndStop checks that a fleet ends when its services have no more to do. One that is stopped lets the calls
// in flight end, and ends them itself after the grace period.
func TestWaitAndStop(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		start := func(call func(context.Context, *http.Client) bool) *Fleet {
			return redistest.Must(Start(t.Context(), NewLimits(rdb, redistest.Key(t)), time.Second, []Service{
				{Name: "a", Network: &http.Transport{}, Calls: []func(context.Context, *http.Client) bool{call}},
			}))(t)
		}
		var left, abandoned atomic.Int64
		left.Store(5)
		f := start(func(context.Context, *http.Client) bool { return left.Add(-1) > 0 })
		f.Wait()
		require.Zero(t, left.Load())
		f.Stop()
		f.Stop()

		for _, takes := range []time.Duration{500 * time.Millisecond, time.Minute} {
			begin := time.Now()
			f = start(func(ctx context.Context, _ *http.Client) bool {
				select {
				case <-time.After(takes):
				case <-ctx.Done():
					abandoned.Add(1)
				}
				return true
			})
			time.Sleep(100 * time.Millisecond)
			f.Stop()
			require.Equal(t, min(takes, 1100*time.Millisecond), time.Since(begin))
		}
		require.EqualValues(t, 1, abandoned.Load())
	})
}

// TestStartRejectsWrongOptions checks that Start returns an error for wrong options of a service, and leaves nothing
// behind.
func TestStartRejectsWrongOptions(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		_, err := Start(t.Context(), NewLimits(rdb, redistest.Key(t)), time.Second, []Service{
			{Name: "a", Network: &http.Transport{}, Limited: []httplimit.Option{httplimit.WithProfile(platform.DingTalk(""))}},
		})
		require.Error(t, err)
	})
}

// TestDelete checks that Delete deletes every limiter that a service used.
func TestDelete(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		prefix := redistest.Key(t) + ":"
		limits := NewLimits(rdb, prefix)
		c, end, err := limits.Client()
		require.NoError(t, err)
		defer end()
		require.NoError(t, c.RateLimiter("x").SetRate(t.Context(), ratelimiter.Rate{Permits: 1, Interval: time.Second}))
		keys := func() []string { return redistest.Must(rdb.Keys(t.Context(), "*"+prefix+"*").Result())(t) }
		require.Len(t, keys(), 1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		redistest.Must(limits.Delete(ended))(t)
		require.Empty(t, keys())
	})
}

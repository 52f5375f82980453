// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// WaitTimeout returns at exact times.
func TestWaitTimeout(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := shared(t, rdb, TokenBucket{per(4, time.Second), 4})
		for _, c := range []struct {
			n       int64
			timeout time.Duration
			want    bool
			after   time.Duration
		}{
			{4, 0, true, 0},
			{1, 0, false, 0},
			{1, -time.Second, false, 0},
			{1, 249 * time.Millisecond, false, 0}, // known at once
			{1, 250 * time.Millisecond, true, 250 * time.Millisecond},
			{3, time.Minute, true, 750 * time.Millisecond},
		} {
			begin := time.Now()
			require.Equal(t, c.want, redistest.Must(WaitTimeout(t.Context(), l, c.n, c.timeout))(t), "%+v", c)
			require.Equal(t, c.after, time.Since(begin), "%+v", c)
		}
	})
}

func TestWaitAndContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, a := range every() {
			l := redistest.Must(NewLocal(a))(t)
			begin, most := time.Now(), 30*time.Second
			if kind == "calendar quota" {
				most = 4 * 24 * time.Hour
			}
			for range 40 {
				require.NoError(t, Wait(t.Context(), l, 1), kind)
			}
			require.Less(t, time.Since(begin), most, kind)

			// A deadline that is too soon is known at once; permits are not spent.
			exhaust(t, l)
			p := redistest.Must(l.Peek(t.Context(), 1))(t)
			ctx, cancel := context.WithTimeout(t.Context(), p.Wait-1)
			begin = time.Now()
			require.True(t, Wait(ctx, l, 1) == context.DeadlineExceeded, kind)
			ok, err := WaitTimeout(ctx, l, 1, p.Wait+time.Hour)
			require.False(t, ok)
			require.True(t, err == context.DeadlineExceeded, kind)
			require.Zero(t, time.Since(begin), kind)
			cancel()
			require.Equal(t, p, redistest.Must(l.Peek(t.Context(), 1))(t), kind)

			// A context that ends meanwhile ends the wait.
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(p.Wait/2, cancel)
			require.True(t, Wait(ctx, l, 1) == context.Canceled, kind)
			require.Equal(t, p.Wait/2, time.Since(begin), kind)
			after := redistest.Must(l.Peek(t.Context(), 1))(t)
			if a.model().Reserves {
				require.Greater(t, after.Wait, p.Wait-p.Wait/2, "%s: the turn is spent", kind)
			} else {
				require.InDelta(t, p.Wait/2, after.Wait, float64(time.Microsecond), kind)
			}
			require.ErrorIs(t, Wait(t.Context(), l, 0), ratelimiter.ErrInvalidArgument)
		}
	})
}

// A never does not grant, and does not say when it will.
type never struct{ asked int }

func (l *never) Allow(context.Context, int64) (ratelimiter.Result, error) {
	l.asked++
	return ratelimiter.Result{}, nil
}
func (l *never) Peek(context.Context, int64) (ratelimiter.Result, error) {
	return ratelimiter.Result{}, errors.New("not asked")
}

func TestWaitDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &never{}
		require.False(t, redistest.Must(WaitTimeout(t.Context(), l, 1, time.Second))(t))
		require.LessOrEqual(t, l.asked, 1001)
	})
}

// A wait for a RateLimiter is in its queue. One that is known to take longer than there is time ends at once and takes nothing.
func TestWaitForRateLimiterKnowsThatItWouldWaitInVain(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		client := clienttest.InBubble(t, rdb)
		r := client.RateLimiter(redistest.Key(t))
		l := Limiter(r)
		require.ErrorIs(t, Wait(t.Context(), l, 1), ratelimiter.ErrNotInitialized)
		_, err := l.Peek(t.Context(), 1)
		require.ErrorIs(t, err, ratelimiter.ErrNotInitialized)
		require.NoError(t, r.SetRate(t.Context(), ratelimiter.Rate{Permits: 2, Interval: time.Hour}))
		require.NoError(t, Wait(t.Context(), l, 1))
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, Wait(ctx, l, 1), "it is free")
		require.True(t, Wait(ctx, l, 1) == context.DeadlineExceeded)
		ok, err := WaitTimeout(ctx, l, 1, 2*time.Hour)
		require.False(t, ok)
		require.True(t, err == context.DeadlineExceeded)
		require.False(t, redistest.Must(WaitTimeout(t.Context(), l, 1, 10*time.Second))(t))
		require.Zero(t, time.Since(begin))

		// Of a wait that fits nothing is cut off.
		soon := client.RateLimiter(redistest.Key(t))
		require.NoError(t, soon.SetRate(t.Context(), ratelimiter.Rate{Permits: 2, Interval: 5 * time.Second}))
		require.NoError(t, Wait(t.Context(), soon, 2))
		require.True(t, redistest.Must(WaitTimeout(t.Context(), soon, 2, 6*time.Second))(t))
		require.Equal(t, 5*time.Second, time.Since(begin))

		canceled, cancel := context.WithCancel(ctx)
		cancel()
		require.True(t, Wait(canceled, l, 1) == context.Canceled)
		ok, err = WaitTimeout(t.Context(), l, 3, time.Second)
		require.ErrorIs(t, err, ratelimiter.ErrPermitsExceedRate)
		require.False(t, ok)
	})
}

// When Redis is unavailable the outage policy of the RateLimiter decides.
func TestWaitForRateLimiterWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DisableIdentity: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("rejected") }})
		defer rdb.Close()
		client := clienttest.New(t, rdb, ratelimiter.WithOutagePolicy(ratelimiter.FailOpen()))
		defer client.Close()
		l := client.RateLimiter("x")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for range 3 {
			require.NoError(t, Wait(ctx, l, 1))
			require.True(t, redistest.Must(WaitTimeout(t.Context(), l, 1, 10*time.Second))(t))
		}
	})
}

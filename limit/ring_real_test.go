// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The limiters of a shard that the heartbeat of a ring takes out are unavailable. They do not begin anew on another
// shard, where each would have a second burst.
func TestSharedOnARingThatLosesAShard(t *testing.T) {
	redistest.NeedReal(t)
	o := &redis.RingOptions{Addrs: map[string]string{}, DisableIdentity: true}
	servers := map[string]*redistest.Server{}
	for i := range 3 {
		s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		servers[s.Addr()] = s
		o.Addrs[fmt.Sprint("shard", i)] = s.Addr()
	}
	ring := redis.NewRing(o)
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	ctx := t.Context()
	var victim *redistest.Server
	var here, there []*limit.Shared // on the victim, on other shards
	for i := range 12 {
		l, err := limit.NewShared(ring, fmt.Sprint(t.Name(), i), limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 20, Interval: 1000 * time.Hour}})
		require.NoError(t, err)
		shard := redistest.Must(ring.GetShardClientForKey(l.Keys()[0]))(t)
		if s := servers[shard.Options().Addr]; victim == nil || victim == s {
			victim, here = s, append(here, l)
		} else {
			there = append(there, l)
		}
		require.True(t, redistest.Must(l.Allow(ctx, 15))(t).Granted)
	}
	require.NotEmpty(t, there)

	victim.Kill()
	var down time.Time
	for begin := time.Now(); down.IsZero() || time.Since(down) < time.Second; time.Sleep(20 * time.Millisecond) {
		if down.IsZero() && ring.Len() == 2 {
			down = time.Now()
		}
		for _, l := range here {
			_, err := l.Allow(ctx, 1)
			require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
		}
		for _, l := range there {
			redistest.Must(l.Peek(ctx, 1))(t)
		}
		require.Less(t, time.Since(begin), 2*time.Minute, "the heartbeat never takes it out")
	}
	victim.Restart()
	for back := time.Now(); ring.Len() < 3; time.Sleep(20 * time.Millisecond) {
		require.Less(t, time.Since(back), 2*time.Minute, "the heartbeat never takes it in again")
	}
	down = time.Now()
	for _, l := range here {
		for _, err := l.Peek(ctx, 1); errors.Is(err, ratelimiter.ErrUnavailable); _, err = l.Peek(ctx, 1) {
			require.Less(t, time.Since(down), 2*time.Minute, "the outage never ends")
			time.Sleep(20 * time.Millisecond)
		}
	}
	for _, l := range append(here, there...) {
		require.False(t, redistest.Must(l.Allow(ctx, 6))(t).Granted, "a second burst")
		require.True(t, redistest.Must(l.Allow(ctx, 5))(t).Granted)
	}
}

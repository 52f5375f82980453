package ratelimiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// TestClearExpireByAnotherClient checks that the permits in use of a PER_CLIENT client outlive a TTL that another
// client has cleared. ClearExpire cannot name the keys of other clients, so whatever such a client does next renews
// their TTL, or removes it if its keys live forever.
func TestClearExpireByAnotherClient(t *testing.T) {
	for name, keys := range map[string]struct {
		ttl, want time.Duration
	}{"forever": {0, noTTL}, "an hour": {time.Hour, time.Hour}} {
		for how, next := range map[string]func(w *world, l *RateLimiter){
			"Allow": func(w *world, l *RateLimiter) {
				r, err := l.Allow(w.ctx, 1)
				require.NoError(w.t, err)
				require.True(w.t, r.Granted)
			},
			"a rejection": func(w *world, l *RateLimiter) {
				r, err := l.Allow(w.ctx, 5)
				require.NoError(w.t, err)
				require.False(w.t, r.Granted)
			},
			"TryAcquireAll": func(w *world, l *RateLimiter) {
				other := l.client.RateLimiter(w.l.Name() + "#")
				require.NoError(w.t, other.SetRate(w.ctx, overall(5, time.Minute)))
				r, err := l.client.TryAcquireAll(w.ctx, 0, Demand{other, 1}, Demand{l, 1})
				require.NoError(w.t, err)
				require.True(w.t, r.Granted)
			},
			"Release": func(w *world, l *RateLimiter) { require.NoError(w.t, l.Release(w.ctx, 1)) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				inWorld(t, Rate{Type: PerClient, Permits: 5, Interval: time.Minute}, func(t *testing.T, w *world) {
					peer := newWorld(t, w.rdb, WithClientKeyTTL(keys.ttl))
					defer peer.client.Close()
					peer.l = peer.client.RateLimiter(w.l.Name())
					_, err := w.l.Expire(w.ctx, 10*time.Second)
					require.NoError(t, err)
					peer.granted(2)
					_, err = w.l.ClearExpire(w.ctx)
					require.NoError(t, err)
					next(w, peer.l)
					for _, key := range keysOf(peer.l, PerClient)[1:] {
						require.InDelta(t, keys.want, w.rdb.PTTL(w.ctx, key).Val(), float64(9*time.Second), key)
					}
					if redistest.TTLsAreVirtual() {
						before, err := peer.l.AvailablePermits(w.ctx)
						require.NoError(t, err)
						w.at(30 * time.Second)
						peer.available(before)
					}
				})
			})
		}
	}
}

package ratelimiter

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestReplyToAChargeIsNoOutage checks that whatever Redis replies when local grants are reconciled, the reply ends
// the outage and starts no new one. Callers of the limiter get the error of the reply, and callers of other
// limiters are not affected.
func TestReplyToAChargeIsNoOutage(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(w *world, peer *RateLimiter)
		forget  bool // other limiters of the shard are used in the meantime
		err     error
		charged bool
	}{
		"Redis came back without its data": {func(w *world, peer *RateLimiter) { _, _ = peer.Delete(w.ctx) }, false, ErrNotInitialized, false},
		"a rate that is none": {func(w *world, peer *RateLimiter) {
			redistest.Peer(w.t, w.rdb).HSet(w.ctx, w.l.redis.Keys.Hash, "rate", "many")
		}, false, ErrMalformed, false},
		"a type that is none": {func(w *world, peer *RateLimiter) {
			redistest.Peer(w.t, w.rdb).HSet(w.ctx, w.l.redis.Keys.Hash, "type", "7")
		}, false, ErrMalformed, false},
		"the hash is a string":              {func(w *world, peer *RateLimiter) { redistest.Peer(w.t, w.rdb).Set(w.ctx, w.l.redis.Keys.Hash, "x", 0) }, false, nil, false},
		"a smaller rate":                    {func(w *world, peer *RateLimiter) { _ = peer.SetRate(w.ctx, overall(3, 4*time.Second)) }, false, nil, false},
		"another type":                      {func(w *world, peer *RateLimiter) { _ = peer.SetRate(w.ctx, Rate{PerClient, 10, 4 * time.Second, 0, 0}) }, false, nil, true},
		"another type, and it is forgotten": {func(w *world, peer *RateLimiter) { _ = peer.SetRate(w.ctx, Rate{PerClient, 10, 4 * time.Second, 0, 0}) }, true, nil, true},
		"nothing":                           {func(w *world, peer *RateLimiter) {}, false, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var ended, began atomic.Int64
			inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
				peers := newWorld(t, redistest.Peer(t, w.rdb))
				defer func() { require.NoError(t, peers.client.Close()) }()
				l := w.l.OnOutage(LocalShare(overall(10, 4*time.Second), 2))
				other := w.client.RateLimiter(w.l.Name() + "other")
				require.NoError(t, other.SetRate(w.ctx, overall(1_000_000, time.Hour)))
				w.granted(1)
				c := cutOff(w, refusedDial)
				goesAway(w, c)
				time.Sleep(4500 * time.Millisecond)
				r, err := l.Try(w.ctx, 5)
				require.NoError(t, err)
				require.True(t, r.Granted && r.Degraded)
				test.change(w, peers.client.RateLimiter(w.l.Name()))
				if test.forget {
					for i := range 2 {
						_, _ = beside(l, fmt.Sprint(w.l.Name(), i)).Try(w.ctx, 1)
					}
				}
				time.Sleep(1250 * time.Millisecond)
				c.down.Store(false)
				_, err = l.Try(w.ctx, 1) // decided without Redis, while the probe is in flight
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
				require.False(t, w.l.handle.Health().Down())
				for range 170 { // 1.7 s, in which the pending grants still count
					a, err := other.Try(w.ctx, 1)
					require.NoError(t, err)
					require.True(t, a.Granted && !a.Degraded)
					a, err = l.Try(w.ctx, 1)
					require.NotErrorIs(t, err, ErrUnavailable)
					require.False(t, a.Degraded)
					if test.err != nil {
						require.ErrorIs(t, err, test.err)
					}
					time.Sleep(10 * time.Millisecond)
				}
				require.EqualValues(t, 1, began.Load())
				require.EqualValues(t, 1, ended.Load())
				if test.charged {
					used, _ := w.used()
					require.EqualValues(t, 10, used, "the debt, and what was free besides")
				}
			}, WithObserver(func(e Event) {
				switch e.Kind {
				case OutageBegan:
					began.Add(1)
				case OutageEnded:
					ended.Add(1)
				}
			}))
		})
	}
}

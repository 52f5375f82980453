package ratelimiter

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// What Redis replies to a charge is no outage, whatever it is: it ends the one that was, the limiter's own
// callers get its error, and other limiters' callers notice nothing.
func TestReplyToAChargeIsNoOutage(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(w *world, peer *RateLimiter)
		forget  bool // 2,000 other names were asked for meanwhile
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
				_, err = l.Try(w.ctx, 1) // answered without Redis; the probe is on its way
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
				require.False(t, w.l.handle.Health().Down())
				for range 170 { // 1.7 s, in which the debt counts
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

// A debt whose limiter has no rate is owed until it has one again, or until it no longer counts.
func TestDebtOfALimiterWithoutARate(t *testing.T) {
	for _, again := range []bool{true, false} {
		inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
			peers := newWorld(t, redistest.Peer(t, w.rdb))
			defer func() { require.NoError(t, peers.client.Close()) }()
			peer := peers.client.RateLimiter(w.l.Name())
			l := w.l.OnOutage(LocalShare(overall(10, 4*time.Second), 2))
			w.granted(1)
			c := cutOff(w, refusedDial)
			goesAway(w, c)
			time.Sleep(4500 * time.Millisecond)
			r, err := l.Try(w.ctx, 5)
			require.NoError(t, err)
			require.True(t, r.Granted && r.Degraded)
			granted := time.Now()
			_, err = peer.Delete(w.ctx)
			require.NoError(t, err)
			time.Sleep(1250 * time.Millisecond)
			c.down.Store(false)
			for time.Since(granted) < 2*time.Second {
				_, _ = l.Try(w.ctx, 1)
				time.Sleep(100 * time.Millisecond)
			}
			_, err = l.Try(w.ctx, 1)
			require.ErrorIs(t, err, ErrNotInitialized)
			if again {
				require.NoError(t, peer.SetRate(w.ctx, overall(10, 4*time.Second)))
				w.granted(5)
				w.refused(1, time.Until(granted.Add(4*time.Second)).Round(time.Millisecond))
				require.Zero(t, l.handle.Snapshot().Pending)
				return
			}
			time.Sleep(time.Until(granted.Add(4 * time.Second)))
			sent := count(w.rdb)
			for range 10 {
				_, err = l.Try(w.ctx, 1)
				require.ErrorIs(t, err, ErrNotInitialized)
			}
			require.EqualValues(t, 10, sent.sent.Load(), "nothing is owed any more, nothing is charged")
			require.NoError(t, peer.SetRate(w.ctx, overall(10, 4*time.Second)))
			w.granted(10)
		})
	}
}

// A process that was started during the outage does not know the limiter's type. It owes all the same.
func TestChargeOfAPerClientLimiterNeverSeen(t *testing.T) {
	perClient := Rate{PerClient, 10, 4 * time.Second, 0, 0}
	inWorld(t, perClient, func(t *testing.T, w *world) {
		started := newWorld(t, redistest.Peer(t, w.rdb))
		defer func() { require.NoError(t, started.client.Close()) }()
		started.l = started.client.RateLimiter(w.l.Name())
		l := started.l.OnOutage(LocalShare(perClient, 1))
		c := cutOff(started, refusedDial)
		goesAway(started, c)
		time.Sleep(4500 * time.Millisecond)
		r, err := l.Try(w.ctx, 7)
		require.NoError(t, err)
		require.True(t, r.Granted && r.Degraded)
		granted, served := time.Now(), make(chan time.Duration)
		go func() {
			require.NoError(t, started.l.Acquire(w.ctx, 4)) // the first to ask when Redis is back
			served <- time.Since(granted)
		}()
		time.Sleep(500 * time.Millisecond)
		c.down.Store(false)
		require.Equal(t, 4*time.Second, (<-served).Round(10*time.Millisecond), "the debt was charged before")
		require.False(t, started.l.handle.Health().Down())
	})
}

// The debts of a list's limiters are charged before the list is asked for. A limiter that is gone is its
// own callers' error, and a Redis that goes away again while it is charged is an outage.
func TestListsOfLimitersThatOwe(t *testing.T) {
	inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
		policy := LocalShare(overall(10, 4*time.Second), 2)
		gone := w.client.RateLimiter(w.l.Name() + "gone").OnOutage(policy)
		other := w.client.RateLimiter(w.l.Name() + "other").OnOutage(policy)
		l := w.l.OnOutage(policy)
		for _, x := range []*RateLimiter{gone, other} {
			require.NoError(t, x.SetRate(w.ctx, overall(10, 4*time.Second)))
		}
		c := cutOff(w, refusedDial)
		goesAway(w, c)
		time.Sleep(4500 * time.Millisecond)
		all := []Demand{{gone, 5}, {other, 5}}
		a, err := w.client.TryAcquireAll(w.ctx, 0, all...)
		require.NoError(t, err)
		require.True(t, a.Granted && a.Degraded)
		granted := time.Now()
		require.NoError(t, redistest.Peer(t, w.rdb).Del(w.ctx, gone.redis.Keys.Hash).Err())
		time.Sleep(1250 * time.Millisecond)
		c.down.Store(false)
		require.NoError(t, w.l.Acquire(w.ctx, 1)) // finds that Redis is back

		_, err = w.client.TryAcquireAll(w.ctx, 0, all...)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, gone.Name())
		require.NotErrorIs(t, err, ErrUnavailable)
		require.False(t, w.l.handle.Health().Down())
		a, err = w.client.TryAcquireAll(w.ctx, 0, Demand{other, 6}, Demand{l, 1})
		require.NoError(t, err)
		require.False(t, a.Granted)
		require.Equal(t, other.redis.Keys.Hash, a.Limiter.redis.Keys.Hash)
		require.Equal(t, time.Until(granted.Add(4*time.Second)).Round(time.Millisecond), a.Wait)

		c.down.Store(true)
		_, err = w.client.TryAcquireAll(w.ctx, 0, append(all, Demand{w.l, 1})...) // one policy is closed
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, gone.Name(), "whose debt it was")
		require.True(t, w.l.handle.Health().Down())
		sent := c.sent.Load()
		for range 100 {
			_, err = w.client.TryAcquireAll(w.ctx, 0, append(all, Demand{w.l, 1})...)
			require.ErrorIs(t, err, ErrUnavailable)
		}
		require.Equal(t, sent, c.sent.Load(), "one probe a second")
	})
}

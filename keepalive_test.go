package ratelimiter

import (
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// needVirtualTTLs skips a test on a real server, whose clock ends the TTLs.
func needVirtualTTLs(t *testing.T) {
	if !redistest.TTLsAreVirtual() {
		t.Skip("the TTLs are those of a real clock")
	}
}

// TestWaitersKeepTheirLimiterAlive checks that a limiter does not expire while callers wait for its permits, however
// short its KeepAlive is beside the wait and the WithRecheck.
func TestWaitersKeepTheirLimiterAlive(t *testing.T) {
	rate := Rate{Permits: 1, Interval: time.Second, KeepAlive: time.Second}
	inWorld(t, rate, func(t *testing.T, w *world) {
		needVirtualTTLs(t)
		w.granted(1)
		for range 5 {
			require.NoError(t, w.l.Acquire(w.ctx, 1))
		}
		require.Equal(t, 5*time.Second, w.elapsed())
	}, WithRecheck(time.Minute))
}

// TestLimiterLivesWhilePermitsAreTakenAhead checks the same of two processes that take permits ahead in turns, and so leave
// each other pauses in which nobody takes any. Only others set a KeepAlive below the interval.
func TestLimiterLivesWhilePermitsAreTakenAhead(t *testing.T) {
	for _, keep := range []time.Duration{time.Second, 500 * time.Millisecond} {
		for _, permits := range []int64{2, 3, 4} {
			inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
				needVirtualTTLs(t)
				require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "keepAliveTime", keep.Milliseconds()).Err())
				other := newClient(t, w.rdb)
				var wg sync.WaitGroup
				for i, c := range []*Client{w.client, other} {
					wg.Go(func() {
						for range 12 {
							if err := c.RateLimiter(w.l.Name()).Acquire(w.ctx, permits); err != nil {
								t.Errorf("KeepAlive %v, %d permits, client %d, after %v: %v", keep, permits, i, w.elapsed(), err)
								return
							}
						}
					})
				}
				wg.Wait()
				require.NoError(t, other.Close())
			})
		}
	}
}

// TestWaitingListsKeepTheirLimitersAlive checks the same of lists: neither the limiter that rejects nor those that would
// have granted expires, whether or not one script decides.
func TestWaitingListsKeepTheirLimitersAlive(t *testing.T) {
	for _, n := range []int{2, 7} { // one script decides up to six
		for name, rates := range map[string][2]Rate{
			"the limiter that rejects":  {{Permits: 1, Interval: time.Second, KeepAlive: time.Second}, {Permits: 1, Interval: time.Second, KeepAlive: time.Second}},
			"those that do not reject":  {{Permits: 1, Interval: 10 * time.Second}, {Permits: 1, Interval: time.Second, KeepAlive: 2 * time.Second}},
			"one that rejects, shortly": {{Permits: 1, Interval: 4 * time.Second, KeepAlive: 4 * time.Second}, {Permits: 9, Interval: time.Second, KeepAlive: 3 * time.Second}},
		} {
			inWorld(t, rates[0], func(t *testing.T, w *world) {
				needVirtualTTLs(t)
				demands := []Demand{{w.l, 1}}
				for i := range n - 1 {
					l := w.l.client.RateLimiter(w.l.Name() + string(rune('a'+i)))
					require.NoError(t, l.SetRate(w.ctx, rates[1]))
					demands = append(demands, Demand{l, 1})
				}
				for range 4 {
					require.NoError(t, errOf(w.l.client.AcquireAll(w.ctx, demands...)), "%d limiters, %s, after %v", n, name, w.elapsed())
				}
				require.Equal(t, 3*rates[0].Interval, w.elapsed())
			})
		}
	}
}

// TestRejectedListKeepsItsLimitersAlive checks that a list which is rejected renews all of its limiters, as any rejected call
// but Peek does.
func TestRejectedListKeepsItsLimitersAlive(t *testing.T) {
	inWorld(t, Rate{Permits: 1, Interval: time.Minute, KeepAlive: time.Minute}, func(t *testing.T, w *world) {
		needVirtualTTLs(t)
		other := w.l.client.RateLimiter(w.l.Name() + "-other")
		require.NoError(t, other.SetRate(w.ctx, Rate{Permits: 2, Interval: time.Minute, KeepAlive: time.Minute}))
		ttl := func(l *RateLimiter) time.Duration {
			d, err := l.TTL(w.ctx)
			require.NoError(t, err)
			return d
		}
		w.granted(1)
		w.at(10 * time.Second)
		_, err := w.l.Peek(w.ctx, 1)
		require.NoError(t, err)
		require.Equal(t, 50*time.Second, ttl(w.l))
		require.Equal(t, 50*time.Second, ttl(other))
		for i := range 2 { // the first call checks all limiters, which renews them as well
			w.at(time.Duration(20+10*i) * time.Second)
			a, err := w.l.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}, Demand{other, 1})
			require.NoError(t, err)
			require.False(t, a.Granted)
			require.Equal(t, time.Minute, ttl(w.l))
			require.Equal(t, time.Minute, ttl(other))
		}
	})
}

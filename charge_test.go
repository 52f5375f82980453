package ratelimiter

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestFleetWithLocalQuotas runs a fleet whose processes all lose Redis, several times. It checks that no window
// holds more than the rate, except around the moment at which some processes have reached Redis again and others
// have not.
func TestFleetWithLocalQuotas(t *testing.T) {
	const rate, interval, nodes = 40, 3 * time.Second, 4
	inWorld(t, overall(rate, interval), func(t *testing.T, w *world) {
		var (
			grants, degraded grantLog
			cuts             [nodes]*cut
			fleet            [nodes]*world
			backs            []time.Duration
			wg               sync.WaitGroup
			stop             atomic.Bool
		)
		for i := range nodes {
			fleet[i] = newWorld(t, redistest.Peer(t, w.rdb), WithOutagePolicy(LocalQuota(overall(1, time.Hour), nodes)))
			fleet[i].l = fleet[i].client.RateLimiter(w.l.Name())
			cuts[i] = cutOff(fleet[i], refusedDial)
			for k := range 3 {
				wg.Go(func() {
					l, n := fleet[i].l, int64(0)
					for !stop.Load() {
						n = n%3 + 1
						if k == 0 {
							ok, err := l.TryAcquire(w.ctx, n, 500*time.Millisecond)
							if ok {
								grants.add(w.elapsed(), n)
							} else if err != nil {
								require.ErrorIs(t, err, ErrUnavailable)
							}
							time.Sleep(time.Duration(27+i) * time.Millisecond)
							continue
						}
						r, err := l.Allow(w.ctx, n)
						if err == nil && r.Granted {
							grants.add(w.elapsed(), n)
							if r.Degraded {
								degraded.add(w.elapsed(), n)
							}
						}
						time.Sleep(time.Duration(30*k+3*i) * time.Millisecond)
					}
				})
			}
		}
		for range 3 {
			time.Sleep(5 * time.Second)
			for _, c := range cuts {
				c.down.Store(true)
			}
			time.Sleep(8 * time.Second)
			for _, c := range cuts {
				c.down.Store(false)
			}
			backs = append(backs, w.elapsed())
		}
		time.Sleep(5 * time.Second)
		stop.Store(true)
		wg.Wait()
		for _, f := range fleet {
			require.NoError(t, f.client.Close())
		}
		const window = interval - time.Millisecond // Redis counts in whole milliseconds
		most, at := grants.worst(window)
		t.Log(grants.total(), "granted,", degraded.total(), "without Redis; most in any window", most, "at", at, "of", rate, "; back at", backs)
		require.Greater(t, degraded.total(), int64(2*rate), "the share is used")
		require.Less(t, most, int64(2*rate))
		share, _ := degraded.worst(window)
		require.LessOrEqual(t, share, int64(rate))
		// Keep only the grants outside the moments in which processes return one by one.
		var calm grantLog
		for _, g := range grants.grants {
			near := false
			for _, b := range backs {
				near = near || g.at > b && g.at < b+1300*time.Millisecond
			}
			if !near {
				calm.add(g.at, g.permits)
			}
		}
		most, at = calm.worst(window)
		require.LessOrEqual(t, most, int64(rate), "at %v", at)
	})
}

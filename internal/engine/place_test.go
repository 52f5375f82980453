// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// TestPlaceGetsItsTurn checks that a caller with a place is let ask when it is the first, by the time at which it came, and
// that nobody is served from the queue before it leaves. Others may then take the permits that it left.
func TestPlaceGetsItsTurn(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		p := &engine.Place{Handle: &w.l.Handle, Permits: 3, Came: time.Now()}
		turn := func(a engine.Rejection) {
			t.Helper()
			require.True(t, redistest.Must(p.Turn(w.ctx, a))(t))
		}
		turn(engine.Rejection{})
		var wg sync.WaitGroup
		var at time.Duration
		wg.Go(func() {
			require.NoError(t, w.l.Acquire(w.ctx, 2))
			at = w.elapsed()
		})
		w.at(5 * time.Second)
		require.Equal(t, 1, w.l.Snapshot().Waiting)
		turn(engine.Rejection{Wait: 10 * time.Second, Recheck: time.Minute, Changes: w.l.State().Changes})
		require.Equal(t, 15*time.Second, w.elapsed(), "it is still the first, and was told to wait")
		require.True(t, redistest.Must(w.l.Allow(w.ctx, 1))(t).Granted, "nothing is kept for one that has not waited for long")
		w.at(16 * time.Second)
		p.Leave()
		p.Leave() // does nothing
		wg.Wait()
		require.Equal(t, 16*time.Second, at)

		p.Came, p.Deadline = time.Now(), time.Now().Add(time.Second)
		ok, err := p.Turn(w.ctx, engine.Rejection{Wait: time.Minute, Recheck: time.Minute, Changes: w.l.State().Changes})
		require.NoError(t, err)
		require.False(t, ok, "its time is up")
		synctest.Wait()
		require.False(t, w.l.State().Busy)
	})
}

// TestAReservationInDoubt checks that only a call that may have been carried out makes a reservation hold what nobody knows, so
// that it is asked for again as a replay and given back: one that no outage let through, or that was not carried out, does not.
func TestAReservationInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		fault *retry.Error // of each call; nil for an outage that is known
		holds bool
	}{
		"an outage":          {nil, false},
		"cannot be reached":  {testworld.Rejected, false},
		"no connection free": {testworld.Exhausted, false},
		"the reply is lost":  {testworld.Lost, true},
		"denied":             {testworld.Denied, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				fault := c.fault
				if fault == nil {
					fault = testworld.Rejected
					w.p.Cut(fault)
					_, err := w.l.Allow(w.ctx, 1)
					require.ErrorIs(t, err, permit.ErrUnavailable)
				}
				w.p.Cut(fault)
				before := w.p.Sent()
				v := &link.Reservation{Link: &w.l.Link, ID: w.p.NewID().Run(0), Permits: 1}
				require.Error(t, v.Grow(w.ctx))
				require.Equal(t, c.holds, v.Holds())
				require.Equal(t, c.fault == nil, w.p.Sent() == before, "calls")
				w.p.Fix()
				time.Sleep(10 * time.Second)
				_, err := w.l.Allow(w.ctx, 1)
				require.NoError(t, err, "the outage is over")
				before = w.p.Sent()
				require.NoError(t, v.Grow(w.ctx))
				require.Equal(t, c.holds, w.p.Calls()[before].Replay)
				require.True(t, v.Complete())
				v.Refund()
				require.False(t, v.Holds())
			})
		})
	}
}

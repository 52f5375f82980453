package ratelimiter

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLocalShareToTheMillisecond checks that a local share grants nothing for one interval, and from then on
// exactly floor(permits / nodes) in any interval.
func TestLocalShareToTheMillisecond(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		l := w.l.OnOutage(LocalShare(overall(1000, time.Hour), 3)) // the rate known from Redis takes precedence
		r, err := l.Try(w.ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Degraded)
		goesAway(w, cutOff(w, refusedDial))
		begun, _ := w.l.handle.Health().Since()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }
		try := func(permits int64, granted bool, wait time.Duration, available int64) {
			t.Helper()
			r, err := l.Try(w.ctx, permits)
			require.NoError(t, err)
			require.True(t, r.Degraded)
			require.Equal(t, granted, r.Granted)
			require.Equal(t, wait, r.Wait)
			require.Equal(t, available, r.Available)
			require.Equal(t, overall(10, time.Second), r.Rate)
			require.Equal(t, time.Now(), r.Time)
		}
		at(0)
		try(1, false, time.Second, 0)
		at(999 * time.Millisecond)
		try(3, false, time.Millisecond, 0)
		at(1000 * time.Millisecond)
		try(1, true, 0, 2)
		at(1300 * time.Millisecond)
		try(1, true, 0, 1)
		try(2, false, 700*time.Millisecond, 1)
		try(3, false, time.Second, 1)
		at(1500 * time.Millisecond)
		try(1, true, 0, 0)
		try(1, false, 500*time.Millisecond, 0)
		at(1999 * time.Millisecond)
		try(1, false, time.Millisecond, 0)
		at(2000 * time.Millisecond)
		try(1, true, 0, 0)
		try(2, false, 500*time.Millisecond, 0)
		at(10 * time.Second)
		try(3, true, 0, 0)
		_, err = l.Try(w.ctx, 4)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorContains(t, err, "4 permits asked of a local share of 3: OVERALL 10/1s among 3")
		require.ErrorIs(t, l.Acquire(w.ctx, 4), ErrUnavailable)
		for nodes, want := range map[int]bool{10: true, 11: false} { // with fewer permits than nodes the policy fails closed
			at(12 * time.Second)
			r, err := w.l.OnOutage(LocalShare(overall(1000, time.Hour), nodes)).Try(w.ctx, 1)
			require.Equal(t, want, err == nil, "%v", err)
			require.Equal(t, want, r.Granted)
		}
	})
}

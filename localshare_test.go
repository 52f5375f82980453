package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The share: none for one interval, then floor(permits / nodes) in any interval, exactly.
func TestLocalShareToTheMillisecond(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		l := w.l.OnOutage(LocalShare(overall(1000, time.Hour), 3)) // Redis' rate is nearer
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
		for nodes, want := range map[int]bool{10: true, 11: false} { // fewer permits than nodes: closed
			at(12 * time.Second)
			r, err := w.l.OnOutage(LocalShare(overall(1000, time.Hour), nodes)).Try(w.ctx, 1)
			require.Equal(t, want, err == nil, "%v", err)
			require.Equal(t, want, r.Granted)
		}
	})
}

// A process that has not heard of Redis yet goes by the policy's rate.
func TestLocalShareOfAStranger(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		c := cutOff(w, refusedDial)
		c.down.Store(true)
		l := w.l.OnOutage(LocalShare(Rate{Permits: 8, Interval: 2 * time.Second, MinGap: 100 * time.Millisecond}, 2))
		require.NoError(t, l.Acquire(w.ctx, 3))
		begun, _ := w.l.handle.Health().Since()
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.NoError(t, l.Acquire(w.ctx, 1))
		require.Equal(t, 2*time.Second+3*2*100*time.Millisecond, time.Since(begun), "paced, at both nodes' gaps")
		require.NoError(t, l.Acquire(w.ctx, 1))
		require.Equal(t, 4*time.Second, time.Since(begun))
	})
}

// Those in line are served in their order, each within its time, as their share comes due.
func TestLocalLine(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		l := w.l.OnOutage(LocalShare(overall(4, time.Second), 2))
		w.granted(4)
		c := cutOff(w, refusedDial)
		goesAway(w, c)
		begun, _ := w.l.handle.Health().Since()
		type end struct {
			ok  bool
			err error
			at  time.Duration
		}
		var wg sync.WaitGroup
		ends := make([]end, 7)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		ask := func(i int, ctx context.Context, l *RateLimiter, permits int64, timeout time.Duration) {
			wg.Go(func() {
				ok, err := true, error(nil)
				if timeout == 0 {
					err = l.Acquire(ctx, permits)
				} else {
					ok, err = l.TryAcquire(ctx, permits, timeout)
				}
				ends[i] = end{ok, err, time.Since(begun)}
			})
			time.Sleep(time.Millisecond)
		}
		ask(0, w.ctx, l, 1, 0)
		ask(1, w.ctx, l, 2, 0)
		ask(2, w.ctx, l, 1, 1500*time.Millisecond) // behind a large one
		ask(3, ctx, l, 2, 0)                       // leaves at 3.5 s
		ask(4, w.ctx, l, 1, time.Minute)
		ask(5, w.ctx, w.l, 1, 2*time.Second) // its policy is closed
		ask(6, w.ctx, l, 3, 0)               // never
		r, err := l.Try(w.ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Granted, "not yet")
		time.Sleep(time.Until(begun.Add(1200 * time.Millisecond)))
		r, err = l.Try(w.ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Granted, "others stand in line")
		require.EqualValues(t, 1, r.Available)
		require.Equal(t, 800*time.Millisecond, r.Wait)
		time.Sleep(time.Until(begun.Add(2900 * time.Millisecond)))
		cancel()
		wg.Wait()
		require.Equal(t, end{true, nil, time.Second}, ends[0])
		require.Equal(t, end{true, nil, 2 * time.Second}, ends[1])
		require.Equal(t, end{false, nil, 1502 * time.Millisecond}, ends[2], "refused, not an error")
		require.Equal(t, end{true, context.Canceled, 2900 * time.Millisecond}, ends[3])
		require.Equal(t, end{true, nil, 3 * time.Second}, ends[4])
		require.ErrorIs(t, ends[5].err, ErrUnavailable)
		require.Equal(t, 2005*time.Millisecond, ends[5].at)
		require.ErrorIs(t, ends[6].err, ErrUnavailable)
		require.Equal(t, 6*time.Millisecond, ends[6].at)
		time.Sleep(1250 * time.Millisecond) // the line's call wakes and finds nobody
		requireIdle(t, w.client)
	})
}

// A timeout that ends at the instant at which the permit comes due is served.
func TestLocalDueAtTheTimeout(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		goesAway(w, cutOff(w, refusedDial))
		begun, _ := w.l.handle.Health().Since()
		for i := range 20 {
			l := w.client.RateLimiter(fmt.Sprint(w.l.Name(), i)).OnOutage(LocalShare(overall(4, time.Second), 2))
			wait := time.Until(begun.Add(time.Second))
			if i > 0 {
				wait = time.Second
				_, err := l.Try(w.ctx, 2)
				require.NoError(t, err)
			}
			ok, err := l.TryAcquire(w.ctx, 1, wait)
			require.NoError(t, err)
			require.True(t, ok)
		}
		require.Equal(t, 20*time.Second, time.Since(begun))
	})
}

func TestLocalEarlyRefusal(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		l := w.l.OnOutage(LocalShare(overall(4, time.Second), 2))
		goesAway(w, cutOff(w, refusedDial))
		begin := time.Now()
		ok, err := l.TryAcquire(w.ctx, 1, 999*time.Millisecond)
		require.NoError(t, err)
		require.False(t, ok)
		require.Zero(t, time.Since(begin))
		ok, err = l.TryAcquire(w.ctx, 1, time.Second)
		require.NoError(t, err)
		require.True(t, ok)
	}, WithEarlyRefusal())
}

// A caller without any end, who makes its call itself, is served without Redis too: by the goroutine that
// its call goes on in.
func TestLocalCallerAlone(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		l := w.l.OnOutage(LocalShare(overall(4, time.Second), 2))
		w.granted(4)
		c := cutOff(w, errors.New("reset"))
		c.down.Store(true)
		require.NoError(t, l.Acquire(w.ctx, 1))
		begun, _ := w.l.handle.Health().Since()
		require.Equal(t, time.Second, time.Since(begun))
		time.Sleep(1250 * time.Millisecond) // the line's call wakes and finds nobody
		requireIdle(t, w.client)
	})
}

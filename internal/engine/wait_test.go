// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// TestTryAcquireTimeouts checks what TryAcquire returns and how long it takes, exactly, in virtual time.
func TestTryAcquireTimeouts(t *testing.T) {
	inWorld(t, overall(5, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		w.at(4 * time.Second)
		w.granted(2)
		for _, c := range []struct {
			permits int64
			timeout time.Duration
			want    bool
			until   time.Duration // since the world began
		}{
			{1, 0, false, 4 * time.Second},
			{1, -time.Millisecond, false, 4 * time.Second}, // Redisson waits forever in this case
			{1, -time.Hour, false, 4 * time.Second},
			{3, 5999 * time.Millisecond, false, 9999 * time.Millisecond}, // it sleeps for the time that is left
			{3, time.Millisecond, true, 10 * time.Second},                // the wait is the time that is left, so it asks again
			{1, 3 * time.Second, false, 13 * time.Second},
			{2, time.Hour, true, 14 * time.Second},
			{5, time.Hour, true, 24 * time.Second},
		} {
			require.Equal(t, c.want, redistest.Must(w.l.TryAcquire(w.ctx, c.permits, c.timeout))(t), "%+v", c)
			require.Equal(t, c.until, w.elapsed(), "%+v", c)
		}
	})
}

// TestWaitingCallsAreFew checks that a waiting caller sends a call once per recheck interval and no more, and that
// it is rejected without another call when its time is up.
func TestWaitingCallsAreFew(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		before := w.p.Sent()
		require.False(t, w.l.within(1, 5500*time.Millisecond))
		require.Equal(t, 5500*time.Millisecond, w.elapsed())
		require.EqualValues(t, 6+1, w.p.Sent()-before, "and one call that looked for lost permits")
	})
}

func TestCloseFailsWaitersAndCalls(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		w.granted(1)
		errs := make(chan error)
		for range 20 {
			go func() { errs <- w.l.Acquire(w.ctx, 1) }()
		}
		time.Sleep(time.Second)
		w.close()
		for range 20 {
			require.ErrorIs(t, <-errs, permit.ErrClosed)
		}
		require.Equal(t, time.Second, w.elapsed())
		w.idle()
		w.close()
		before := w.p.Sent()
		_, err := w.l.Allow(w.ctx, 1)
		require.ErrorIs(t, err, permit.ErrClosed)
		w.l.on(failOpen).fails(1, permit.ErrClosed)
		require.ErrorIs(t, w.limiter("another").Acquire(w.ctx, 1), permit.ErrClosed)
		_, err = w.l.Peek(w.ctx, 1)
		require.ErrorIs(t, err, permit.ErrClosed)
		_, err = w.all(w.ctx, -1, w.l.of(1), w.limiter("another").of(1))
		require.ErrorIs(t, err, permit.ErrClosed)
		require.Zero(t, w.p.Sent()-before)
	})
}

// TestContextEndsEveryWait checks that a call returns at the instant at which its context ends, with the context's
// error unwrapped: while it waits, while it sleeps, while it is in flight, and before anything is sent.
func TestContextEndsEveryWait(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		calls := []func(ctx context.Context) error{
			func(ctx context.Context) error { _, err := w.l.Allow(ctx, 1); return err },
			func(ctx context.Context) error { _, err := w.l.TryAcquire(ctx, 1, time.Minute); return err },
			func(ctx context.Context) error { return w.l.Acquire(ctx, 1) },
		}
		w.granted(1)
		for _, f := range calls[1:] {
			begin := time.Now()
			ctx := w.leaving(2750 * time.Millisecond)
			require.True(t, f(ctx) == context.DeadlineExceeded)
			require.Equal(t, 2750*time.Millisecond, time.Since(begin))
			begin = time.Now()
			ctx, cancel := context.WithCancel(w.ctx)
			time.AfterFunc(1300*time.Millisecond, cancel)
			require.True(t, f(ctx) == context.Canceled)
			require.Equal(t, 1300*time.Millisecond, time.Since(begin))
			w.idle()
		}
		w.delay(time.Minute)
		begin := time.Now()
		ctx := w.leaving(700 * time.Millisecond)
		var wg sync.WaitGroup
		for _, f := range calls {
			wg.Go(func() {
				err := f(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, permit.ErrUnavailable)
				require.Equal(t, 700*time.Millisecond, time.Since(begin))
			})
		}
		wg.Wait()
		w.delay(0)
		time.Sleep(2 * time.Hour)
		w.used(0)
	})
}

// TestShortKeepAlive checks how often a limiter is asked for that expires before its permits come back, as only others set
// one: no more than a hundred times a second.
func TestShortKeepAlive(t *testing.T) {
	for keep, calls := range map[time.Duration]int{
		-time.Hour:             1, // it does not expire
		time.Millisecond:       100,
		30 * time.Millisecond:  67,
		500 * time.Millisecond: 4,
		time.Hour:              1,
	} {
		if keep > 0 && keep < time.Second && !redistest.TTLsAreVirtual() {
			continue // it would expire between two calls
		}
		r := overall(1, time.Hour)
		r.KeepAlive = keep
		inWorld(t, r, func(t *testing.T, w *world) {
			w.granted(1)
			w.p.Always(testworld.Fault{Reply: func(a *permit.Reply) { a.Wait = time.Hour }}) // as if others kept it alive
			before := w.p.Sent()
			require.False(t, w.l.within(1, 999*time.Millisecond))
			require.Equal(t, calls, w.p.Sent()-before, "%v", keep)
		})
	}
}

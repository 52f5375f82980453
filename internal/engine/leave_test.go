package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/enginetest"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// A caller that is gone when the reply comes: its grant goes to those who wait, and the rest of it goes back.
func TestGrantOfACallerThatLeftGoesToTheNext(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.delay(time.Second)
		ctx, cancel := context.WithTimeout(w.ctx, 500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			require.ErrorIs(t, w.l.Acquire(ctx, 10), context.DeadlineExceeded)
			require.Equal(t, 500*time.Millisecond, w.elapsed())
		})
		time.Sleep(100 * time.Millisecond)
		for range 4 {
			wg.Go(func() {
				require.NoError(t, w.l.Acquire(w.ctx, 2))
				require.Equal(t, time.Second, w.elapsed())
			})
		}
		wg.Wait()
		synctest.Wait()
		time.Sleep(5 * time.Second)
		calls := w.p.Calls()
		require.Len(t, calls, 2, "one asked, one refunded")
		require.Equal(t, permit.Grant{ID: calls[0].Batch.ID, Permits: 10, Keep: 8}, calls[1].Grant)
		w.used(8)
		require.Len(t, w.server.Grants(w.l.key), 1, "the next share a grant")
	})
}

// Nobody waits: it goes back, as if it had not been asked for.
func TestGrantOfACallerThatLeftGoesBack(t *testing.T) {
	for _, typ := range []permit.Type{permit.Overall, permit.PerClient} {
		inWorld(t, permit.Rate{Type: typ, Permits: 10, Interval: time.Minute}, func(t *testing.T, w *world) {
			w.granted(1)
			w.delay(time.Second)
			for _, ask := range []func(ctx context.Context) error{
				func(ctx context.Context) error { _, err := w.l.Try(ctx, 4); return err },
				func(ctx context.Context) error { return w.l.Acquire(ctx, 4) },
				func(ctx context.Context) error { _, err := w.l.TryAcquire(ctx, 4, time.Minute); return err },
			} {
				ctx, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
				begin := time.Now()
				require.True(t, ask(ctx) == context.DeadlineExceeded)
				require.Equal(t, 300*time.Millisecond, time.Since(begin))
				cancel()
				time.Sleep(5 * time.Second)
				w.used(1)
			}
			// Of five gathered callers two leave: their part goes back.
			before, leave := context.WithTimeout(w.ctx, 300*time.Millisecond)
			defer leave()
			var wg sync.WaitGroup
			go func() { _, _ = w.l.Try(w.ctx, 1) }()
			go func() { _, _ = w.l.Try(w.ctx, 1) }() // both calls in flight: what follows gathers
			time.Sleep(time.Millisecond)
			for i := range 5 {
				ctx := w.ctx
				if i%2 == 1 {
					ctx = before
				}
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					r, err := w.l.Try(ctx, 1)
					require.Equal(t, i%2 == 1, errors.Is(err, context.DeadlineExceeded))
					require.Equal(t, i%2 == 0, r.Granted)
				})
			}
			wg.Wait()
			w.delay(0)
			time.Sleep(5 * time.Second)
			w.used(1 + 2 + 3)
		})
	}
}

// A grant that comes for a caller that left, while those who wait are being asked for, is not theirs: they are about
// to be answered.
func TestGrantOfATryIsNotTheirsWhoAreAskedFor(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(time.Second)
		ctx, cancel := context.WithTimeout(w.ctx, 500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.l.Try(ctx, 4) })
		wg.Go(func() {
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, w.l.Acquire(w.ctx, 2))
			require.Equal(t, 1100*time.Millisecond, w.elapsed())
			w.delay(0)
			require.NoError(t, w.l.Acquire(w.ctx, 3))
		})
		wg.Wait()
		time.Sleep(5 * time.Second)
		w.used(1 + 2 + 3)
		require.Len(t, w.server.Grants(w.l.key), 3)
	})
}

// What is refunded may be what somebody waits for.
func TestWaitersAskAgainWhenAGrantGoesBack(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.delay(time.Second)
		ctx, cancel := context.WithTimeout(w.ctx, 500*time.Millisecond)
		defer cancel()
		go func() { _, _ = w.l.Try(ctx, 4) }()
		w.at(600 * time.Millisecond)
		w.delay(0)
		require.NoError(t, w.l.Acquire(w.ctx, 10))
		require.Equal(t, time.Second, w.elapsed())
	}, recheck(time.Hour))
}

// A reply that was on its way when a permit was released says what was before.
func TestReleaseWhileTheWaitersAreAskedFor(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(10)
		w.delay(time.Second)
		go func() {
			time.Sleep(500 * time.Millisecond)
			w.delay(0)
			w.server.Release(w.l.key, 2)
			w.l.Changed()
		}()
		require.NoError(t, w.l.Acquire(w.ctx, 2))
		require.Equal(t, time.Second, w.elapsed(), "as soon as the reply is there")
	}, recheck(time.Hour))
}

// So does one that says when to ask again, and is not followed by a look for lost permits.
func TestReleaseWhileTheWaitersAreAskedForOnce(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(10)
		w.refused(2, time.Minute) // that looked for lost permits
		w.delay(time.Second)
		time.AfterFunc(500*time.Millisecond, func() {
			w.delay(0)
			w.server.Release(w.l.key, 2)
			w.l.Changed()
		})
		require.NoError(t, w.l.Acquire(w.ctx, 2))
		require.Equal(t, time.Second, w.elapsed())
	}, recheck(time.Hour))
}

// A refund whose reply is lost, or which the network refuses, is made again, and returns the permits once.
func TestRefundIsMadeAgain(t *testing.T) {
	for _, faults := range [][]enginetest.Fault{
		{{Err: enginetest.Refused}},
		{enginetest.LostReply},
		{enginetest.LostReply, {Err: enginetest.Refused}, enginetest.LostReply},
	} {
		inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
			w.granted(3)
			w.delay(time.Second)
			ctx, cancel := context.WithTimeout(w.ctx, 500*time.Millisecond)
			defer cancel()
			_, err := w.l.Try(ctx, 4)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			w.p.Next(faults...)
			time.Sleep(10 * time.Second)
			require.Equal(t, 2+len(faults)+1, w.p.Sent())
			w.used(3)
		})
	}
}

// The timeout of a caller bounds what it waits, also for a reply; then nobody knows whether the permits were there.
func TestTimeoutWhileRedisDoesNotAnswer(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(2 * time.Second)
		begin := time.Now()
		ok, err := w.l.TryAcquire(w.ctx, 1, 700*time.Millisecond)
		require.False(t, ok)
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.Equal(t, 700*time.Millisecond+engine.Grace, time.Since(begin))
		time.Sleep(time.Minute)
		ok, err = w.l.TryAcquire(w.ctx, 1, 1999*time.Millisecond)
		require.True(t, ok, "a reply that is on its way counts")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		ok, err = w.l.TryAcquire(w.ctx, 1, 2*time.Second-engine.Grace-1)
		require.False(t, ok)
		require.ErrorIs(t, err, permit.ErrUnavailable)
	})
}

// Close refunds what is granted to a caller that it has failed.
func TestCloseGivesBack(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(400 * time.Millisecond)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		errs := make(chan error, 2)
		go func() { errs <- w.l.Acquire(ctx, 2) }()
		go func() { _, err := w.l.Try(ctx, 3); errs <- err }()
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		go func() {
			require.ErrorIs(t, <-errs, permit.ErrClosed)
			require.ErrorIs(t, <-errs, permit.ErrClosed)
			require.Equal(t, begin, time.Now())
		}()
		w.close()
		require.Equal(t, 700*time.Millisecond, time.Since(begin), "the rest of the calls, and the refunds")
		w.used(1)
	})
}

// A server that does not reply holds Close up for a second, and what it grants then is refunded all the same.
func TestCloseDoesNotHang(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(10 * time.Second)
		go func() { _ = w.l.Acquire(w.ctx, 2) }()
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		go func() { _, _ = w.l.Try(ctx, 3) }()
		synctest.Wait()
		w.used(1 + 2 + 3)
		begin := time.Now()
		w.close()
		require.Equal(t, time.Second, time.Since(begin))
		time.Sleep(30 * time.Second)
		w.used(1)
	})
}

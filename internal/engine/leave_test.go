// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/testworld"
	"github.com/stretchr/testify/require"
)

// TestGrantOfACallerThatLeftGoesToTheNext checks that a grant whose caller has left by the time the reply arrives
// goes to the callers that stood in the queue when the flight left, and that the rest of it is refunded.
func TestGrantOfACallerThatLeftGoesToTheNext(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(10)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				require.NoError(t, w.l.Acquire(w.ctx, 2))
				require.Equal(t, 1100*time.Millisecond, w.elapsed())
			})
		}
		w.at(100 * time.Millisecond)
		w.server.Release(w.l.key, 10) // the callers in the queue do not know of it
		w.delay(time.Second)
		ctx := w.leaving(500 * time.Millisecond)
		before := w.p.Sent()
		_, err := w.l.Allow(ctx, 10)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 600*time.Millisecond, w.elapsed())
		wg.Wait()
		time.Sleep(5 * time.Second)
		calls := w.p.Calls()[before:]
		require.Len(t, calls, 2, "one asked, one refunded")
		require.Equal(t, permit.Grant{ID: calls[0].ID.Run(0), Permits: 10, Keep: 8}, calls[1].Grant)
		w.used(8)
	}, recheck(time.Hour))
}

// TestGrantGoesBackWhenConnectionsAreFree checks that what was granted to a caller that left goes back even if, for much longer than a
// call is tried, this process has no connection for that. It is given up after a minute, or when the Engine is closed, which does not
// wait for it.
func TestGrantGoesBackWhenConnectionsAreFree(t *testing.T) {
	short := func(w *world, attempts int) {
		w.p.Next(slices.Insert(slices.Repeat([]testworld.Fault{{Err: testworld.Exhausted, After: time.Second}}, attempts), 0, testworld.Fault{After: time.Second})...)
		require.ErrorIs(w.t, w.l.Acquire(w.leaving(500*time.Millisecond), 10), context.DeadlineExceeded)
	}
	inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
		short(w, 40)
		w.at(45 * time.Second)
		w.used(10)
		w.at(55 * time.Second)
		w.used(0)
	})
	inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
		short(w, 1000)
		w.at(75 * time.Second)
		sent := w.p.Sent()
		w.at(30 * time.Minute)
		require.Equal(t, sent, w.p.Sent())
		w.used(10)
	})
	inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
		short(w, 1000)
		w.at(20 * time.Second)
		begin := time.Now()
		w.close()
		require.LessOrEqual(t, time.Since(begin), time.Second)
		w.at(26 * time.Second) // an attempt at the call was on its way, or another one follows
		sent := w.p.Sent()
		w.at(30 * time.Minute)
		require.Equal(t, sent, w.p.Sent())
	})
}

// TestGrantIsNotOlderThanTheCall checks that a grant whose caller has left does not go to callers that came after
// Redis was asked for it: its permits may be free again before those callers have used them, and then twice the rate
// would be used at once. The callers ask for themselves, and get the permits that were given back.
func TestGrantIsNotOlderThanTheCall(t *testing.T) {
	inWorld(t, overall(8, 500*time.Millisecond), func(t *testing.T, w *world) {
		w.p.Next(testworld.Fault{After: 450 * time.Millisecond})
		ctx := w.leaving(50 * time.Millisecond)
		require.ErrorIs(t, w.l.Acquire(ctx, 8), context.DeadlineExceeded)
		w.at(400 * time.Millisecond)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.Equal(t, 450*time.Millisecond, w.elapsed())
			})
		}
		wg.Wait()
		w.at(500 * time.Millisecond)
		w.rejected(1, 450*time.Millisecond)
		w.at(950 * time.Millisecond)
		w.granted(8)
		ops := ""
		for _, c := range w.p.Calls()[:4] {
			ops += c.Op + " "
		}
		require.Equal(t, "acquire refund acquire acquire ", ops)
	})
}

// TestRefundThatHangsDoesNotHoldUpTheQueue checks that the callers in the queue are asked for soon although Redis does not
// reply to a refund.
func TestRefundThatHangsDoesNotHoldUpTheQueue(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.p.Hook(func(c testworld.Call) (f testworld.Fault) {
			switch {
			case c.Op == "refund":
				f.Before = 10 * time.Second
			case time.Since(w.epoch) == 0:
				f.After = 500 * time.Millisecond
			}
			return f
		})
		ctx := w.leaving(100 * time.Millisecond)
		require.ErrorIs(t, w.l.Acquire(ctx, 4), context.DeadlineExceeded)
		w.at(200 * time.Millisecond)
		require.NoError(t, w.l.Acquire(w.ctx, 6))
		require.Equal(t, 500*time.Millisecond+engine.Grace, w.elapsed())
		require.NoError(t, w.l.Acquire(w.ctx, 4)) // has to wait for the refund
		require.Equal(t, 10*time.Second+500*time.Millisecond, w.elapsed())
	}, recheck(time.Hour))
}

// TestGrantOfATryIsNotTheirsWhoAreAskedFor checks that an unclaimed grant of a try does not go to waiters whose own
// request is in flight, because they are about to get their reply.
func TestGrantOfATryIsNotTheirsWhoAreAskedFor(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(time.Second)
		ctx := w.leaving(500 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.l.Allow(ctx, 4) })
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

// TestReleaseWhileTheWaitersAreAskedFor checks that a release is not missed when the reply to the waiters, which
// predates the release, is still in flight.
func TestReleaseWhileTheWaitersAreAskedFor(t *testing.T) {
	for _, looked := range []bool{false, true} { // for lost permits, as the first rejection does
		inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
			w.granted(10)
			if looked {
				w.rejected(2, time.Minute)
			}
			w.delay(time.Second)
			time.AfterFunc(500*time.Millisecond, func() {
				w.delay(0)
				w.release(w.l, 2)
			})
			require.NoError(t, w.l.Acquire(w.ctx, 2))
			require.Equal(t, time.Second, w.elapsed(), "as soon as the reply is there")
		}, recheck(time.Hour))
	}
}

// TestRefundIsMadeAgain checks that a refund is sent again if its reply is lost or the connection is rejected, and
// that it returns the permits only once.
func TestRefundIsMadeAgain(t *testing.T) {
	for _, faults := range [][]testworld.Fault{
		{{Err: testworld.Rejected}},
		{testworld.LostReply},
		{testworld.LostReply, {Err: testworld.Rejected}, testworld.LostReply},
	} {
		inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
			w.granted(3)
			w.delay(time.Second)
			ctx := w.leaving(500 * time.Millisecond)
			_, err := w.l.Allow(ctx, 4)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			w.p.Next(faults...)
			time.Sleep(10 * time.Second)
			require.Equal(t, 2+len(faults)+1, w.p.Sent())
			w.used(3)
		})
	}
}

// TestTimeoutWhileRedisDoesNotAnswer checks that a caller's timeout also bounds the wait for a reply. The caller
// gets an error then, because it is not known whether the permits were available.
func TestTimeoutWhileRedisDoesNotAnswer(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(900 * time.Millisecond)
		begin := time.Now()
		ok, err := w.l.TryAcquire(w.ctx, 1, 700*time.Millisecond)
		require.False(t, ok)
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.Equal(t, 700*time.Millisecond+engine.Grace, time.Since(begin))
		time.Sleep(time.Minute)
		require.True(t, w.l.within(1, 899*time.Millisecond), "a reply that is on its way counts")
		time.Sleep(time.Minute)
		ok, err = w.l.TryAcquire(w.ctx, 1, 900*time.Millisecond-engine.Grace-1)
		require.False(t, ok)
		require.ErrorIs(t, err, permit.ErrUnavailable)
	})
}

// TestCloseGivesBack checks that Close refunds permits that are granted to callers that it has failed.
func TestCloseGivesBack(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(400 * time.Millisecond)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		errs := make(chan error, 2)
		go func() { errs <- w.l.Acquire(ctx, 2) }()
		go func() { _, err := w.l.Allow(ctx, 3); errs <- err }()
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

// TestCloseDoesNotHang checks that a server that does not reply delays Close by one second, and that permits that
// it grants after that are refunded.
func TestCloseDoesNotHang(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(10 * time.Second)
		go func() { _ = w.l.Acquire(w.ctx, 2) }()
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		go func() { _, _ = w.l.Allow(ctx, 3) }()
		synctest.Wait()
		w.used(1 + 2 + 3)
		begin := time.Now()
		w.close()
		require.Equal(t, time.Second, time.Since(begin))
		time.Sleep(30 * time.Second)
		w.used(1)
	})
}

// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/internal/testworld"
	"github.com/stretchr/testify/require"
)

// TestFailOpen checks that under FailOpen every request is granted at once during an outage, whether it waits or
// not, alone or in the queue, and that the outcome is marked as degraded.
func TestFailOpen(t *testing.T) {
	inWorld(t, overall(2, time.Minute), func(t *testing.T, w *world) {
		open := w.l.on(failOpen)
		w.granted(2)
		r := open.try(1)
		require.False(t, r.Granted, "Redis is there and decides")
		require.False(t, r.Degraded)

		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		var line sync.WaitGroup
		var served [3]time.Duration
		for i := range served {
			line.Go(func() {
				var err error
				switch i {
				case 0:
					err = open.Acquire(w.ctx, 1)
				case 1:
					err = open.Acquire(ctx, 2)
				case 2:
					var ok bool
					ok, err = open.TryAcquire(ctx, 2, 30*time.Second)
					require.True(t, ok)
				}
				require.NoError(t, err)
				served[i] = w.elapsed()
			})
		}
		w.at(5100 * time.Millisecond)
		w.p.Cut(testworld.Rejected)
		line.Wait()
		for _, at := range served { // the flight of the queue that starts at 6 s is the first to notice
			require.Equal(t, 6400*time.Millisecond, at)
		}
		for range 1000 {
			begin := time.Now()
			r := open.try(7)
			require.True(t, r.Granted && r.Degraded)
			require.Zero(t, r.Wait)
			require.Equal(t, overall(2, time.Minute), r.Reply.Rate, "what Redis told last")
			require.True(t, open.within(1, time.Second))
			require.NoError(t, open.Acquire(w.ctx, 1))
			require.Zero(t, time.Since(begin))
			w.l.fails(1, permit.ErrUnavailable) // the policy is the request's
		}
		time.Sleep(1250 * time.Millisecond) // the flight of the queue wakes up and finds no waiters
		w.idle()
	})
}

// TestPoliciesProbe checks that while requests are decided without Redis, the process probes Redis once a second
// and delays no caller, and that waiters are served by Redis when it is back.
func TestPoliciesProbe(t *testing.T) {
	for _, p := range []*outage.Policy{failOpen, localQuota(overall(1000, time.Second), 10)} {
		for _, blocking := range []bool{false, true} {
			inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
				l := w.l.on(p)
				w.goesAway()
				sent, begin := w.p.Probes(), time.Now()
				back := time.Duration(0)
				for time.Since(begin) < 40*time.Second {
					if time.Since(begin) > 30*time.Second && back == 0 {
						w.p.Fix()
						back, sent = time.Since(begin), w.p.Probes()-sent
					}
					before := time.Now()
					if blocking {
						require.NoError(t, l.Acquire(w.ctx, 1))
					} else {
						r := l.try(1)
						require.False(t, r.Degraded && time.Since(begin) > back+1250*time.Millisecond+40*time.Millisecond && back > 0)
						require.True(t, r.Granted || r.Wait > 0)
						require.True(t, r.Degraded || back > 0)
					}
					if p == failOpen {
						require.Zero(t, time.Since(before), "not delayed by the probe")
					}
					time.Sleep(20 * time.Millisecond)
				}
				require.False(t, w.l.Health().Down())
				require.LessOrEqual(t, sent, 30)
				require.GreaterOrEqual(t, sent, 30*8/10-1)
			})
		}
	}
}

// TestProbeThatHangs checks that a probe that hangs delays no caller.
func TestProbeThatHangs(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.goesAway()
		w.p.Always(testworld.Fault{After: 20 * time.Second, Err: testworld.Rejected})
		l := w.l.on(failOpen)
		begin := time.Now()
		for range 1000 {
			before := time.Now()
			r := l.try(1)
			require.True(t, r.Granted)
			require.Zero(t, time.Since(before))
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 10*time.Second, time.Since(begin))
		w.p.Cut(testworld.Rejected)
		time.Sleep(20 * time.Second)
		w.idle()
	})
}

// TestPoliciesObeyAKnownCoolDown checks that a cool-down that the process knows of also holds during an outage.
func TestPoliciesObeyAKnownCoolDown(t *testing.T) {
	for _, p := range []*outage.Policy{failOpen, localQuota(overall(10, time.Second), 2)} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			l := w.l.on(p)
			w.goesAway()
			until := time.Now().Add(30 * time.Second)
			l.NoteCoolDown(until)
			l.NoteCoolDown(until.Add(-time.Second)) // the longer cool-down wins
			r := l.try(1)
			require.False(t, r.Granted)
			require.Equal(t, 30*time.Second, r.Wait)
			require.NoError(t, l.Acquire(w.ctx, 1))
			require.Equal(t, until, time.Now())
			l.NoteCoolDown(time.Now().Add(time.Hour))
			l.NoteCoolDown(time.Time{})
			require.NoError(t, l.Acquire(w.ctx, 1))
			require.Equal(t, until, time.Now())
		})
	}
}

// TestMemoriesAreBounded checks that the number of limiters that a shard remembers is bounded within an interval,
// too: a limiter that finds no room fails closed under LocalQuota, and open under FailOpen. Those that are still
// needed are not dropped, and make room when they no longer count.
func TestMemoriesAreBounded(t *testing.T) {
	inWorld(t, overall(10, time.Hour), func(t *testing.T, w *world) {
		p := localQuota(overall(10, time.Second), 2)
		w.goesAway()
		time.Sleep(time.Second)
		kept := w.limiter(w.l.key + "kept").on(p)
		r := kept.try(5)
		require.True(t, r.Granted)
		granted := 0
		for i := range 10 * engine.MaxLocals {
			l := w.beside(kept, fmt.Sprint(w.l.key, i)).on(p)
			switch r, err := l.Allow(w.ctx, 1); {
			case err == nil:
				require.True(t, r.Granted)
				granted++
			default:
				require.ErrorIs(t, err, permit.ErrUnavailable)
				require.ErrorContains(t, err, fmt.Sprintf("the local quotas of %d limiters", engine.MaxLocals))
			}
			r := w.beside(kept, fmt.Sprint(w.l.key, "open", i)).on(failOpen).try(1)
			require.True(t, r.Granted)
			require.LessOrEqual(t, kept.Snapshot().Remembered, engine.MaxLocals)
			time.Sleep(100 * time.Microsecond)
		}
		require.GreaterOrEqual(t, granted, engine.MaxLocals*9/10)
		_, err := w.all(w.ctx, -1, w.beside(kept, "in a list").on(p).of(1), kept.of(1))
		require.ErrorIs(t, err, permit.ErrUnavailable)
		r = kept.try(1)
		require.False(t, r.Granted, "%d are remembered", kept.Snapshot().Remembered)
		time.Sleep(time.Second)
		for i := range engine.MaxLocals {
			l := w.beside(kept, fmt.Sprint(w.l.key, "again", i)).on(p)
			_, err := l.Allow(w.ctx, 6)
			require.ErrorIs(t, err, permit.ErrUnavailable)
			require.ErrorContains(t, err, "6 permits asked of a local quota of 5", "there is room again")
		}
		require.LessOrEqual(t, kept.Snapshot().Remembered, engine.MaxLocals/2)
	})
}

// TestACoolDownIsNotForgottenForOthers checks that a cool-down of which only this process knows holds back what
// the policies grant, however many other limiters come after it.
func TestACoolDownIsNotForgottenForOthers(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.goesAway()
		cool := w.beside(w.l, "cool").on(failOpen)
		for i := range 2 * engine.MaxLocals {
			w.beside(w.l, fmt.Sprint("before", i)).NoteCoolDown(time.Now().Add(time.Minute))
		}
		require.Equal(t, 2*engine.MaxLocals, cool.Snapshot().Remembered)
		time.Sleep(time.Minute)
		cool.NoteCoolDown(time.Now().Add(time.Minute))
		for i := range 10 * engine.MaxLocals {
			w.beside(cool, fmt.Sprint("after", i)).on(failOpen).try(1)
		}
		r := cool.try(1)
		require.False(t, r.Granted)
		require.Equal(t, time.Minute, r.Wait)
	})
}

// TestLocalQuotaToTheMillisecond checks that a local quota grants nothing for one interval, and from then on
// exactly floor(permits / nodes) in any interval.
func TestLocalQuotaToTheMillisecond(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		l := w.l.on(localQuota(overall(1000, time.Hour), 3)) // the rate known from Redis takes precedence
		r := l.try(1)
		require.False(t, r.Degraded)
		begun := w.goesAway()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }
		try := func(permits int64, granted bool, wait time.Duration, available int64) {
			t.Helper()
			r := l.try(permits)
			require.True(t, r.Degraded)
			require.Equal(t, granted, r.Granted)
			require.Equal(t, wait, r.Wait)
			require.Equal(t, available, r.Available)
			require.Equal(t, overall(10, time.Second), r.Reply.Rate)
			require.Equal(t, time.Now(), r.Reply.Now)
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
		_, err := l.Allow(w.ctx, 4)
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.ErrorIs(t, err, testworld.Rejected.Err)
		require.ErrorContains(t, err, "4 permits asked of a local quota of 3: OVERALL 10/1s among 3")
		require.ErrorIs(t, l.Acquire(w.ctx, 4), permit.ErrUnavailable)
		for nodes, want := range map[int]bool{10: true, 11: false} { // with fewer permits than nodes the policy fails closed
			at(12 * time.Second)
			r, err := w.l.on(localQuota(overall(1000, time.Hour), nodes)).Allow(w.ctx, 1)
			require.Equal(t, want, err == nil, "%v", err)
			require.Equal(t, want, r.Granted)
		}
	})
}

// TestLocalQuotaOfAStranger checks that a process that has not had a reply from Redis yet uses the rate of the
// policy.
func TestLocalQuotaOfAStranger(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.p.Cut(testworld.Rejected)
		l := w.l.on(localQuota(permit.Rate{Permits: 8, Interval: 2 * time.Second, MinGap: 100 * time.Millisecond}, 2))
		require.NoError(t, l.Acquire(w.ctx, 3))
		begun, _ := w.l.Health().Since()
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.NoError(t, l.Acquire(w.ctx, 1))
		require.Equal(t, 2*time.Second+3*2*100*time.Millisecond, time.Since(begun), "paced, at both nodes' gaps")
		require.NoError(t, l.Acquire(w.ctx, 1))
		require.Equal(t, 4*time.Second, time.Since(begun))
	})
}

// TestLocalQueue checks that waiters are served from the local quota in their order and within their timeouts, as
// soon as permits become free.
func TestLocalQueue(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		l := w.l.on(localQuota(overall(4, time.Second), 2))
		w.granted(4)
		begun := w.goesAway()
		type end struct {
			ok  bool
			err error
			at  time.Duration
		}
		var wg sync.WaitGroup
		ends := make([]end, 7)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		ask := func(i int, ctx context.Context, l *limiter, permits int64, timeout time.Duration) {
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
		ask(2, w.ctx, l, 1, 1500*time.Millisecond) // behind a large request
		ask(3, ctx, l, 2, 0)                       // leaves at 2.9 s
		ask(4, w.ctx, l, 1, time.Minute)
		ask(5, w.ctx, w.l, 1, 2*time.Second) // its policy fails closed
		ask(6, w.ctx, l, 3, 0)               // can never be granted
		r := l.try(1)
		require.False(t, r.Granted, "not yet")
		time.Sleep(time.Until(begun.Add(1200 * time.Millisecond)))
		r = l.try(1)
		require.False(t, r.Granted, "others stand in line")
		require.EqualValues(t, 1, r.Available)
		require.Equal(t, 800*time.Millisecond, r.Wait)
		time.Sleep(time.Until(begun.Add(2900 * time.Millisecond)))
		cancel()
		wg.Wait()
		require.Equal(t, end{true, nil, time.Second}, ends[0])
		require.Equal(t, end{true, nil, 2 * time.Second}, ends[1])
		require.Equal(t, end{false, nil, 1502 * time.Millisecond}, ends[2], "rejected, not an error")
		require.Equal(t, end{true, context.Canceled, 2900 * time.Millisecond}, ends[3])
		require.Equal(t, end{true, nil, 3 * time.Second}, ends[4])
		require.ErrorIs(t, ends[5].err, permit.ErrUnavailable)
		require.Equal(t, 2005*time.Millisecond, ends[5].at)
		require.ErrorIs(t, ends[6].err, permit.ErrUnavailable)
		require.Equal(t, 6*time.Millisecond, ends[6].at)
		time.Sleep(1250 * time.Millisecond) // the flight of the queue wakes up and finds no waiters
		w.idle()
	})
}

// TestLocalDueAtTheTimeout checks that a caller is served if its permits become free at the very instant at which
// its time is up.
func TestLocalDueAtTheTimeout(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		begun := w.goesAway()
		for i := range 20 {
			l := w.limiter(fmt.Sprint(w.l.key, i)).on(localQuota(overall(4, time.Second), 2))
			wait := time.Until(begun.Add(time.Second))
			if i > 0 {
				wait = time.Second
				l.try(2)
			}
			require.True(t, l.within(1, wait))
		}
		require.Equal(t, 20*time.Second, time.Since(begun))
	})
}

func TestLocalEarlyRejection(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		l := w.l.on(localQuota(overall(4, time.Second), 2))
		w.goesAway()
		begin := time.Now()
		require.False(t, l.within(1, 999*time.Millisecond))
		require.Zero(t, time.Since(begin))
		require.True(t, l.within(1, time.Second))
	}, rejectEarly)
}

// TestServedByTheServerAfterAll checks that a caller that waits for a local quota when the server comes back is
// served by the server, and that its outcome is not marked as degraded.
func TestServedByTheServerAfterAll(t *testing.T) {
	inWorld(t, overall(10, 5*time.Second), func(t *testing.T, w *world) {
		l := w.l.on(localQuota(overall(10, 5*time.Second), 2))
		w.granted(1)
		w.goesAway()
		time.AfterFunc(500*time.Millisecond, w.p.Fix)
		got := redistest.Must(l.Handle.Acquire(w.ctx, engine.Request{Permits: 1, Wait: true, Policy: l.policy}))(t)
		require.True(t, got.Granted)
		require.False(t, got.Degraded)
		w.used(2)
		w.goesAway()
		time.AfterFunc(500*time.Millisecond, w.p.Fix)
		require.Equal(t, allGranted, redistest.Must(w.all(w.ctx, 0, l.of(1)))(t))
	})
}

// TestObserverMayAsk checks that the observer is called without any lock held, once for each end of an outage.
func TestObserverMayAsk(t *testing.T) {
	var w *world
	var kinds []link.EventKind
	inWorld(t, overall(10, time.Second), func(t *testing.T, here *world) {
		w = here
		w.goesAway()
		w.p.Fix()
		require.NoError(t, w.l.Acquire(w.ctx, 1))
		synctest.Wait()
		require.Equal(t, []link.EventKind{link.OutageBegan, link.OutageEnded}, kinds)
	}, func(c *engine.Config) {
		c.Observe = func(e link.Event) {
			kinds = append(kinds, e.Kind)
			w.l.Snapshot() // takes the lock
			w.l.Health().Down()
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// An events is an observer that keeps what it is told.
type events struct {
	mu  sync.Mutex
	all []link.Event
}

func (e *events) observe(c *engine.Config) {
	c.Observe = func(ev link.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, ev)
	}
}

func (e *events) count(k link.EventKind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Kind == k {
			n++
		}
	}
	return n
}

// TestSlowRepliesAreAnOutage lets every reply take two seconds, under requests that do not wait, whose callers leave
// after a second. When none has got a reply for one second and a half, an outage begins: the requests in flight and
// those that follow are decided without Redis, which is asked by one probe at a time, until its reply is prompt.
func TestSlowRepliesAreAnOutage(t *testing.T) {
	for name, p := range map[string]*outage.Policy{"closed": nil, "open": failOpen, "share": localQuota(overall(10, time.Second), 2)} {
		t.Run(name, func(t *testing.T) {
			var told events
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				l := w.l.on(p)
				w.granted(1)
				time.Sleep(2*time.Second - 1) // the tick of a request is not that of the outage
				begin := time.Now()
				w.delay(2 * time.Second)
				var wg sync.WaitGroup
				for i := range 3000 {
					at := time.Duration(i) * 10 * time.Millisecond
					wg.Go(func() {
						time.Sleep(at)
						ctx := w.leaving(time.Second)
						r, err := l.Allow(ctx, 1)
						if at <= 500*time.Millisecond && errors.Is(err, context.DeadlineExceeded) {
							return // its time ends before, or at the very instant
						}
						known := 1500 * time.Millisecond
						if at > known {
							known = at
						}
						require.Equal(t, known, time.Since(begin), "when the outage is known")
						switch name {
						case "closed":
							require.ErrorIs(t, err, permit.ErrUnavailable)
							require.ErrorContains(t, err, "Redis")
						case "open":
							require.NoError(t, err)
							require.True(t, r.Granted && r.Degraded)
						case "share":
							require.NoError(t, err)
							require.True(t, r.Degraded)
							require.Equal(t, r.Granted, r.Wait == 0)
						}
					})
				}
				time.Sleep(5 * time.Second)
				sent, probes := w.p.Sent(), w.p.Probes()
				time.Sleep(20 * time.Second)
				synctest.Wait()
				require.Equal(t, sent, w.p.Sent())
				require.LessOrEqual(t, w.p.Probes()-probes, 20, "one probe a second")
				require.GreaterOrEqual(t, w.p.Probes()-probes, 16)
				wg.Wait()
				require.Equal(t, 1, told.count(link.OutageBegan))
				require.Zero(t, told.count(link.OutageEnded))
				require.True(t, l.Health().Down())
				require.Equal(t, begin.Add(1500*time.Millisecond), told.all[0].Time)

				w.delay(501 * time.Millisecond) // too slow to end it
				for range 50 {
					_, _ = l.Allow(w.ctx, 1)
					time.Sleep(100 * time.Millisecond)
				}
				require.True(t, l.Health().Down())
				w.delay(499 * time.Millisecond)
				back := time.Now()
				for l.Health().Down() {
					_, _ = l.Allow(w.ctx, 1)
					time.Sleep(10 * time.Millisecond)
				}
				require.LessOrEqual(t, time.Since(back), 3*time.Second)
				require.Equal(t, 1, told.count(link.OutageEnded))
				time.Sleep(time.Minute)
				w.used(0)
			}, told.observe)
		})
	}
}

// TestLocalQuotaDuringSlowReplies checks that the share grants what it may while Redis is slow, and that Redis grants
// nothing beside it: what it grants late to requests that were in flight goes back.
func TestLocalQuotaDuringSlowReplies(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		l := w.l.on(localQuota(overall(10, time.Second), 2))
		w.granted(1)
		time.Sleep(2 * time.Second)
		w.delay(2 * time.Second)
		var log grantlog.Ledger
		var wg sync.WaitGroup
		begin := w.elapsed()
		for i := range 20 {
			wg.Go(func() { // callers that wait
				time.Sleep(time.Duration(i) * time.Millisecond)
				for w.elapsed() < 32*time.Second {
					ok, err := l.TryAcquire(w.ctx, 1, 700*time.Millisecond)
					if err == nil && ok {
						log.Add(grantlog.At(time.Now(), 1))
					}
				}
			})
		}
		wg.Go(func() {
			for w.elapsed() < 32*time.Second {
				if r, err := l.Allow(w.ctx, 1); err == nil && r.Granted {
					require.True(t, r.Degraded)
					log.Add(grantlog.At(time.Now(), 1))
				}
				time.Sleep(13 * time.Millisecond)
			}
		})
		wg.Wait()
		require.LessOrEqual(t, log.Told().Most(time.Second), int64(5))
		require.GreaterOrEqual(t, log.Told().Permits(), int64(5*(30-3)), "the share is used")
		require.GreaterOrEqual(t, log.Told().Grants[0].End.Sub(w.epoch), begin+2500*time.Millisecond, "an interval after the outage is known")
		time.Sleep(5 * time.Second)
		w.used(0)
	})
}

// TestOneSlowReplyIsNoOutage checks what does not begin an outage: a Redis that stands still for less than a second,
// one call without a reply, and connections that hang beside others that work.
func TestOneSlowReplyIsNoOutage(t *testing.T) {
	load := func(w *world, d time.Duration) (wait func()) {
		var wg sync.WaitGroup
		for i := range int(d / (10 * time.Millisecond)) {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				r := w.l.try(1)
				require.True(w.t, r.Granted)
			})
		}
		return wg.Wait
	}
	// stall makes the server reply to nothing for d, and then to everything at once.
	stall := func(w *world, d time.Duration) {
		end := time.Now().Add(d)
		w.p.Hook(func(testworld.Call) testworld.Fault { return testworld.Fault{Before: time.Until(end)} })
	}
	for d, outages := range map[time.Duration]int{
		200 * time.Millisecond: 0, 999 * time.Millisecond: 0, 1400 * time.Millisecond: 0,
		1520 * time.Millisecond: 1, 2 * time.Second: 1,
	} {
		t.Run(fmt.Sprint("stalls of ", d), func(t *testing.T) {
			var told events
			inWorld(t, overall(100_000, time.Second), func(t *testing.T, w *world) {
				if outages == 0 {
					wait := load(w, 20*time.Second)
					for range 5 {
						time.Sleep(2 * time.Second)
						stall(w, d)
					}
					wait()
				} else {
					stall(w, d)
					for range 200 {
						go func() { _, _ = w.l.Allow(w.ctx, 1) }()
						time.Sleep(10 * time.Millisecond)
					}
				}
				require.Equal(t, outages, told.count(link.OutageBegan))
			}, told.observe)
		})
	}
	t.Run("connections that hang", func(t *testing.T) {
		var told events
		inWorld(t, overall(100_000, time.Second), func(t *testing.T, w *world) {
			for range 8 {
				w.p.Next(testworld.Fault{After: 10 * time.Second})
				go func() { _, _ = w.l.Allow(context.Background(), 1) }()
				synctest.Wait()
				time.Sleep(101 * time.Millisecond)
				w.granted(1) // the next call gets its reply
			}
			time.Sleep(5 * time.Second) // nobody asks any more, and they still hang
			require.Zero(t, told.count(link.OutageBegan))
			require.False(t, w.l.Health().Down())
			time.Sleep(20 * time.Second)
		}, told.observe)
	})
	t.Run("one call now and then", func(t *testing.T) {
		var told events
		inWorld(t, overall(100_000, time.Second), func(t *testing.T, w *world) {
			for range 10 {
				w.p.Next(testworld.Fault{After: 2 * time.Second})
				w.granted(1)
				time.Sleep(time.Minute)
			}
			require.Zero(t, told.count(link.OutageBegan), "a new connection is answered")
			w.delay(2 * time.Second)
			began := w.elapsed()
			_, err := w.l.Allow(context.Background(), 1)
			require.ErrorIs(t, err, permit.ErrUnavailable, "nor is one")
			require.Less(t, w.elapsed()-began, 2*time.Second)
			synctest.Wait() // the event follows
			require.Equal(t, 1, told.count(link.OutageBegan))
			w.p.Fix()
		}, told.observe)
	})
}

// TestTimeoutsOfAttemptsAreSilence checks that calls whose attempts time out one after another count as calls without a
// reply: nobody waits for four attempts.
func TestTimeoutsOfAttemptsAreSilence(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.p.Always(testworld.Fault{After: 900 * time.Millisecond, Err: testworld.Lost})
		var wg sync.WaitGroup
		for range 2 {
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			wg.Go(func() {
				_, err := w.l.Allow(ctx, 1)
				require.ErrorIs(t, err, permit.ErrUnavailable)
				require.ErrorIs(t, err, testworld.Lost.Err, "what the last attempt ended with")
				require.Equal(t, 1500*time.Millisecond, w.elapsed())
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
	})
}

// TestWaitersDuringSlowReplies checks that callers that wait go on waiting while Redis is slow, and are served when it
// is fast again.
func TestWaitersDuringSlowReplies(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.delay(2 * time.Second)
		for range 2 {
			go func() { _, _ = w.l.on(failOpen).Allow(w.ctx, 1) }()
		}
		time.Sleep(1600 * time.Millisecond)
		require.True(t, w.l.Health().Down())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.Greater(t, w.elapsed(), 12*time.Second)
				require.LessOrEqual(t, w.elapsed(), 16*time.Second)
			})
		}
		w.at(12 * time.Second)
		w.p.Fix()
		wg.Wait()
	})
}

// TestReadsDoNotEndAnOutageOfWrites lets the server refuse to write. Requests that are rejected for want of permits only
// read, and so do dry runs, so their replies do not end the outage. A write that changes nothing does.
func TestReadsDoNotEndAnOutageOfWrites(t *testing.T) {
	for name, p := range map[string]*outage.Policy{"closed": nil, "open": failOpen, "share": localQuota(overall(4, time.Second), 2)} {
		t.Run(name, func(t *testing.T) {
			var told events
			inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
				l := w.l.on(p)
				w.p.RejectWrites(testworld.OutOfMemory)
				w.l.fails(1, testworld.OutOfMemory.Err)
				begun := time.Now()
				granted := 0
				for w.elapsed() < 15*time.Second {
					r, err := l.Allow(w.ctx, 1)
					if name == "closed" {
						require.ErrorIs(t, err, testworld.OutOfMemory.Err)
						require.ErrorIs(t, err, permit.ErrUnavailable)
					} else {
						require.NoError(t, err)
						require.True(t, r.Degraded)
					}
					if r.Granted {
						granted++
					}
					_, err = w.l.Peek(w.ctx, 1)
					require.ErrorIs(t, err, permit.ErrUnavailable)
					time.Sleep(10 * time.Millisecond)
				}
				require.Equal(t, 1, told.count(link.OutageBegan))
				require.Zero(t, told.count(link.OutageEnded))
				if name == "share" {
					require.Equal(t, 28, granted, "two a second, an interval after %v", begun)
				}
				w.p.Fix()
				back := time.Now()
				for l.Health().Down() {
					_, _ = l.Allow(w.ctx, 1)
					time.Sleep(10 * time.Millisecond)
				}
				require.LessOrEqual(t, time.Since(back), 1260*time.Millisecond)
				require.Equal(t, 1, told.count(link.OutageEnded))
			}, told.observe)
		})
	}
}

// TestRejectionsToRunDoNotEndAnOutage checks that a server that is up, but runs nothing yet, is down all the time.
func TestRejectionsToRunDoNotEndAnOutage(t *testing.T) {
	var told events
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		w.p.Cut(testworld.Loading)
		for w.elapsed() < 15*time.Second {
			w.l.fails(1, permit.ErrUnavailable)
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 1, told.count(link.OutageBegan))
		require.Zero(t, told.count(link.OutageEnded))
	}, told.observe)
}

// TestListsDuringSlowReplies checks that lists of limiters are decided when the outage is known, also those in flight,
// and that what they are granted afterwards goes back.
func TestListsDuringSlowReplies(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		o := w.others(overall(10, time.Minute), overall(10, time.Minute))
		var wg sync.WaitGroup
		w.delay(2 * time.Second)
		for i := range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				got := redistest.Must(w.all(w.ctx, -1, o[0].on(failOpen).of(1), o[1].on(failOpen).of(1)))(t)
				require.True(t, got.Granted && got.Degraded)
				require.Equal(t, 1500*time.Millisecond, w.elapsed())
			})
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				got := redistest.Must(w.all(w.ctx, time.Minute, o[0].on(failOpen).of(1), o[1].on(failOpen).of(1)))(t)
				require.True(t, got.Granted && got.Degraded)
				require.Equal(t, 1500*time.Millisecond, w.elapsed())
			})
		}
		wg.Wait()
		time.Sleep(20 * time.Second)
		w.has(o[0], 10)
		w.has(o[1], 10)
	})
}

// TestOutageLimitCountsFromTheOutage checks that the time for which a caller has waited before the outage does not
// count toward the outage limit, and that a caller that comes during the outage has the whole of it.
func TestOutageLimitCountsFromTheOutage(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		w.server.SetRate("other-a", overall(1, time.Hour))
		other := w.limiter("other-a")
		w.granted(1)
		require.True(t, other.within(1, 0))
		ended := map[string]time.Duration{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		wait := func(name string, at time.Duration, acquire func() error) {
			wg.Go(func() {
				w.at(at)
				err := acquire()
				require.ErrorIs(t, err, permit.ErrUnavailable, name)
				mu.Lock()
				defer mu.Unlock()
				ended[name] = w.elapsed()
			})
		}
		one := func() error { return w.l.Acquire(w.ctx, 1) }
		list := func() error { return w.acquireAll(w.ctx, w.l.of(1), other.of(1)) }
		wait("caller", 0, one)
		wait("list", 0, list)
		w.at(40 * time.Second)
		begun := w.goesAway().Sub(w.epoch)
		wait("late caller", begun+5*time.Second, one)
		wait("late list", begun+5*time.Second, list)
		wg.Wait()
		require.Equal(t, map[string]time.Duration{
			"caller": begun + 10*time.Second, "list": begun + 10*time.Second,
			"late caller": begun + 15*time.Second, "late list": begun + 15*time.Second,
		}, ended)
	}, outageLimit(10*time.Second))
}

// TestAListBehindClosedWaitersIsDecided checks that a list whose policies decide it during an outage does not wait for
// the end of the outage because it waits in the queue behind callers that have no policy.
func TestAListBehindClosedWaitersIsDecided(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		o := w.others(overall(1, time.Hour), overall(10, time.Hour))
		ok, err := o[0].TryAcquire(w.ctx, 1, 0)
		require.True(t, ok && err == nil)
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { _ = o[0].Acquire(ctx, 1) }()
		time.Sleep(10 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			got := redistest.Must(w.all(w.ctx, 0, o[0].on(failOpen).of(1), o[1].on(failOpen).of(1)))(t)
			require.True(t, got.Granted && got.Degraded)
			require.LessOrEqual(t, w.elapsed(), 6500*time.Millisecond)
		})
		w.at(5 * time.Second)
		w.goesAway()
		wg.Wait()
		cancel()
	})
}

// TestLateGrantIsNotForTheShare checks that a caller that waits for the local quota is served by the share, also if it
// was in flight when the outage began: what Redis grants it late goes back. A caller without a policy keeps it.
func TestLateGrantIsNotForTheShare(t *testing.T) {
	for p, at := range map[*outage.Policy]time.Duration{nil: 2 * time.Second, localQuota(overall(10, time.Second), 2): 2500 * time.Millisecond} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			w.delay(2 * time.Second)
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			go func() { _, _ = w.l.Allow(ctx, 1) }()
			require.True(t, w.l.on(p).within(2, time.Minute))
			require.Equal(t, at, w.elapsed())
			time.Sleep(10 * time.Second)
			w.used(0)
		})
	}
}

// TestOldCallsBeginNoOutage checks that calls from before an outage, which fail when it is over, do not begin another
// one: their connections have been lost, and Redis is there.
func TestOldCallsBeginNoOutage(t *testing.T) {
	var told events
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.p.Always(testworld.Fault{After: 10 * time.Second, Err: testworld.Lost})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _, _ = w.l.on(failOpen).Allow(w.ctx, 1) })
			time.Sleep(110 * time.Millisecond)
		}
		wg.Wait()
		require.True(t, w.l.Health().Down())
		w.p.Fix()
		for w.l.Health().Down() {
			_, _ = w.l.on(failOpen).Allow(w.ctx, 1)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond) // those calls are made again when they fail, and give back what that takes
		for range 200 {
			w.granted(1)
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 1, told.count(link.OutageBegan))
		require.Equal(t, 1, told.count(link.OutageEnded))
	}, told.observe)
}

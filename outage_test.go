// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestProbeLeavesNoTrace checks that the probe of an outage, which is a write, changes nothing: not in a limiter that
// is in use, nor in one without a rate.
func TestProbeLeavesNoTrace(t *testing.T) {
	for _, typ := range []RateType{Overall, PerClient} {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			state := func() map[string]string {
				dumps := map[string]string{}
				for _, key := range keysAll(w.l, typ) {
					if w.rdb.Exists(w.ctx, key).Val() == 1 {
						dumps[key] = fmt.Sprint(w.rdb.Dump(w.ctx, key).Val(), w.rdb.PTTL(w.ctx, key).Val() > 0) // what is left of it goes by
					}
				}
				return dumps
			}
			probe := func() {
				require.NoError(t, w.l.redis.Probe(w.ctx))
			}
			probe()
			require.Empty(t, state())
			require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: typ, Permits: 10, Interval: time.Minute}))
			before := state()
			probe()
			require.Equal(t, before, state(), "nobody has used it")
			w.granted(3)
			before = state()
			require.Len(t, before, 3)
			probe()
			require.Equal(t, before, state())
		})
	}
}

func TestOutagePolicyArguments(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for _, p := range []OutagePolicy{
			LocalQuota(overall(10, time.Second), 0),
			LocalQuota(overall(10, time.Second), -1),
			LocalQuota(overall(0, time.Second), 1),
			LocalQuota(overall(10, time.Microsecond), 1),
			LocalQuota(Rate{}, 1),
		} {
			l := w.l.OnOutage(p)
			_, err := l.Allow(w.ctx, 1)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", p)
			_, err = l.Exists(w.ctx)
			require.ErrorIs(t, err, ErrInvalidArgument)
			_, err = New(w.rdb, WithOutagePolicy(p))
			require.ErrorIs(t, err, ErrInvalidArgument)
		}
		for _, p := range []OutagePolicy{{}, FailClosed(), FailOpen(), LocalQuota(overall(10, time.Second), 11)} {
			l := w.l.OnOutage(p)
			require.NoError(t, l.err)
			require.Equal(t, w.l.Name(), l.Name())
			require.NotEmpty(t, p.String())
			_, err := l.Allow(w.ctx, 1)
			require.NoError(t, err, "Redis is there")
		}
		w.available(6) // one limiter
		bad := w.client.RateLimiter("").OnOutage(LocalQuota(Rate{}, 0))
		_, err := bad.Allow(w.ctx, 1)
		require.ErrorContains(t, err, "name", "the first fault is told")
	})
}

// TestPoliciesLeaveOtherErrorsAlone checks that an outage policy does not hide errors of scripts that Redis
// executed, or errors of the request itself.
func TestPoliciesLeaveOtherErrorsAlone(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		for _, p := range []OutagePolicy{FailOpen(), LocalQuota(overall(10, time.Second), 1)} {
			l := w.l.OnOutage(p)
			_, err := l.Allow(w.ctx, 1)
			require.ErrorIs(t, err, ErrNotInitialized)
			require.NoError(t, l.SetRate(w.ctx, overall(10, time.Second)))
			_, err = l.Allow(w.ctx, 11)
			require.ErrorIs(t, err, ErrPermitsExceedRate)
			_, err = l.Allow(w.ctx, 0)
			require.ErrorIs(t, err, ErrInvalidArgument)
			for _, text := range []string{"WRONGTYPE Operation against a key", "NOPERM this user has no permissions", "ERR unknown command"} {
				f := inject(w, false, redisError(text))
				f.left.Store(1)
				_, err = l.Allow(w.ctx, 1)
				require.ErrorContains(t, err, text)
				require.NotErrorIs(t, err, ErrUnavailable)
			}
			c := cutOff(w, refusedDial)
			goesAway(w, c)
			_, err = l.Rate(w.ctx)
			require.Error(t, err)
			_, err = l.Peek(w.ctx, 1)
			require.ErrorIs(t, err, ErrUnavailable, "no policy replaces what only Redis knows")
			require.Error(t, l.Release(w.ctx, 1))
			require.Error(t, l.SetRate(w.ctx, overall(3, time.Second)))
			gone, cancel := context.WithCancel(w.ctx)
			cancel()
			_, err = l.Allow(gone, 1)
			require.Equal(t, context.Canceled, err)
			require.ErrorIs(t, l.Acquire(gone, 1), context.Canceled)
			time.Sleep(1250 * time.Millisecond)
			c.err = redisError("NOPERM no more")
			_, err = l.OnOutage(FailClosed()).Allow(w.ctx, 1) // this request is the probe
			require.ErrorContains(t, err, "NOPERM")
			require.False(t, l.handle.Health().Down(), "Redis is there, and says no")
			c.down.Store(false)
			must(l.Delete(w.ctx))(t)
		}
	})
}

// TestObserver checks that the observer is told of the beginning and the end of an outage exactly once each, with
// the details of the outage.
func TestObserver(t *testing.T) {
	var mu sync.Mutex
	var events []Event
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		require.Empty(t, events)
		c := cutOff(w, refusedDial)
		goesAway(w, c)
		begun := time.Now()
		open := w.l.OnOutage(FailOpen())
		for range 50 {
			must(open.Allow(w.ctx, 1))(t)
			_, err := w.l.Allow(w.ctx, 1)
			require.Error(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		c.down.Store(false)
		require.NoError(t, w.l.Acquire(w.ctx, 1))
		w.granted(1)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, events, 2)
		require.ErrorIs(t, events[0].Err, refusedDial)
		events[0].Err = nil
		require.Equal(t, Event{Kind: OutageBegan, Limiter: w.l.Name(), Time: begun}, events[0])
		require.Equal(t, OutageEnded, events[1].Kind)
		require.Equal(t, w.l.Name(), events[1].Limiter)
		require.EqualValues(t, 50, events[1].Degraded)
		require.Equal(t, events[1].Time.Sub(begun), events[1].Duration)
		require.InDelta(t, 5500*time.Millisecond, events[1].Duration, float64(750*time.Millisecond))
		require.NoError(t, events[1].Err)
	}, WithHook(Hook{Event: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}}),
	)
}

// TestOutagePolicyOfTheClient checks that a Client returns the policy that its limiters follow.
func TestOutagePolicyOfTheClient(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is ever sent
	defer rdb.Close()
	require.Equal(t, FailClosed(), newClient(t, rdb).OutagePolicy())
	for _, p := range []OutagePolicy{FailClosed(), FailOpen(), LocalQuota(overall(5, time.Second), 3)} {
		require.Equal(t, p, newClient(t, rdb, WithOutagePolicy(p)).OutagePolicy())
	}
}

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
		most := grants.worst(window)
		t.Log(grants.total(), "granted,", degraded.total(), "without Redis; most in any window", most, "of", rate, "; back at", backs)
		require.Greater(t, degraded.total(), int64(2*rate), "the share is used")
		require.Less(t, most, int64(2*rate))
		share := degraded.worst(window)
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
		most = calm.worst(window)
		require.LessOrEqual(t, most, int64(rate))
	})
}

// A server is killed and started again under load, for each policy. The test checks what is granted in the
// meantime, how soon Redis grants again, how often it is probed, and what is left behind.
func TestPoliciesWhileTheServerIsAway(t *testing.T) {
	redistest.NeedReal(t)
	const rate, interval, nodes = 50, 500 * time.Millisecond, 5
	before := runtime.NumGoroutine()
	abreast(t, map[string]func(*testing.T){
		"closed": func(t *testing.T) { killedAndRestarted(t, FailClosed(), overall(rate, interval)) },
		"open":   func(t *testing.T) { killedAndRestarted(t, FailOpen(), overall(rate, interval)) },
		"local": func(t *testing.T) {
			killedAndRestarted(t, LocalQuota(overall(rate, interval), nodes), overall(rate, interval))
		},
	})
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func killedAndRestarted(t *testing.T, p OutagePolicy, rate Rate) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	// A call whose reply is no longer waited for is sent again, and its grant is then dated by the second
	// reply. The machine may stand still for a while, and the grants must not seem later because of that.
	rdb := s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.DialerRetries = 20*time.Second, 1 })
	w := watched(rdb)
	var began, ended atomic.Int64
	client := newClient(t, rdb, WithOutagePolicy(p), WithHook(Hook{Event: func(e Event) {
		if e.Kind == OutageBegan {
			began.Add(1)
		} else if e.Kind == OutageEnded {
			ended.Add(1)
		}
	}}))
	l := client.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(t.Context(), rate))

	var (
		all, degraded grantLog
		rejected      atomic.Int64 // while the outage is known
		firstBack     atomic.Int64 // the first grant since back
		back          atomic.Int64
		stop          atomic.Bool
		begin         = time.Now().Round(0) // Redis has no monotonic clock
		callers       sync.WaitGroup
		waiters       sync.WaitGroup
	)
	for i := range 4 {
		callers.Go(func() {
			for !stop.Load() {
				r, err := l.Allow(t.Context(), 1)
				now := r.Time.Sub(begin) // when the call was decided; there is only one machine, and so one clock
				switch {
				case err != nil:
					require.ErrorIs(t, err, ErrUnavailable)
				case r.Granted && r.Degraded:
					degraded.add(now, 1)
					all.add(now, 1)
				case r.Granted:
					all.add(now, 1)
					if back.Load() > 0 {
						firstBack.CompareAndSwap(0, int64(now))
					}
				case r.Degraded:
					rejected.Add(1)
				}
				time.Sleep(time.Duration(2+i) * time.Millisecond)
			}
		})
	}
	for range 4 {
		waiters.Go(func() {
			for !stop.Load() {
				if r, _ := l.handle.Acquire(t.Context(), engine.Request{Permits: 1, Wait: true, Timeout: 200 * time.Millisecond, Policy: l.policy}); r.Granted {
					all.add(r.Reply.Now.Sub(begin), 1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	time.Sleep(time.Second)
	s.Kill()
	killed := time.Since(begin)
	soon(t, "the outage is known", l.handle.Health().Down)
	known, sent := time.Since(begin), w.sent.Load()
	time.Sleep(5 * time.Second)
	probes := w.sent.Load() - sent
	restarting := time.Since(begin)
	s.Restart()
	back.Store(int64(time.Since(begin)))
	soon(t, "Redis grants again", func() bool { return firstBack.Load() > 0 && ended.Load() > 0 })
	time.Sleep(2 * rate.Interval)
	stop.Store(true)
	callers.Wait()
	waiters.Wait()

	first := time.Duration(firstBack.Load() - back.Load())
	t.Logf("%v: outage known after %v; %d probes in %v; first grant by Redis %v after it was back; %d granted without it",
		p, known-killed, probes, restarting-known, first, degraded.total())
	require.LessOrEqual(t, probes, 1+int64((restarting-known)/time.Second), "one a second at most")
	require.NotZero(t, probes)
	require.EqualValues(t, 1, began.Load())
	require.EqualValues(t, 1, ended.Load())

	var meanwhile grantLog
	for _, g := range all.grants {
		if g.at > known && g.at < restarting {
			meanwhile.add(g.at, g.permits)
		}
	}
	const ms = 2 * time.Millisecond // Redis counts whole ms, and a grant that is dated back is rounded twice
	switch p.kind {
	case outage.FailClosed:
		require.Zero(t, meanwhile.total(), "granted without Redis")
	case outage.FailOpen:
		require.Greater(t, meanwhile.total(), 2*rate.Permits)
		require.Zero(t, rejected.Load(), "everybody is granted")
	case outage.LocalQuota:
		most := meanwhile.worst(rate.Interval - ms)
		share := rate.Permits / int64(p.nodes)
		require.LessOrEqual(t, most, share)
		require.GreaterOrEqual(t, meanwhile.total(), 2*share, "the share is used, again and again")
		most = all.worst(rate.Interval - ms)
		t.Log("most in any window", most, "killed at", killed, "back at", time.Duration(back.Load()))
		require.LessOrEqual(redistest.Final(t), most, rate.Permits, "across going away and coming back")
	}
	require.NoError(t, client.Close())
	require.NoError(t, rdb.Close())
}

// TestRejectedWritesAreOneOutage lets real servers reject writes while reads go on, under requests of which most are
// rejected for want of permits, and which reclaim expired permits, as Redis allows while it is out of memory. It is
// one outage, whose policy decides until writes work again.
func TestRejectedWritesAreOneOutage(t *testing.T) {
	redistest.NeedReal(t)
	tests := map[string]func(*testing.T){}
	for _, says := range []string{"OOM", "NOREPLICAS", "READONLY", "MISCONF"} {
		tests[says] = func(t *testing.T) { writesRefused(t, newPatient(t), says, rejections[says]) }
	}
	abreast(t, tests)
}

func writesRefused(t *testing.T, p *patient, says string, begin func(p *patient) func()) {
	const (
		interval = 500 * time.Millisecond
		share    = 2 // of 4 permits, in each interval
		lasts    = 15 * time.Second
	)
	var began, ended atomic.Int64
	client := newClient(t, p.rdb, WithOutagePolicy(LocalQuota(overall(4, interval), 2)), WithHook(Hook{Event: func(e Event) {
		switch e.Kind {
		case OutageBegan:
			began.Add(1)
			if !isReply(e.Err, says) {
				t.Error("the outage began with", e.Err)
			}
		case OutageEnded:
			ended.Add(1)
		}
	}}))
	defer client.Close()
	l := client.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(p.ctx, overall(4, interval)))
	cure := begin(p)
	start := time.Now()
	var granted, failed atomic.Int64
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for time.Since(start) < lasts {
				r, err := l.Allow(p.ctx, 1)
				switch {
				case err != nil:
					failed.Add(1)
				case r.Granted && r.Degraded:
					granted.Add(1)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	callers.Wait()
	outages := began.Load()
	require.Zero(t, ended.Load())
	cure()
	cured := time.Now()
	soon(t, "the outage ends", func() bool {
		must(l.Allow(p.ctx, 1))(t)
		return ended.Load() > 0
	})
	t.Logf("%s: %d outages in %v, %d granted without Redis, %d errors; over %v after the cure", says, outages, lasts,
		granted.Load(), failed.Load(), time.Since(cured))
	require.EqualValues(t, 1, outages)
	require.EqualValues(t, 1, began.Load())
	require.Zero(t, failed.Load())
	most := int64(share * lasts / interval)
	require.LessOrEqual(t, granted.Load(), most)
	require.Greater(t, granted.Load(), most/4, "the share is used, again and again")
}

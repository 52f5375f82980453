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

	"github.com/goredisson/ratelimiter/internal/grantlog"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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
// the details of the outage, and of each call that fails.
func TestObserver(t *testing.T) {
	h := &ledger{}
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		require.Empty(t, h.events)
		c := cutOff(w, refusedDial)
		h.calls = nil
		goesAway(w, c)
		for _, call := range h.calls {
			require.ErrorIs(t, call.Err, refusedDial)
		}
		require.NotEmpty(t, h.calls)
		begun := time.Now()
		open := w.l.OnOutage(FailOpen())
		for range 50 {
			must(open.Allow(w.ctx, 1))(t)
			require.Error(t, errOf(w.l.Allow(w.ctx, 1)))
			time.Sleep(100 * time.Millisecond)
		}
		c.down.Store(false)
		require.NoError(t, w.l.Acquire(w.ctx, 1))
		synctest.Wait()
		require.Len(t, h.events, 2)
		began, ended := h.events[0], h.events[1]
		require.ErrorIs(t, began.Err, refusedDial)
		began.Err = nil
		require.Equal(t, Event{Kind: OutageBegan, Limiter: w.l.Name(), Time: begun}, began)
		require.Equal(t, Event{Kind: OutageEnded, Limiter: w.l.Name(), Time: ended.Time, Duration: ended.Time.Sub(begun), Degraded: 50}, ended)
		require.InDelta(t, 5500*time.Millisecond, ended.Duration, float64(750*time.Millisecond))
	}, WithHook(h.hook()))
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

// A server is killed and started again under load, for each policy. The test checks what is granted in the
// meantime, how often Redis is probed, that it grants again, and what is left behind.
func TestPoliciesWhileTheServerIsAway(t *testing.T) {
	redistest.NeedReal(t)
	before, tests := runtime.NumGoroutine(), map[string]func(*testing.T){}
	for _, p := range []OutagePolicy{FailClosed(), FailOpen(), LocalQuota(overall(50, 500*time.Millisecond), 5)} {
		tests[p.String()] = func(t *testing.T) { killedAndRestarted(t, p) }
	}
	abreast(t, tests)
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func killedAndRestarted(t *testing.T, p OutagePolicy) {
	const rate, interval, share = 50, 500 * time.Millisecond, 50 / 5
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	// A call whose reply is no longer waited for is sent again, and its grant is then dated by the second reply. The machine
	// may stand still for a while, and the grants must not seem later because of that.
	rdb, h := s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.DialerRetries = 20*time.Second, 1 }), &ledger{}
	w := watched(rdb)
	client := newClient(t, rdb, WithOutagePolicy(p), WithHook(h.hook()))
	l := client.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(t.Context(), overall(rate, interval)))

	var local, all grantlog.Ledger // what is granted without Redis, and with it; its times have no monotonic clock
	var byRedis, rejected atomic.Int64
	var callers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer callers.Wait()
	defer stop()
	for i := range 4 {
		callers.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Duration(2+i) * time.Millisecond) {
				r, err := l.Allow(t.Context(), 1)
				switch {
				case err != nil:
					assert.ErrorIs(t, err, ErrUnavailable)
				case r.Granted && r.Degraded:
					local.Add(grantlog.At(r.Time.Round(0), 1))
					all.Add(grantlog.At(r.Time.Round(0), 1))
				case r.Granted:
					byRedis.Add(1)
					all.Add(grantlog.At(r.Time.Round(0), 1))
				case r.Degraded:
					rejected.Add(1)
				}
			}
		})
	}
	soon(t, "Redis grants", func() bool { return byRedis.Load() > rate })
	s.Kill()
	soon(t, "the outage is known", l.handle.Health().Down)
	known, sent := time.Now(), w.sent.Load()
	time.Sleep(5 * time.Second)
	probes, lasted := w.sent.Load()-sent, time.Since(known)
	s.Restart()
	soon(t, "the outage is over", func() bool { return !l.handle.Health().Down() })
	back := byRedis.Load()
	soon(t, "Redis grants again", func() bool { return byRedis.Load() > back })
	time.Sleep(2 * interval)
	stop()
	callers.Wait()
	require.NoError(t, client.Close())
	require.NoError(t, rdb.Close())

	t.Logf("%v: %d probes in %v, %d granted without Redis", p, probes, lasted, local.Told().Permits())
	require.NotZero(t, probes)
	require.LessOrEqual(t, probes, 1+int64(lasted/time.Second), "one a second at most")
	require.Len(t, h.events, 2, "it began once and ended once")
	switch p.kind {
	case outage.FailClosed:
		require.Zero(t, local.Told().Permits())
	case outage.FailOpen:
		require.Greater(t, local.Told().Permits(), int64(2*rate))
		require.Zero(t, rejected.Load(), "everybody is granted")
	case outage.LocalQuota:
		require.LessOrEqual(t, local.Told().Most(interval-time.Millisecond), int64(share))
		require.GreaterOrEqual(t, local.Told().Permits(), int64(2*share), "the share is used, again and again")
		require.LessOrEqual(redistest.Final(t), all.Told().Most(interval-2*time.Millisecond), int64(rate), "across going away and coming back")
	}
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
	const interval, lasts = 500 * time.Millisecond, 15 * time.Second
	h := &ledger{}
	client := newClient(t, p.rdb, WithOutagePolicy(LocalQuota(overall(4, interval), 2)), WithHook(h.hook()))
	defer client.Close()
	l := client.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(p.ctx, overall(4, interval)))
	cure := begin(p)
	start, granted := time.Now(), atomic.Int64{}
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for ; time.Since(start) < lasts; time.Sleep(10 * time.Millisecond) {
				r, err := l.Allow(p.ctx, 1)
				if assert.NoError(t, err); r.Granted && r.Degraded {
					granted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	require.Len(t, h.events, 1)
	require.True(t, isReply(h.events[0].Err, says), "%v", h.events[0].Err)
	cure()
	soon(t, "Redis decides again", func() bool { return !must(l.Allow(p.ctx, 1))(t).Degraded })
	require.NoError(t, client.Close())
	require.Len(t, h.events, 2, "it was one outage")
	most := int64(2 * lasts / interval) // half of the rate
	require.LessOrEqual(t, granted.Load(), most)
	require.Greater(t, granted.Load(), most/4, "the share is used, again and again")
}

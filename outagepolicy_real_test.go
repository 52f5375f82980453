package ratelimiter

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

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
		most, _ := meanwhile.worst(rate.Interval - ms)
		share := rate.Permits / int64(p.nodes)
		require.LessOrEqual(t, most, share)
		require.GreaterOrEqual(t, meanwhile.total(), 2*share, "the share is used, again and again")
		most, at := all.worst(rate.Interval - ms)
		t.Log("most in any window", most, "at", at, "killed at", killed, "back at", time.Duration(back.Load()))
		require.LessOrEqual(redistest.Final(t), most, rate.Permits, "across going away and coming back")
	}
	require.NoError(t, client.Close())
	require.NoError(t, rdb.Close())
}

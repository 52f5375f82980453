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

// A server is killed and started again under load, for each policy: what is granted meanwhile, how soon
// Redis grants again, how often it is probed, and what is left of it all.
func TestPoliciesWhileTheServerIsAway(t *testing.T) {
	redistest.NeedReal(t)
	const rate, interval, nodes = 50, 500 * time.Millisecond, 5
	before := runtime.NumGoroutine()
	abreast(t, map[string]func(*testing.T){
		"closed": func(t *testing.T) { killedAndRestarted(t, FailClosed(), overall(rate, interval)) },
		"open":   func(t *testing.T) { killedAndRestarted(t, FailOpen(), overall(rate, interval)) },
		"local": func(t *testing.T) {
			killedAndRestarted(t, LocalShare(overall(rate, interval), nodes), overall(rate, interval))
		},
	})
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func killedAndRestarted(t *testing.T, p OutagePolicy, rate Rate) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	// A reply that is waited for no longer is asked for again, and then dated by the second answer: the
	// machine may stand still for a while, the grants must not seem to come later for that.
	rdb := s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.DialerRetries = 20*time.Second, 1 })
	w := watched(rdb)
	var began, ended atomic.Int64
	client := New(rdb, WithOutagePolicy(p), WithObserver(func(e Event) {
		if e.Kind == OutageBegan {
			began.Add(1)
		} else if e.Kind == OutageEnded {
			ended.Add(1)
		}
	}))
	l := client.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(t.Context(), rate))

	var (
		all, degraded grantLog
		firstBack     atomic.Int64 // the first since back
		back          atomic.Int64
		stop          atomic.Bool
		begin         = time.Now().Round(0) // Redis has no monotonic clock
		callers       sync.WaitGroup
		waiters       sync.WaitGroup
	)
	for i := range 4 {
		callers.Go(func() {
			for !stop.Load() {
				r, err := l.Try(t.Context(), 1)
				now := r.Time.Sub(begin) // when it was decided, by one machine's clock
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
	time.Sleep(3 * time.Second)
	stop.Store(true)
	callers.Wait()
	waiters.Wait()

	first := time.Duration(firstBack.Load() - back.Load())
	t.Logf("%v: outage known after %v; %d probes in 5 s; first grant by Redis %v after it was back; %d granted without it",
		p, known-killed, probes, first, degraded.total())
	require.LessOrEqual(t, probes, int64(5))
	require.GreaterOrEqual(t, probes, int64(3))
	require.Positive(t, firstBack.Load())
	require.LessOrEqual(t, first, 2500*time.Millisecond)
	require.EqualValues(t, 1, began.Load())
	require.EqualValues(t, 1, ended.Load())

	var meanwhile grantLog
	for _, g := range all.grants {
		if g.at > known && g.at < restarting {
			meanwhile.add(g.at, g.permits)
		}
	}
	const ms = 2 * time.Millisecond // Redis counts whole ones, and where a grant is dated back two are rounded
	switch p.kind {
	case outage.FailClosed:
		require.Zero(t, meanwhile.total(), "granted without Redis")
	case outage.FailOpen:
		require.Greater(t, meanwhile.total(), int64(rate.Permits*10*3/2), "everybody is granted")
	case outage.LocalShare:
		most, _ := meanwhile.worst(rate.Interval - ms)
		share := rate.Permits / int64(p.nodes)
		require.LessOrEqual(t, most, share)
		require.GreaterOrEqual(t, meanwhile.total(), share*4, "the share is used")
		most, at := all.worst(rate.Interval - ms)
		t.Log("most in any window", most, "at", at, "killed at", killed, "back at", time.Duration(back.Load()))
		require.LessOrEqual(t, most, rate.Permits, "across going away and coming back")
	}
	require.NoError(t, client.Close())
	require.NoError(t, rdb.Close())
}

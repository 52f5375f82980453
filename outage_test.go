// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
				require.NoError(t, w.l.redis.Probe(time.Second))
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
			_, err = l.Admin().Exists(w.ctx)
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
			over, _ := l.handle.Health().Outage()
			c.failsWith(redisError("NOPERM no more"))
			<-over // Redis is there, and says no
			_, err = l.OnOutage(FailClosed()).Allow(w.ctx, 1)
			require.ErrorContains(t, err, "NOPERM")
			require.False(t, l.handle.Health().Down())
			c.down.Store(false)
			must(l.Admin().Delete(w.ctx))(t)
		}
	})
}

// TestErrorsOfSetRateSayWhatIsSet checks that an error says of a rate that it is set only if it is, and not of one that Redis was never asked for.
func TestErrorsOfSetRateSayWhatIsSet(t *testing.T) {
	per := func(permits int64) Rate { return Rate{Type: PerClient, Permits: permits, Interval: time.Minute} }
	inWorld(t, per(20), func(t *testing.T, w *world) {
		scan := redisError("ERR no scan now")
		var fails atomic.Bool
		onCommands(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() != "scan" || !fails.Load() {
				return next(ctx, cmd)
			}
			cmd.SetErr(scan)
			return scan
		})
		fails.Store(true)
		set, err := w.l.UpdateRate(w.ctx, per(10))
		require.True(t, set)
		require.ErrorContains(t, err, "(the rate is set, but what other clients have left may be more than it)")
		require.Equal(t, per(10), must(w.l.Rate(w.ctx))(t))

		goesAway(w, cutOff(w, refusedDial))
		for _, opts := range [][]RateOption{nil, {KeepState()}} {
			set, err = w.l.UpdateRate(w.ctx, per(5), opts...)
			require.False(t, set)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NotContains(t, err.Error(), "the rate is set")
			err = w.l.SetRate(w.ctx, per(5), opts...)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NotContains(t, err.Error(), "the rate is set")
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

// A server is killed and started again under load, for each policy. The test checks what is granted in the
// meantime, how often Redis is probed, that it grants again, and what is left behind.
func TestPoliciesWhileTheServerIsAway(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
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
	w := &counter{}
	rdb.AddHook(w)
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

// A crowded is a Client that fails open, with no permits left on the limiters of a server of its own.
type crowded struct {
	*Client
	s            *redistest.Server
	rdb          *redis.Client
	began, ended chan Event
}

func newCrowded(t *testing.T, opts ...func(*redis.Options)) *crowded {
	redistest.NeedReal(t)
	w := &crowded{s: redistest.Start(t), began: make(chan Event, 10), ended: make(chan Event, 10)}
	w.rdb = w.s.Client(t, opts...)
	w.Client = must(New(w.rdb, WithOutagePolicy(FailOpen()), WithHook(Hook{Event: func(e Event) {
		switch e.Kind {
		case OutageBegan:
			w.began <- e
		case OutageEnded:
			w.ended <- e
		}
	}})))(t)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// usedUp returns a limiter that has no permits left for an hour.
func (w *crowded) usedUp(t testing.TB, name string) *RateLimiter {
	l := w.RateLimiter(name)
	assert.NoError(t, l.SetRate(context.Background(), overall(1, time.Hour)))
	assert.True(t, must(l.Allow(context.Background(), 1))(t).Granted)
	return l
}

// hold makes n callers of others block on the client's own connections until the test ends.
func (w *crowded) hold(t *testing.T, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = w.rdb.BLPop(ctx, 0, fmt.Sprint("queue", i)).Err()
			}
		})
	}
	admin := w.s.Client(t)
	t.Cleanup(func() {
		cancel()
		w.s.Resume() // a test that has failed may have left it paused
		_ = admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal").Err()
		wg.Wait()
	})
	soon(t, "all connections block", func() bool {
		stats := w.rdb.PoolStats()
		blocked := must(admin.ClientList(context.Background()).Result())(t)
		return stats.IdleConns == 0 && int(stats.TotalConns) == n && countOf(blocked, "cmd=blpop") == n
	})
}

func countOf(text, part string) (n int) {
	for i := 0; i+len(part) <= len(text); i++ {
		if text[i:i+len(part)] == part {
			n++
		}
	}
	return n
}

// TestFullPoolIsNoOutage lets others block all connections of the limiter's client, while Redis replies. No policy grants
// anything, and the error says how large the pool is. When Redis then stands still, that is an outage all the same, and it
// ends when Redis goes on, although the pool is as full as before.
func TestFullPoolIsNoOutage(t *testing.T) {
	for _, patience := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(fmt.Sprint("PoolTimeout ", patience), func(t *testing.T) {
			t.Parallel()
			const size = 6
			w := newCrowded(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout, o.MaxRetries = size, patience, -1 })
			l := w.usedUp(t, "busy")
			w.hold(t, size)
			check := func(granted bool, err error) {
				assert.False(t, granted)
				assert.ErrorIs(t, err, ErrOverloaded)
				assert.NotErrorIs(t, err, ErrUnavailable)
				assert.ErrorContains(t, err, fmt.Sprintf("all %d connections of the pool are in use", size))
			}
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%4+1)*time.Second)
					defer cancel()
					switch i % 3 {
					case 0:
						r, err := l.Allow(ctx, 1)
						check(r.Granted, err)
					case 1:
						ok, err := l.TryAcquire(ctx, 1, time.Minute)
						check(ok, err)
					case 2:
						all, err := w.TryAcquireAll(ctx, time.Minute, Demand{l, 1}, Demand{w.RateLimiter("other"), 1})
						check(all.Granted, err)
					}
				})
			}
			wg.Wait()
			require.Empty(t, w.began)

			w.s.Pause()
			var open atomic.Bool
			for range 3 {
				wg.Go(func() {
					for !open.Load() {
						if r, err := l.Allow(context.Background(), 1); err == nil && r.Degraded {
							open.Store(true)
						}
					}
				})
			}
			ev := inTime(t, w.began)
			require.ErrorContains(t, ev.Err, "no reply from Redis")
			wg.Wait()
			w.s.Resume()
			var stop atomic.Bool
			for range 3 {
				wg.Go(func() {
					for !stop.Load() {
						_, _ = l.Allow(context.Background(), 1)
						time.Sleep(time.Millisecond)
					}
				})
			}
			inTime(t, w.ended)
			stop.Store(true)
			wg.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			r, err := l.Allow(ctx, 1)
			check(r.Granted, err)
		})
	}
}

// TestCrowdIsNoOutage has a crowd ask for what is not there, all at once. Redis replies as fast as it can, so nobody is granted
// anything. How long each call takes is up to the machine.
func TestCrowdIsNoOutage(t *testing.T) {
	size := redistest.Cases(5_000, 50_000)
	w := newCrowded(t)
	limiters := make([]*RateLimiter, size)
	var wg sync.WaitGroup
	for part := range 64 {
		wg.Go(func() {
			for i := part; i < size; i += 64 {
				limiters[i] = w.usedUp(t, fmt.Sprint("crowd ", i))
			}
		})
	}
	wg.Wait()
	for name, ask := range map[string]func(i int) (bool, error){
		"Allow": func(i int) (bool, error) {
			r, err := limiters[i].Allow(context.Background(), 1)
			return r.Granted, err
		},
		"TryAcquire": func(i int) (bool, error) { return limiters[i].TryAcquire(context.Background(), 1, 4*time.Second) },
		"TryAcquireAll": func(i int) (bool, error) {
			r, err := w.TryAcquireAll(context.Background(), 4*time.Second, Demand{limiters[i], 1}, Demand{limiters[(i+1)%size], 1})
			return r.Granted, err
		},
	} {
		var granted, wrong atomic.Int64
		for i := range size {
			wg.Go(func() {
				switch ok, err := ask(i); {
				case ok:
					granted.Add(1)
				case err != nil && !errors.Is(err, ErrOverloaded) && !errors.Is(err, ErrUnavailable):
					wrong.Add(1)
				}
			})
		}
		wg.Wait()
		require.Zero(t, granted.Load(), name)
		require.Zero(t, wrong.Load(), name)
		require.Empty(t, w.began, name)
	}
}

// TestStarvedProcessIsNoOutage has a processor that is busy with others, so that replies are read late, which is no silence of
// Redis.
func TestStarvedProcessIsNoOutage(t *testing.T) {
	w := newCrowded(t)
	l := w.usedUp(t, "starved")
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range 2000 * runtime.GOMAXPROCS(0) { // each is given the processor in turn, for up to 10 ms
		busy.Go(func() {
			for n := 0; !stop.Load(); n++ {
				if n%1000 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for range 5 {
				r, err := l.Allow(context.Background(), 1)
				assert.False(t, r.Granted, "%v", err)
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	busy.Wait()
	require.Empty(t, w.began)
}

// TestKilledServerWhileThePoolIsFull kills Redis while others hold all connections. That is an outage, and it ends when Redis
// is back, although they hold them again at once.
func TestKilledServerWhileThePoolIsFull(t *testing.T) {
	w := newCrowded(t, func(o *redis.Options) { o.PoolSize, o.MaxRetries, o.DialerRetries = 1, -1, 1 })
	l := w.usedUp(t, "held")
	w.hold(t, 1)
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for range 10 {
		wg.Go(func() {
			for ; !stop.Load(); time.Sleep(time.Millisecond) {
				_, _ = l.Allow(context.Background(), 1)
			}
		})
	}
	w.s.Kill()
	inTime(t, w.began)
	w.s.Restart()
	inTime(t, w.ended)
}

// TestUnsentIsOverloaded has calls that get no further than this process: the connection is being made, a vault is asked for
// the password, or there is no descriptor left. No policy grants anything, and it is no outage.
func TestUnsentIsOverloaded(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(o *redis.Options, slow *atomic.Bool)
		says string // by which a caller learns it whose time is up
	}{
		"slow dials": {func(o *redis.Options, slow *atomic.Bool) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if slow.Load() {
					time.Sleep(4 * time.Second)
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}, ""},
		"slow credentials": {func(o *redis.Options, slow *atomic.Bool) {
			o.CredentialsProvider = func() (string, string) {
				if slow.Load() {
					time.Sleep(4 * time.Second)
				}
				return "", ""
			}
		}, ""},
		"no descriptor": {func(o *redis.Options, slow *atomic.Bool) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if slow.Load() {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EMFILE}
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}, "too many open files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var slow atomic.Bool
			w := newCrowded(t, func(o *redis.Options) { o.DialTimeout, o.DialerRetries = 20*time.Second, 1; c.set(o, &slow) })
			l := w.usedUp(t, "far")
			slow.Store(true)
			require.NoError(t, redis.NewClient(&redis.Options{Addr: w.rdb.Options().Addr}).Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err())
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%3+1)*time.Second)
					defer cancel()
					r, err := l.Allow(ctx, 1)
					assert.False(t, r.Granted, "%v", err)
					if c.says != "" {
						assert.ErrorIs(t, err, ErrOverloaded)
						assert.NotErrorIs(t, err, ErrUnavailable)
						assert.ErrorContains(t, err, c.says)
					}
				})
			}
			wg.Wait()
			require.Empty(t, w.began)
		})
	}
}

// TestBrokenIdleConnectionsAreNoOutage breaks the idle connections of the pool, of which there are more than a call has attempts,
// while Redis is there: every call is granted by Redis, once. The lane of faults has the rest of them, with times.
func TestBrokenIdleConnectionsAreNoOutage(t *testing.T) {
	redistest.NeedReal(t)
	for _, c := range []struct {
		name          string
		how           redistest.Spoil
		idle, callers int
		policy        OutagePolicy
	}{
		{"reset, one", redistest.SpoilReset, 1, 1, FailOpen()},
		{"reset, many", redistest.SpoilReset, 60, 1, FailClosed()},
		{"reset, many, a crowd", redistest.SpoilReset, 20, 8, FailOpen()},
		{"half-open", redistest.SpoilSilent, 20, 8, FailOpen()},
		{"replies are lost", redistest.SpoilReplies, 20, 1, FailClosed()},
		{"replies are lost to a crowd", redistest.SpoilReplies, 60, 8, LocalQuota(PerSecond(100), 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, name := t.Context(), redistest.Key(t)
			proxy := redistest.StartProxy(t, redistest.Client(t).Options().Addr)
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 100, ReadTimeout: time.Second})
			defer rdb.Close()
			var mu sync.Mutex
			var events []Event
			client := newClient(t, rdb, WithOutagePolicy(c.policy), WithHook(Hook{Event: func(e Event) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			}}))
			defer client.Close()
			l := client.RateLimiter(name).WithRate(overall(1000, time.Hour))
			allow := func() {
				r, err := l.Allow(ctx, 1)
				assert.NoError(t, err)
				assert.True(t, r.Granted)
				assert.False(t, r.Degraded)
			}
			allow()
			var conns []*redis.Conn
			for range c.idle {
				conn := rdb.Conn()
				require.NoError(t, conn.Ping(ctx).Err())
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				require.NoError(t, conn.Close())
			}
			proxy.Spoil(c.how)
			var all sync.WaitGroup
			for range c.callers {
				all.Go(func() {
					for range 5 {
						allow()
					}
				})
			}
			all.Wait()
			left, err := l.AvailablePermits(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 1000-1-5*c.callers, left, "each call has taken its permit once")
			mu.Lock()
			defer mu.Unlock()
			require.Empty(t, events)
		})
	}
}

// TestASilenceIsKnownWhateverIsAsked freezes Redis beside one caller with short deadlines, whose calls take nothing:
// the outage is known, and ends.
func TestASilenceIsKnownWhateverIsAsked(t *testing.T) {
	s := redistest.Start(t)
	for name, call := range map[string]func(context.Context, *RateLimiter) error{
		"Peek": func(ctx context.Context, l *RateLimiter) error { _, err := l.Peek(ctx, 1); return err },
		"Rate": func(ctx context.Context, l *RateLimiter) error { _, err := l.Rate(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan Event, 100)
			client := newClient(t, s.Client(t), WithHook(Hook{Event: func(e Event) { events <- e }}))
			defer client.Close()
			l := client.RateLimiter(fmt.Sprint("silent", name)).WithRate(overall(1000, time.Hour))
			_, err := l.Allow(t.Context(), 1)
			require.NoError(t, err)
			until := func(kind EventKind) {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					err := call(ctx, l)
					cancel()
					select {
					case e := <-events:
						require.Equal(t, kind, e.Kind)
						return
					default:
						require.True(t, err != nil || kind == OutageEnded)
						time.Sleep(10 * time.Millisecond)
					}
				}
			}
			s.Pause()
			until(OutageBegan)
			require.ErrorIs(t, call(t.Context(), l), ErrUnavailable)
			s.Resume()
			until(OutageEnded)
			require.NoError(t, call(t.Context(), l))
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A fleetProcess is a process of a fleet, with what its Hook was told.
type fleetProcess struct {
	*Shared
	t      *testing.T
	mu     sync.Mutex
	events []ratelimiter.Event
}

func startProcess(t *testing.T, rdb redis.UniversalClient, name string, a Algorithm, spent StateOnChange, opts ...Option) *fleetProcess {
	t.Helper()
	p := &fleetProcess{t: t}
	opts = append(opts, WithFleetParameters(spent), WithClientClock(), WithHook(ratelimiter.Hook{Event: func(e ratelimiter.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events = append(p.events, e)
	}}))
	p.Shared = redistest.Must(NewShared(rdb, name, a, opts...))(t)
	t.Cleanup(synctest.Wait) // for a look at the record that has just begun, before the client is closed
	return p
}

// reserved asks that many times for one permit, of those of the next hour, and returns how many are granted.
func (p *fleetProcess) reserved(calls int) (granted int) {
	p.t.Helper()
	for range calls {
		if redistest.Must(p.Reserve(p.t.Context(), 1, time.Hour))(p.t).Granted {
			granted++
		}
	}
	return granted
}

// told returns how many changes the Hook was told of.
func (p *fleetProcess) told() (changes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		require.Equal(p.t, ratelimiter.RateChanged, e.Kind)
		require.Error(p.t, e.Err)
		changes++
	}
	return changes
}

// notice lets p make a call, with which it looks, after ten seconds.
func (p *fleetProcess) notice() {
	p.t.Helper()
	time.Sleep(followEvery)
	_, err := p.Peek(p.t.Context(), 1)
	require.NoError(p.t, err)
	time.Sleep(time.Millisecond)
}

// changes are changes from 100 permits a minute to 2, and how many of these are granted at once if 50 were spent, by
// KeepState and by ForgetState.
func changes() map[string]struct {
	before, after Algorithm
	kept, forgot  int
} {
	minute, utc := time.Minute, time.UTC
	return map[string]struct {
		before, after Algorithm
		kept, forgot  int
	}{
		"fixed window":    {FixedWindow{per(100, minute)}, FixedWindow{per(2, minute)}, 0, 2},
		"sliding log":     {SlidingLog{per(100, minute)}, SlidingLog{per(2, minute)}, 0, 2},
		"sliding counter": {SlidingCounter{per(100, minute)}, SlidingCounter{per(2, minute)}, 0, 2},
		"calendar quota": {CalendarQuota{Permits: 100, Per: Day, Location: utc},
			CalendarQuota{Permits: 2, Per: Day, Location: utc}, 0, 2},
		// 50 permits lack, until the old rate has brought them.
		"interval bucket": {IntervalBucket{per(100, minute), 100}, IntervalBucket{per(2, minute), 2}, 0, 2},
		"token bucket":    {TokenBucket{per(100, minute), 100}, TokenBucket{per(2, minute), 2}, 0, 2},
		"gcra":            {GCRA{per(100, minute), 100}, GCRA{per(2, minute), 2}, 0, 2},
		"debt bucket":     {DebtBucket{per(100, minute), 50, 50}, DebtBucket{per(2, minute), 1, 1}, 0, 2},
		// The next turn is in half a minute.
		"leaky queue": {LeakyQueue{per(100, minute), 100}, LeakyQueue{per(2, minute), 2}, 1, 2},
		// They grant the turns of the next hour: two that are stored, one in advance, and two a minute.
		"smooth bursty":     {SmoothBursty{100. / 60, minute}, SmoothBursty{2. / 60, minute}, 4, 4},
		"smooth warming up": {SmoothWarmingUp{PermitsPerSecond: 100. / 60, Warmup: minute}, SmoothWarmingUp{PermitsPerSecond: 2. / 60, Warmup: minute}, 4, 4},
	}
}

// TestNewParameters: a limiter of 100 a minute, of which 50 are spent, is deployed as 2 a minute. The process that begins has the
// new parameters at once, and the old one after ten seconds. From then on no more than the new bound is granted, and nobody
// waits for longer than an unused limiter takes to be full twice, and for the turns that were granted before.
func TestNewParameters(t *testing.T) {
	redistest.Repeats(t)
	for kind, x := range changes() {
		for spent, atOnce := range map[StateOnChange]int{KeepState: x.kept, ForgetState: x.forgot} {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(25 * time.Hour))) // no day ends meanwhile
				name, what := redistest.Key(t), fmt.Sprintf("%s, %d", kind, spent)
				old := startProcess(t, rdb, name, x.before, spent)
				require.Equal(t, 50, old.reserved(50), what)
				next := startProcess(t, rdb, name, x.after, spent)
				require.Equal(t, atOnce, next.reserved(4), what)
				require.Equal(t, x.before, old.Algorithm(), "%s: it is held to its own", what)
				old.notice()
				require.Equal(t, x.after, old.Algorithm(), what)
				require.Equal(t, []int{1, 1}, []int{old.told(), next.told()}, what)

				var at []time.Time
				longest := 2 * time.Minute
				if strings.HasPrefix(kind, "smooth") { // they have granted turns in advance
					longest = 4 * time.Minute
				}
				for range 200 {
					for _, p := range []*fleetProcess{old, next} {
						r := redistest.Must(p.Reserve(t.Context(), 1, 0))(t)
						if r.Granted {
							at = append(at, time.Now())
						} else if kind != "calendar quota" {
							require.LessOrEqual(t, r.Wait, longest, what)
						}
					}
					time.Sleep(time.Second)
				}
				for i := range at {
					for j := i; j < len(at); j++ {
						require.LessOrEqual(t, int64(j-i+1), x.after.bound(at[j].Sub(at[i])+time.Microsecond, 1), what)
					}
				}
				if kind != "calendar quota" && kind != "smooth warming up" {
					require.GreaterOrEqual(t, len(at), 3, what)
				}
				require.Equal(t, []int{1, 1}, []int{old.told(), next.told()}, "%s: one event", what)
			})
		}
	}
}

// TestNoPingPong: the newest start decides, whatever restarts, and for an hour nobody changes it back. An old process that
// restarts is the newest; the next one that is deployed decides again.
func TestNoPingPong(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		before, after := Algorithm(FixedWindow{per(100, time.Minute)}), Algorithm(FixedWindow{per(2, time.Minute)})
		a := startProcess(t, rdb, name, before, KeepState)
		b := startProcess(t, rdb, name, before, KeepState)
		require.NoError(t, a.Start(t.Context()))
		require.NoError(t, b.Start(t.Context()))
		fleet := []*fleetProcess{a, b, startProcess(t, rdb, name, after, ForgetState)}
		rest := func(seconds int, want Algorithm, told ...int) {
			t.Helper()
			for range seconds {
				for _, p := range fleet {
					redistest.Must(p.For("user").Allow(t.Context(), 1))(t)
				}
				time.Sleep(time.Second)
			}
			for i, p := range fleet {
				require.Equal(t, want, p.Algorithm())
				require.Equal(t, told[i], p.told(), "process %d", i)
			}
		}
		rest(3600, after, 1, 1, 1)
		fleet = append(fleet, startProcess(t, rdb, name, before, KeepState)) // b again
		rest(100, before, 2, 2, 2, 1)
		fleet = append(fleet, startProcess(t, rdb, name, after, KeepState))
		rest(100, after, 3, 3, 3, 2, 1)

		// Redis loses the record, or everything.
		for _, lose := range []func(){
			func() { require.NoError(t, rdb.Del(t.Context(), recordKey(name)).Err()) },
			func() {
				for _, p := range fleet {
					require.NoError(t, rdb.Del(t.Context(), append(p.For("user").Keys(), p.Keys()...)...).Err())
				}
				require.NoError(t, rdb.Del(t.Context(), recordKey(name)).Err())
			},
		} {
			keys := a.For("user").Keys()
			lose()
			rest(100, after, 3, 3, 3, 2, 1)
			require.Equal(t, keys, a.For("user").Keys())
			_, text := recordOf(a.calls.Limiter().Now())
			require.Equal(t, text, rdb.Get(t.Context(), recordKey(name)).Val(), "it is written anew")
		}
		require.Equal(t, "limit2:"+name+":{user}:fixed_window2:fleet:"+a.calls.Limiter().Now().Generation, a.For("user").Keys()[0])
		ttl := rdb.PTTL(t.Context(), recordKey(name)).Val()
		require.Greater(t, ttl, recordFor-11*time.Second)
	})
}

// TestForgetStateOnce: however many processes are deployed, what was spent is forgotten once.
func TestForgetStateOnce(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		old := startProcess(t, rdb, name, GCRA{per(5, time.Hour), 5}, ForgetState)
		require.Equal(t, 5, old.reserved(9))
		var all sync.WaitGroup
		var mu sync.Mutex
		granted := 0
		for range 9 {
			p := startProcess(t, rdb, name, GCRA{per(3, time.Hour), 3}, ForgetState)
			all.Go(func() {
				n := p.reserved(3)
				mu.Lock()
				defer mu.Unlock()
				granted += n
			})
		}
		all.Wait()
		require.Equal(t, 3, granted)
		old.notice()
		require.Zero(t, old.reserved(3))
	})
}

// TestWaitersFollow: those in a queue are served by the new parameters, and one that wants more than these allow is told so.
func TestWaitersFollow(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		old := startProcess(t, rdb, name, FixedWindow{per(5, time.Hour)}, KeepState)
		require.Equal(t, 5, old.reserved(5))
		begin := time.Now()
		var served [4]time.Duration
		var errs [4]error
		var all sync.WaitGroup
		for i, n := range []int64{1, 1, 1, 4} {
			all.Go(func() {
				errs[i] = Wait(t.Context(), old.Shared, n)
				served[i] = time.Since(begin)
			})
			time.Sleep(time.Millisecond)
		}
		startProcess(t, rdb, name, FixedWindow{per(2, time.Minute)}, KeepState).reserved(1)
		all.Wait()
		require.Equal(t, []error{nil, nil, nil}, errs[:3])
		require.ErrorIs(t, errs[3], ratelimiter.ErrPermitsExceedRate)
		for i, most := range []time.Duration{2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
			require.InDelta(t, most, served[i], float64(time.Second), "waiter %d", i)
		}
	})
}

// TestBadFleet: what cannot be followed is an error when the limiter is made or begins, and one event later on.
func TestBadFleet(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name, second := redistest.Key(t), time.Second
		for what, opt := range map[string]struct {
			a   Algorithm
			opt Option
		}{
			"WithFleetParameters: 7": {GCRA{per(1, second), 1}, WithFleetParameters(7)},
		} {
			_, err := NewShared(rdb, name, opt.a, opt.opt)
			require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
			require.ErrorContains(t, err, what)
		}
		p := startProcess(t, rdb, name, &CalendarQuota{Permits: 9, Per: Day, Location: time.UTC}, KeepState)
		require.NoError(t, p.Start(t.Context()))
		for other, a := range map[string]Algorithm{
			"gcra":               GCRA{per(1, second), 1},
			"calendar_quota:day": CalendarQuota{Permits: 9, Per: Week, Location: time.UTC},
		} {
			q := startProcess(t, rdb, name, a, KeepState)
			_, err := q.Allow(t.Context(), 1)
			require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, other)
			require.ErrorContains(t, err, "with the algorithm calendar_quota:day:UTC:1:0, and this one with "+strings.Replace(other, "day", "week", 1))
			require.Error(t, q.Start(t.Context()))
		}
		for _, text := range []string{"x", "{}", `{"algorithm":"calendar_quota:day:UTC:1:0","parameters":{"Permits":-1}}`} {
			require.NoError(t, rdb.Set(t.Context(), recordKey(name), text, 0).Err())
			require.ErrorIs(t, startProcess(t, rdb, name, CalendarQuota{Permits: 9, Per: Day, Location: time.UTC}, KeepState).Start(t.Context()), ratelimiter.ErrMalformed)
			told := p.told()
			for range 3 {
				p.notice()
			}
			require.Equal(t, told+1, p.told())
		}
		require.Equal(t, 9, p.reserved(20), "it goes on by what it knew")
	})
}

// TestStateOfOtherParameters: whatever parameters follow each other, script and Go agree on what is in Redis, and from the
// last change on no more than the bound is granted.
func TestStateOfOtherParameters(t *testing.T) {
	ctx, rdb := t.Context(), patient(t)
	rates := []ratelimiter.Rate{per(7, 3*time.Microsecond), per(1, 20*calls.Longest), per(100, time.Minute), per(2, time.Minute), per(1<<20, time.Second), per(3, time.Hour)}
	for kind := range changes() {
		if kind == "calendar quota" {
			continue
		}
		random := proptest.Rand(t)
		for range redistest.Cases(3, 100) {
			now := time.UnixMicro(1_790_000_000_000_000)
			name := redistest.Key(t)
			clock := func(c *config) { c.Clock = func() time.Time { return now } }
			for range 6 {
				r := rates[random.IntN(len(rates))]
				a := atRate(r)[kind]
				if a == nil || a.check() != nil {
					continue
				}
				l := redistest.Must(NewShared(rdb, name, a, WithFleetParameters(KeepState), WithoutCachedRejections(), clock))(t)
				begin, granted := now, int64(0)
				for range 8 {
					n := 1 + random.Int64N(min(a.model().Largest, 1000))
					res, err := l.Reserve(ctx, n, 0)
					require.NoError(t, err, "%s of %+v", kind, a)
					if res.Granted {
						granted += n
						require.LessOrEqual(t, granted, a.bound(now.Sub(begin)+time.Microsecond, 1000), "%s of %+v", kind, a)
					}
					require.GreaterOrEqual(t, res.Available, int64(0))
					now = now.Add(min(res.Wait, micros(random.Int64N(calls.Longest.Microseconds()))))
				}
				if grant, res, err := l.AllowGrant(ctx, 1); err == nil && res.Granted && random.IntN(3) == 0 {
					require.NoError(t, grant.Settle(ctx, calls.MaxPermits-1))
				}
				if now.After(time.UnixMicro(4_000_000_000_000_000)) {
					break
				}
			}
		}
	}
}

// TestSettleAcrossAChange: a grant from before a change gives nothing back, and takes what it has used.
func TestSettleAcrossAChange(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		for actual, want := range map[int64]int64{0: 40, 5: 35} {
			name := redistest.Key(t)
			old := startProcess(t, rdb, name, FixedWindow{per(100, time.Hour)}, KeepState)
			grant, _, err := old.AllowGrant(t.Context(), 2)
			require.NoError(t, err)
			grant2, _, err := old.AllowGrant(t.Context(), 8)
			require.NoError(t, err)
			startProcess(t, rdb, name, FixedWindow{per(50, time.Hour)}, KeepState).reserved(1)
			old.notice()
			if actual == 0 {
				require.NoError(t, grant2.Cancel(t.Context()))
				require.ErrorIs(t, grant2.Settle(t.Context(), 3), ratelimiter.ErrSettled)
			} else {
				require.NoError(t, grant.Settle(t.Context(), actual+2))
			}
			require.Equal(t, want-1, redistest.Must(old.Peek(t.Context(), 1))(t).Available)
		}
	})
}

// TestFleetInAnOutage: a process that begins while Redis is down follows its policy, and begins when Redis is back.
func TestFleetInAnOutage(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name, down := redistest.Key(t), loading(rdb)
		p := startProcess(t, rdb, name, GCRA{per(1, time.Hour), 1}, ForgetState)
		open := redistest.Must(NewShared(rdb, name, GCRA{per(1, time.Hour), 1}, WithFleetParameters(KeepState), WithClientClock(), WithOutagePolicy(ratelimiter.FailOpen())))(t)
		down.Store(true)
		_, err := p.Allow(t.Context(), 1)
		require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
		for range 9 {
			r := redistest.Must(open.Allow(t.Context(), 1))(t)
			require.True(t, r.Granted && r.Degraded)
		}
		require.ErrorIs(t, p.Start(t.Context()), ratelimiter.ErrUnavailable)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.Start(ctx), context.Canceled)
		down.Store(false)
		time.Sleep(5 * time.Second)
		for range 3 {
			redistest.Must(open.Allow(t.Context(), 1))(t)
			time.Sleep(time.Second)
		}
		r := redistest.Must(open.Peek(t.Context(), 1))(t)
		require.False(t, r.Granted || r.Degraded)
		require.Zero(t, p.reserved(1))
	})
}

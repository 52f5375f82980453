// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"reflect"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The process rejects what it knows to be rejected, without a call, with a wait that gets shorter. It asks again when
// the wait is over, and at least once a second.
func TestCachedRejections(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		h := &holder{}
		l := shared(t, rdb, TokenBucket{per(4, time.Second), 8})
		require.NoError(t, rdb.ScriptLoad(t.Context(), l.calls.Limiter().Now().Script.Src).Err())
		rdb.AddHook(h)
		ms := time.Millisecond
		allow := func(n int64, want ratelimiter.Result, scripts int) {
			t.Helper()
			h.scripts = nil
			require.Equal(t, want, redistest.Must(l.Allow(t.Context(), n))(t))
			require.Len(t, h.scripts, scripts)
		}
		allow(8, ratelimiter.Result{Granted: true, Reset: 2 * time.Second}, 1)
		allow(1, ratelimiter.Result{Wait: 250 * ms, Reset: 2 * time.Second}, 0)
		allow(5, ratelimiter.Result{Wait: 1250 * ms, Reset: 2 * time.Second}, 0)
		time.Sleep(100 * ms)
		allow(1, ratelimiter.Result{Wait: 150 * ms, Reset: 1900 * ms}, 0)
		time.Sleep(150 * ms)
		allow(2, ratelimiter.Result{Available: 1, Wait: 250 * ms, Reset: 1750 * ms}, 0)
		allow(1, ratelimiter.Result{Granted: true, Reset: 2 * time.Second}, 1)
		time.Sleep(999 * ms)
		allow(5, ratelimiter.Result{Available: 3, Wait: 251 * ms, Reset: 1001 * ms}, 0)
		time.Sleep(ms)
		allow(5, ratelimiter.Result{Available: 4, Wait: 250 * ms, Reset: time.Second}, 1)
		allow(6, ratelimiter.Result{Available: 4, Wait: 500 * ms, Reset: time.Second}, 0)
		allow(4, ratelimiter.Result{Granted: true, Reset: 2 * time.Second}, 1)

		// In a minute it asks sixty times, whatever the number of calls.
		daily := twin(t, l, rdb).For("daily")
		daily.config.Current.Store(newSetting(FixedWindow{per(1, 24*time.Hour)}))
		require.NoError(t, rdb.ScriptLoad(t.Context(), fixedWindowScript.Src).Err())
		h.scripts = nil
		for range 6000 {
			redistest.Must(daily.Allow(t.Context(), 1))(t)
			time.Sleep(10 * ms)
		}
		require.Len(t, h.scripts, 60)
	})
}

// TestWithoutCachedRejections checks that each request is a call, so that a key that was deleted is so at once.
func TestWithoutCachedRejections(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := redistest.Must(NewShared(rdb, redistest.Key(t), TokenBucket{per(4, time.Second), 8}, WithClientClock(), WithoutCachedRejections()))(t)
		for _, granted := range []bool{true, false, true} {
			require.Equal(t, granted, redistest.Must(l.Allow(t.Context(), 8))(t).Granted)
			if !granted {
				require.NoError(t, rdb.Del(t.Context(), l.Keys()...).Err())
			}
		}
	})
}

// clone returns a copy of a state that has no slices.
func clone(s calls.State) calls.State {
	v := reflect.New(reflect.TypeOf(s).Elem())
	v.Elem().Set(reflect.ValueOf(s).Elem())
	return v.Interface().(calls.State)
}

// seenAt returns what the script says about a log.
func seenAt(log *slidingLog, now int64) *seenLog {
	s := &seenLog{permits: log.permits, interval: log.interval, due: now}
	for i := len(log.log) - 1; i >= 0 && log.log[i].at > now-log.interval; i-- {
		s.used += log.log[i].n
		s.at = max(s.at, log.log[i].at)
		s.due = log.log[i].at + log.interval
	}
	return s
}

// TestCachedRejectionsAreTrue tests in random calls of several processes that what a process rejects by itself
// would be rejected by Redis, except for a second after the key was deleted or the clock put forward. The wait that it
// tells is never longer than that of Redis.
func TestCachedRejectionsAreTrue(t *testing.T) {
	redistest.NoServer(t)
	for kind, a := range every() {
		t.Run(kind, func(t *testing.T) {
			random := proptest.Rand(t)
			now := int64(1_790_000_000_000_000)
			untrue := now // until when rejections may be untrue
			truth := a.model().Idle()
			clock := func() time.Time { return time.UnixMicro(now) }
			var processes [3]*Shared
			for i := range processes {
				l := redistest.Must(NewShared(&redis.Client{}, "x", a, WithClock(clock)))(t)
				processes[i] = l
			}
			known, asked, wrong := 0, 0, 0
			steps := 30_000
			if redistest.UnderRace {
				steps = 10_000
			}
			for range steps {
				now += random.Int64N(20_000)
				switch random.IntN(2000) {
				case 0:
					truth, untrue = a.model().Idle(), now+calls.KnownFor.Microseconds()
				case 1:
					now += random.Int64N(5_000_000)
				}
				l := processes[random.IntN(len(processes))]
				q := calls.Demand{Now: now, N: 1 + random.Int64N(min(5, a.model().Largest)), Spend: random.IntN(8) > 0}
				if a.model().Reserves && q.Spend {
					q.AtMost = random.Int64N(500_000)
				}
				dry := q
				dry.Spend = false
				want := truth.Take(dry, calls.Epoch{})
				if r, _, ok := l.calls.Limiter().Rejected(l.Keys()[0], q); ok {
					known++
					switch {
					case !want.Granted && now >= untrue:
						require.LessOrEqual(t, r.Wait, micros(want.Wait), "%+v", q)
						require.LessOrEqual(t, want.Remaining, r.Available, "%+v", q)
					case want.Granted && now < untrue:
						wrong++
					default:
						require.Less(t, now, untrue, "Redis would have granted %+v", q)
					}
					require.Positive(t, r.Wait)
					continue
				}
				asked++
				call := &calls.Request{Demand: q, Setting: l.calls.Limiter().Now(), Slot: l.Keys()[0], Outcome: truth.Take(q, calls.Epoch{}).Outcome(q)}
				f := &calls.Flight{Runs: []calls.Run{{Demand: q, Calls: []*calls.Request{call}}}, Requests: 1}
				seen := calls.State(nil)
				if log, ok := truth.(*slidingLog); ok {
					seen = seenAt(log, now)
				} else {
					seen = clone(truth)
				}
				l.calls.Limiter().Learn(f, !call.Result.Granted, calls.Rejection{State: seen, Now: now, Sent: time.Now()})
			}
			require.Greater(t, known, steps/10)
			require.Greater(t, asked, steps/100)
			t.Logf("%d known, %d asked, %d rejected within a second after the key was deleted", known, asked, wrong)
		})
	}
}

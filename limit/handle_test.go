// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func per1(n int64) ratelimiter.Rate { return ratelimiter.Rate{Permits: n, Interval: time.Second} }

// TestForAllocatesNothing: the limiter of a key that was asked for before is the same one, however many there are.
func TestForAllocatesNothing(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	a := GCRA{Rate: per1(10), Burst: 20}
	l := redistest.Must(NewShared(rdb, "x", a))(t)
	require.Equal(t, "limit2:x:{user}:"+signatureOf(a), l.For("user").Keys()[0])
	require.Zero(t, testing.AllocsPerRun(100, func() { l.For("user") }))
	require.Same(t, l.For("user"), l.For("us"+string([]byte("er"))))
	tenant := l.For("user").With(a)
	require.Equal(t, []string{"limit2:x:{user}:gcra3:each"}, tenant.Keys())
	require.Same(t, tenant, l.With(TokenBucket(a)).For("user"))
	for i := range 20000 {
		require.Equal(t, fmt.Sprintf("limit2:x:{%d}:gcra3:each", i), l.With(GCRA{Rate: per1(int64(i%3000 + 1)), Burst: 20}).For(fmt.Sprint(i)).Keys()[0])
	}
	long := strings.Repeat("k", 1000)
	require.NotSame(t, l.For(long), l.For(long), "a forged key is not kept")
}

func BenchmarkFor(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	l, err := NewShared(rdb, "x", GCRA{Rate: per1(10), Burst: 20})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if l.For("user 42").calls.Key != "user 42" {
			b.Fatal("another key")
		}
	}
}

// TestWith: tenants have rates of their own, which may change; what was granted by the old one counts on.
func TestWith(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := shared(t, rdb, GCRA{Rate: per1(1), Burst: 1})
		at := func(tenant string, n, burst int64) *Shared {
			return l.For(tenant).With(GCRA{Rate: per1(n), Burst: burst})
		}
		allow := func(l *Shared, n int64) ratelimiter.Result { return redistest.Must(l.Allow(t.Context(), n))(t) }
		require.Equal(t, ratelimiter.Result{Granted: true, Reset: time.Second}, allow(at("small", 10, 10), 10))
		require.Equal(t, ratelimiter.Result{Wait: 100 * time.Millisecond, Reset: time.Second}, allow(at("small", 10, 10), 1))
		require.Equal(t, ratelimiter.Result{Granted: true, Available: 90, Reset: 100 * time.Millisecond}, allow(at("large", 100, 100), 10))
		// What is known of a smaller burst does not reject at the larger one.
		require.Equal(t, ratelimiter.Result{Granted: true, Available: 10, Reset: 2 * time.Second}, allow(at("small", 10, 30), 10))
		require.Equal(t, ratelimiter.Result{Wait: 100 * time.Millisecond, Reset: 2 * time.Second}, allow(at("small", 20, 20), 1), "20 permits lack, and come in as they were taken")
		time.Sleep(2 * time.Second)
		require.Equal(t, ratelimiter.Result{Granted: true, Available: 10, Reset: 500 * time.Millisecond}, allow(at("small", 20, 20), 10))
		require.True(t, allow(l.For("small"), 1).Granted, "calls without With count apart")

		g, err := at("small", 20, 20).WaitGrant(t.Context(), 10)
		require.NoError(t, err)
		require.NoError(t, g.Cancel(t.Context()))
		require.True(t, allow(at("small", 20, 20), 10).Granted)

		for _, bad := range []*Shared{
			l.With(nil), l.With(FixedWindow{per1(1)}), l.With(GCRA{}), l.With(GCRA{}).For("x"), l.With(GCRA{}).With(GCRA{Rate: per1(1), Burst: 1}),
			shared(t, rdb, FixedWindow{per1(1)}).With(GCRA{Rate: per1(1), Burst: 1}),
			redistest.Must(NewShared(rdb, "fleet", GCRA{Rate: per1(1), Burst: 1}, WithFleetParameters(KeepState)))(t).With(GCRA{Rate: per1(1), Burst: 1}),
		} {
			for name, call := range allCalls(bad) {
				require.ErrorIs(t, call(t.Context()), ratelimiter.ErrInvalidArgument, name)
			}
		}
	})
}

// TestAllowAtMost: a call takes what there is, up to what it asks for.
func TestAllowAtMost(t *testing.T) {
	for kind, a := range map[string]Algorithm{
		"gcra": GCRA{per1(10), 10}, "token bucket": &TokenBucket{per1(10), 10}, "interval bucket": IntervalBucket{per1(10), 10},
		"fixed window": FixedWindow{per1(10)}, "sliding log": SlidingLog{per1(10)}, "sliding counter": SlidingCounter{per1(10)},
		"calendar quota": CalendarQuota{Permits: 10, Per: Day, Location: time.UTC},
	} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			for _, l := range []interface {
				Limiter
				AllowAtMost(ctx context.Context, n int64) (int64, ratelimiter.Result, error)
			}{shared(t, rdb, a), redistest.Must(NewLocal(a))(t)} {
				take := func(n int64) (int64, ratelimiter.Result) {
					t.Helper()
					got, r, err := l.AllowAtMost(t.Context(), n)
					require.NoError(t, err)
					require.Equal(t, got > 0, r.Granted)
					return got, r
				}
				got, r := take(2)
				require.EqualValues(t, 2, got, kind)
				require.EqualValues(t, 8, r.Available, kind)
				require.True(t, redistest.Must(l.Allow(t.Context(), 5))(t).Granted)
				got, r = take(1 << 32 >> 1)
				require.EqualValues(t, 3, got, "%s %T: more than it has", kind, l)
				require.Zero(t, r.Available)
				require.Zero(t, r.Wait)
				one := redistest.Must(l.Peek(t.Context(), 1))(t)
				for range 2 { // the second time it is known
					got, r = take(4)
					require.Zero(t, got)
					require.Equal(t, one.Wait, r.Wait, "%s %T: the wait is that of one", kind, l)
				}
				if r.Wait < time.Hour {
					time.Sleep(r.Wait)
					got, _ = take(1)
					require.EqualValues(t, 1, got, kind)
				}
				_, _, err := l.AllowAtMost(t.Context(), 0)
				require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
			}
		})
	}
	for _, a := range []Algorithm{DebtBucket{per1(10), 10, 1}, &DebtBucket{per1(10), 10, 1}, LeakyQueue{per1(10), 10}, SmoothBursty{1, time.Second}} {
		_, _, err := redistest.Must(NewLocal(a))(t).AllowAtMost(t.Context(), 1)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	}
}

// TestAllowAtMostOfManyAMicrosecond checks that a Local and a Shared take as much where more than a permit comes in each µs.
func TestAllowAtMostOfManyAMicrosecond(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		for _, a := range []Algorithm{GCRA{per(10, time.Microsecond), 5}, GCRA{per(7, 2*time.Microsecond), 3}, GCRA{per(1<<32-1, time.Microsecond), 1}, TokenBucket{per(1000, time.Microsecond), 9}} {
			now := time.Now()
			s := redistest.Must(NewShared(rdb, redistest.Key(t), a, func(c *config) { c.Clock = func() time.Time { return now } }))(t)
			l := redistest.Must(NewLocal(a))(t)
			for _, n := range []int64{3, 1000, calls.MaxPermits, calls.MaxPermits} {
				shared, r, err := s.AllowAtMost(t.Context(), n)
				require.NoError(t, err)
				local, q, err := l.AllowAtMost(t.Context(), n)
				require.NoError(t, err)
				require.Equal(t, shared, local, "%d of %+v", n, a)
				require.Equal(t, r, q, "%d of %+v", n, a)
			}
		}
	})
}

// TestAllowAtMostAgrees: in Redis and in this process the same calls at the same instants take the same, alone and together.
func TestAllowAtMostAgrees(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		random := proptest.Rand(t)
		for round := range 40 {
			a := []Algorithm{GCRA{per1(7), 9}, IntervalBucket{per1(7), 9}, FixedWindow{per1(9)}, SlidingLog{per1(9)}, SlidingCounter{per1(9)}}[round%5]
			now := time.Now()
			s := redistest.Must(NewShared(rdb, redistest.Key(t), a, func(c *config) { c.Clock = func() time.Time { return now } }))(t).For(fmt.Sprint(round))
			local := a.model().Idle()
			for range 25 {
				now = now.Add(time.Duration(random.Int64N(700_000)) * time.Microsecond)
				n := 1 + random.Int64N(12)
				var want int64
				if d := local.Take(calls.Demand{Now: now.UnixMicro(), N: 1}, calls.Epoch{}); d.Granted {
					want = min(n, d.Remaining)
					local.Take(calls.Demand{Now: now.UnixMicro(), N: want, Spend: true}, calls.Epoch{})
				}
				got, r, err := s.AllowAtMost(t.Context(), n)
				require.NoError(t, err)
				require.Equal(t, want, got, "%T", a)
				require.Equal(t, local.Take(calls.Demand{Now: now.UnixMicro(), N: 1}, calls.Epoch{}).Remaining, r.Available, "%T", a)
			}
			// Several that go as one call take no more together than there is.
			now = now.Add(time.Hour)
			var taken []int64
			f := &calls.Flight{}
			for range 6 {
				f.Add(&calls.Request{Demand: calls.Demand{N: 4, Spend: true, UpTo: true}, Setting: s.calls.Now()}, false)
			}
			require.NoError(t, s.calls.Make(t.Context(), f))
			for _, run := range f.Runs {
				for _, r := range run.Calls {
					taken = append(taken, r.Permits)
				}
			}
			require.Equal(t, []int64{4, 4, 1, 0, 0, 0}, taken, "%T", a)
		}
	})
}

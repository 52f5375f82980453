// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLocalAndSharedAgree tests that the arithmetic in Go and the one in Lua return the same for the same calls at
// the same instants, at ordinary rates and at odd ones, also when the clock is put back, and when many requests go as one call: some are rejected, want
// different numbers of permits, would wait for different times, or take nothing.
func TestLocalAndSharedAgree(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	ctx, rdb, name := t.Context(), patient(t), redistest.Key(t)
	keys, steps := 0, 40
	if redistest.Lane() == "miniredis" {
		steps = 12 // it compiles the script each time
	}
	for kind := range every() {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				a := drawAlgorithm(rt, kind)
				now := time.UnixMicro(1_790_000_000_000_000 + rapid.Int64Range(0, 1_000_000).Draw(rt, "begin"))
				opts := []Option{func(c *config) { c.Clock = func() time.Time { return now } }}
				if rapid.Bool().Draw(rt, "without replay") {
					opts = append(opts, WithoutReplay())
				}
				together := rapid.Bool().Draw(rt, "together")
				if together { // a rejection within a call is known with what was available then
					opts = append(opts, WithoutCachedRejections())
				}
				shared := redistest.Must(NewShared(rdb, name, a, opts...))(rt)
				keys++
				shared = shared.For(string(rune(0x4e00 + keys%20000)))
				require.NoError(rt, rdb.Del(ctx, shared.Keys()...).Err())
				local := a.model().Idle()
				var last ratelimiter.Result
				var grants []settled
				for range rapid.IntRange(1, steps).Draw(rt, "calls") {
					switch rapid.IntRange(0, 11).Draw(rt, "pass") {
					case 0, 1, 2:
					case 3, 4:
						now = now.Add(last.Wait)
					case 5:
						now = now.Add(last.Wait - time.Microsecond)
					case 6:
						now = now.Add(last.Reset)
					case 7:
						now = now.Add(-micros(rapid.Int64Range(1, 5_000_000).Draw(rt, "back")))
					default:
						now = now.Add(micros(rapid.Int64Range(0, 3_000_000).Draw(rt, "on")))
					}
					if now.After(time.UnixMicro(4_000_000_000_000_000)) { // 2096: a state has room for 142 years more
						return
					}
					if together && rapid.IntRange(0, 2).Draw(rt, "one") > 0 {
						last = agreeTogether(rt, shared, local, now)
						continue
					}
					q := drawDemand(rt, a, now)
					if n := len(grants); n > 0 && rapid.IntRange(0, 3).Draw(rt, "settle") == 0 {
						i := rapid.IntRange(0, n-1).Draw(rt, "which")
						g := grants[i]
						x := calls.Settlement{By: rapid.Int64Range(-g.permits, 10).Draw(rt, "by"), Permits: g.permits, Mark: g.mark}
						grants = slices.Delete(grants, i, i+1)
						require.NoError(rt, shared.settle(ctx, &x))
						local.(calls.Settler).Settle(now.UnixMicro(), shared.lastEpoch(true), &x)
						q.Spend = false
					}
					o := redistest.Must(shared.calls.Request(ctx, ratelimiter.OperationAllow, q))(rt)
					d := local.Take(q, shared.lastEpoch(q.Spend))
					require.Equal(rt, d.Outcome(q), o, "%+v of %+v", q, a)
					if _, ok := local.(calls.Settler); ok && d.Granted && q.Spend {
						grants = append(grants, settled{q.N, o.Mark})
					}
					last = o.Result
				}
			})
		})
	}
}

// lastEpoch returns what the state would have of the id of the last call of s.
func (s *Shared) lastEpoch(spends bool) calls.Epoch {
	id := fmt.Sprintf("%s%06d", strings.TrimPrefix(s.calls.Limiter().IDs.Random, ";"), s.calls.Limiter().IDs.Next-1)
	if s.config.WithoutReplay && spends {
		id = id[1:]
	}
	return calls.EpochOf(id)
}

// TestAgreeOnLargeProducts tests that the two agree where permits times microseconds are far beyond 2^63, which numbers of Lua
// 5.1 only round, and where the integers of Lua 5.4 begin anew below 0.
func TestAgreeOnLargeProducts(t *testing.T) {
	ctx, rdb, name, n := t.Context(), patient(t), redistest.Key(t), 0
	for _, r := range []ratelimiter.Rate{per(1<<32-2, time.Second), per(1<<32-1, micros(1)), per(10_000_000, time.Second), per(1<<32-1, calls.Longest)} {
		for kind, a := range atRate(r) {
			if err := a.check(); err != nil {
				continue
			}
			for _, pass := range []time.Duration{time.Hour, 100 * 24 * time.Hour, 450 * 24 * time.Hour, 11 * calls.Longest} {
				n++
				now := time.UnixMicro(1_790_000_000_000_000)
				shared := redistest.Must(NewShared(rdb, name, a, WithoutCachedRejections(), func(c *config) { c.Clock = func() time.Time { return now } }))(t)
				shared = shared.For(fmt.Sprint(n))
				local := a.model().Idle()
				take := func(n int64, atMost time.Duration) calls.Mark {
					q := calls.Demand{Now: now.UnixMicro(), N: n, Spend: true}
					if a.model().Reserves {
						q.AtMost = atMost.Microseconds()
					}
					got := redistest.Must(shared.calls.Request(ctx, ratelimiter.OperationAllow, q))(t)
					require.Equal(t, local.Take(q, shared.lastEpoch(q.Spend)).Outcome(q), got, "%s %v: %+v", kind, r, q)
					return got.Mark
				}
				settle := func(m calls.Mark, by int64) {
					if s, ok := local.(calls.Settler); ok {
						x := calls.Settlement{By: by, Permits: 1, Mark: m}
						require.NoError(t, shared.settle(ctx, &x))
						s.Settle(now.UnixMicro(), shared.lastEpoch(true), &x)
					}
				}
				first := take(1, calls.Longest)
				now = now.Add(pass)
				take(a.model().Largest, calls.Longest)
				settle(first, -1)
				last := take(1, calls.Longest)
				settle(last, calls.MaxPermits)
				take(1, calls.Longest)
				now = now.Add(pass)
				take(a.model().Largest*3/4+1, calls.Longest)
				take(a.model().Largest, calls.Longest)
				take(1, 0)
			}
		}
	}
}

func drawDemand(t *rapid.T, a Algorithm, now time.Time) calls.Demand {
	q := calls.Demand{Now: now.UnixMicro(), Spend: rapid.IntRange(0, 4).Draw(t, "peek") > 0, N: rapid.Int64Range(1, min(10, a.model().Largest)).Draw(t, "n")}
	if rapid.IntRange(0, 3).Draw(t, "many") == 0 {
		q.N = rapid.Int64Range(1, min(a.model().Largest, 4_000_000_000)).Draw(t, "n")
	}
	if a.model().Reserves && q.Spend {
		q.AtMost = rapid.SampledFrom([]int64{0, 1, 500_000, 4_000_000, calls.Longest.Microseconds()}).Draw(t, "atMost")
	}
	return q
}

// agreeTogether makes some requests as one call, and compares them with what local decides one after another. It returns the last result.
func agreeTogether(t *rapid.T, shared *Shared, local calls.State, now time.Time) (want ratelimiter.Result) {
	a, f := shared.Algorithm(), &calls.Flight{}
	for range rapid.IntRange(1, 12).Draw(t, "requests") {
		require.True(t, f.Add(&calls.Request{Demand: drawDemand(t, a, now), Setting: shared.calls.Limiter().Now()}, a.model().Reserves))
	}
	require.NoError(t, shared.calls.Make(context.Background(), f))
	for _, run := range f.Runs {
		for i, r := range run.Calls {
			require.Equal(t, run.Demand, r.Demand, "a run is of equals")
			q := r.Demand
			want = local.Take(q, f.Epoch()).Result()
			require.Equal(t, want, r.Result, "the %d. of %d for %d of %+v", i, len(run.Calls), run.N, a)
		}
	}
	return want
}

// settled is a grant that is to be settled.
type settled struct {
	permits int64
	mark    calls.Mark
}

func drawAlgorithm(t *rapid.T, kind string) Algorithm {
	if rapid.IntRange(0, 2).Draw(t, "ordinary") == 0 {
		if a := atRate(rapid.SampledFrom(ordinaryRates).Draw(t, "rate"))[kind]; a != nil {
			return a
		}
	}
	r := per(rapid.Int64Range(1, 12).Draw(t, "permits"), micros(rapid.Int64Range(12, 3_000_000).Draw(t, "interval")))
	capacity := rapid.Int64Range(1, 20).Draw(t, "capacity")
	perSecond := rapid.Float64Range(0.3, 50_000).Draw(t, "per second")
	period := micros(rapid.Int64Range(1, 5_000_000).Draw(t, "period"))
	switch kind {
	case "fixed window":
		return FixedWindow{r}
	case "calendar quota":
		return CalendarQuota{r.Permits, rapid.SampledFrom([]Period{Day, Week, Month}).Draw(t, "per"), zones[0], 0, 0}
	case "sliding log":
		return SlidingLog{r}
	case "sliding counter":
		return SlidingCounter{r}
	case "interval bucket":
		return IntervalBucket{r, capacity}
	case "token bucket":
		return TokenBucket{r, capacity}
	case "debt bucket":
		return DebtBucket{r, capacity, rapid.Int64Range(1, 20).Draw(t, "debt")}
	case "gcra":
		return GCRA{r, capacity}
	case "leaky queue":
		return LeakyQueue{r, capacity}
	case "smooth bursty":
		return SmoothBursty{perSecond, period}
	}
	return SmoothWarmingUp{perSecond, period, rapid.Float64Range(1.1, 9).Draw(t, "cold")}
}

// GCRA and the token bucket are one limiter in two notations, as long as the clock is not put back.
func TestGCRAIsATokenBucket(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bucket := drawAlgorithm(rt, "token bucket").(TokenBucket)
		a, b := bucket.model().Idle(), GCRA(bucket).model().Idle()
		now, last, grants := int64(1_790_000_000_000_000), calls.Decision{}, []settled(nil)
		steps := 0
		id := func() calls.Epoch { steps++; return calls.EpochOf(fmt.Sprintf("%014d", steps)) }
		for i := 0; i < 100 && now < 4_000_000_000_000_000; i++ {
			now += rapid.SampledFrom([]int64{0, 1, last.Wait, last.Reset, 1000, microsOf(bucket.Rate)}).Draw(rt, "pass")
			q := calls.Demand{Now: now, N: rapid.Int64Range(1, bucket.Burst).Draw(rt, "n"), Spend: true}
			if len(grants) > 0 && rapid.Bool().Draw(rt, "settle") {
				i := rapid.IntRange(0, len(grants)-1).Draw(rt, "which")
				x := calls.Settlement{By: rapid.Int64Range(-grants[i].permits, 3).Draw(rt, "by"), Permits: grants[i].permits, Mark: grants[i].mark}
				of := id()
				for _, s := range []calls.State{a, b} {
					s.(calls.Settler).Settle(now, of, &x)
				}
				grants = slices.Delete(grants, i, i+1)
			}
			call := id()
			last = a.Take(q, call)
			other := b.Take(q, call)
			if last.Granted {
				grants = append(grants, settled{q.N, last.Mark})
			}
			// A full bucket is full within the microsecond in which the arrival passes.
			last.Reset, other.Reset = 0, 0
			require.Equal(rt, last, other)
		}
	})
}

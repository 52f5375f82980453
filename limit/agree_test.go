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
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLocalAndSharedAgree tests that the arithmetic in Go and the one in Lua return the same for the same calls at
// the same instants, at ordinary rates and at odd ones, also when the clock is put back, and when many requests go as one call: some are rejected, want
// different numbers of permits, would wait for different times, or take nothing.
func TestLocalAndSharedAgree(t *testing.T) {
	ctx, rdb, name := t.Context(), redistest.Client(t), redistest.Key(t)
	keys, calls := 0, 40
	if redistest.Lane() == "miniredis" {
		calls = 12 // it compiles the script each time
	}
	for kind := range every() {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				a := drawAlgorithm(rt, kind)
				now := time.UnixMicro(1_790_000_000_000_000 + rapid.Int64Range(0, 1_000_000).Draw(rt, "begin"))
				opts := []Option{func(c *config) { c.clock = func() time.Time { return now } }}
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
				local := a.model().idle()
				var last ratelimiter.Result
				var grants []settled
				for range rapid.IntRange(1, calls).Draw(rt, "calls") {
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
						x := settlement{by: rapid.Int64Range(-g.permits, 10).Draw(rt, "by"), permits: g.permits, mark: g.mark}
						grants = slices.Delete(grants, i, i+1)
						require.NoError(rt, shared.settle(ctx, &x))
						local.(settler).settle(now.UnixMicro(), shared.lastEpoch(), &x)
						q.spend = false
					}
					var m, own mark
					q.mark = &m
					last = redistest.Must(shared.ask(ctx, q))(rt)
					q.mark = &own
					d := local.take(q, shared.lastEpoch())
					require.Equal(rt, d.result(), last, "%+v of %+v", q, a)
					if _, ok := local.(settler); ok && d.granted && q.spend {
						require.Equal(rt, own, m)
						grants = append(grants, settled{q.n, m})
					}
				}
			})
		})
	}
}

// lastEpoch returns what the state would have of the id of the last call of s.
func (s *Shared) lastEpoch() epoch {
	id := fmt.Sprintf("%s%06d", strings.TrimPrefix(s.config.ids.random, ";"), s.config.ids.next-1)
	if s.config.withoutReplay {
		id = id[1:]
	}
	return epochOf(id)
}

// TestAgreeOnLargeProducts tests that the two agree where permits times microseconds are far beyond 2^63, which numbers of Lua
// 5.1 only round, and where the integers of Lua 5.4 begin anew below 0.
func TestAgreeOnLargeProducts(t *testing.T) {
	ctx, rdb, name, n := t.Context(), redistest.Client(t), redistest.Key(t), 0
	for _, r := range []ratelimiter.Rate{per(1<<32-2, time.Second), per(1<<32-1, micros(1)), per(10_000_000, time.Second), per(1<<32-1, longest)} {
		for kind, a := range atRate(r) {
			if err := a.check(); err != nil {
				continue
			}
			for _, pass := range []time.Duration{time.Hour, 100 * 24 * time.Hour, 450 * 24 * time.Hour, 11 * longest} {
				n++
				now := time.UnixMicro(1_790_000_000_000_000)
				shared := redistest.Must(NewShared(rdb, name, a, WithoutCachedRejections(), func(c *config) { c.clock = func() time.Time { return now } }))(t)
				shared = shared.For(fmt.Sprint(n))
				local := a.model().idle()
				take := func(n int64, atMost time.Duration) (m mark) {
					q := demand{now: now.UnixMicro(), n: n, spend: true, mark: &m}
					if a.model().reserves {
						q.atMost = atMost.Microseconds()
					}
					got := redistest.Must(shared.ask(ctx, q))(t)
					require.Equal(t, local.take(q, shared.lastEpoch()).result(), got, "%s %v: %+v", kind, r, q)
					return m
				}
				settle := func(m mark, by int64) {
					if s, ok := local.(settler); ok {
						x := settlement{by: by, permits: 1, mark: m}
						require.NoError(t, shared.settle(ctx, &x))
						s.settle(now.UnixMicro(), shared.lastEpoch(), &x)
					}
				}
				first := take(1, longest)
				now = now.Add(pass)
				take(a.model().largest, longest)
				settle(first, -1)
				last := take(1, longest)
				settle(last, maxPermits)
				take(1, longest)
				now = now.Add(pass)
				take(a.model().largest*3/4+1, longest)
				take(a.model().largest, longest)
				take(1, 0)
			}
		}
	}
}

func drawDemand(t *rapid.T, a Algorithm, now time.Time) demand {
	q := demand{now: now.UnixMicro(), spend: rapid.IntRange(0, 4).Draw(t, "peek") > 0, n: rapid.Int64Range(1, min(10, a.model().largest)).Draw(t, "n")}
	if rapid.IntRange(0, 3).Draw(t, "many") == 0 {
		q.n = rapid.Int64Range(1, min(a.model().largest, 4_000_000_000)).Draw(t, "n")
	}
	if a.model().reserves && q.spend {
		q.atMost = rapid.SampledFrom([]int64{0, 1, 500_000, 4_000_000, longest.Microseconds()}).Draw(t, "atMost")
	}
	return q
}

// agreeTogether makes some requests as one call, and compares them with what local decides one after another. It returns the last result.
func agreeTogether(t *rapid.T, shared *Shared, local state, now time.Time) (want ratelimiter.Result) {
	a, f := shared.config.now().algorithm, &flight{}
	for range rapid.IntRange(1, 12).Draw(t, "requests") {
		require.True(t, f.add(&request{demand: drawDemand(t, a, now), setting: shared.config.now()}, a.model().reserves))
	}
	reply, sent, err := shared.send(context.Background(), f)
	require.NoError(t, err)
	require.NoError(t, shared.decide(f, reply, sent))
	for _, run := range f.runs {
		for i, r := range run.calls {
			require.Equal(t, demand{now: now.UnixMicro(), n: run.n, atMost: run.atMost, spend: run.spend}, r.demand, "a run is of equals")
			q := r.demand
			want = local.take(q, f.epoch()).result()
			require.Equal(t, want, r.result, "the %d. of %d for %d of %+v", i, len(run.calls), run.n, a)
		}
	}
	return want
}

// settled is a grant that is to be settled.
type settled struct {
	permits int64
	mark    mark
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
		a, b := bucket.model().idle(), GCRA(bucket).model().idle()
		now, last, grants := int64(1_790_000_000_000_000), decision{}, []settled(nil)
		calls := 0
		id := func() epoch { calls++; return epochOf(fmt.Sprintf("%014d", calls)) }
		for i := 0; i < 100 && now < 4_000_000_000_000_000; i++ {
			now += rapid.SampledFrom([]int64{0, 1, last.wait, last.reset, 1000, microsOf(bucket.Rate)}).Draw(rt, "pass")
			q := demand{now: now, n: rapid.Int64Range(1, bucket.Burst).Draw(rt, "n"), spend: true}
			if len(grants) > 0 && rapid.Bool().Draw(rt, "settle") {
				i := rapid.IntRange(0, len(grants)-1).Draw(rt, "which")
				x := settlement{by: rapid.Int64Range(-grants[i].permits, 3).Draw(rt, "by"), permits: grants[i].permits, mark: grants[i].mark}
				of := id()
				for _, s := range []state{a, b} {
					s.(settler).settle(now, of, &x)
				}
				grants = slices.Delete(grants, i, i+1)
			}
			var m mark
			q.mark = &m
			call := id()
			last = a.take(q, call)
			q.mark = nil
			other := b.take(q, call)
			if last.granted {
				grants = append(grants, settled{q.n, m})
			}
			// A full bucket is full within the microsecond in which the arrival passes.
			last.reset, other.reset = 0, 0
			require.Equal(rt, last, other)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// ofOneState returns limiters with the parameters of list that have one state in Redis, by WithFleetParameters, of which none has
// followed another yet.
func ofOneState(t testing.TB, rdb redis.UniversalClient, clock func() time.Time, list ...Algorithm) (limiters []*Shared) {
	t.Helper()
	name := redistest.Key(t)
	for _, a := range list {
		l := redistest.Must(NewShared(rdb, name, a, WithFleetParameters(KeepState), WithoutCachedRejections(), func(c *config) { c.Clock = clock }))(t)
		l.config.fleet.lookIn(1000 * time.Hour)
		limiters = append(limiters, l)
	}
	require.Equal(t, limiters[0].Keys(), limiters[len(limiters)-1].Keys())
	return limiters
}

// largestOf returns what bounds limiters of these parameters that share a state, in any window: what one of them grants that has the most
// of each. A bucket or a queue with the largest burst and the largest rate; windows of the same interval with the most permits, and of others
// twice the most permits and what the largest rate brings.
func largestOf(list []Algorithm, w time.Duration, n int64) int64 {
	most, rate, same, bound := int64(0), 0., true, int64(0)
	permits, interval := int64(0), int64(0)
	for _, a := range list {
		var r ratelimiter.Rate
		switch a := a.(type) {
		case FixedWindow:
			r, most = a.Rate, max(most, a.Rate.Permits)
		case SlidingLog:
			r, most = a.Rate, max(most, a.Rate.Permits)
		case SlidingCounter:
			r, most = a.Rate, max(most, a.Rate.Permits)
		case IntervalBucket:
			r, most = a.Rate, max(most, a.Burst)
		case TokenBucket:
			r, most = a.Rate, max(most, a.Burst)
		case GCRA:
			r, most = a.Rate, max(most, a.Burst)
		case DebtBucket:
			r, most = a.Rate, max(most, a.Burst+min(n, a.Debt))
		case LeakyQueue:
			r, most = a.Rate, max(most, min(n, a.Capacity))
		case CalendarQuota:
			bound, most = max(bound, a.bound(w, n)), math.MaxInt64
			continue
		case SmoothBursty:
			r, most = per(1, time.Second), max(most, n+int64(math.Ceil(a.guava().most)))
			rate = max(rate, 1/(a.guava().stable-1))
		case SmoothWarmingUp:
			r, most = per(1, time.Second), max(most, n)
			rate = max(rate, 1/(a.guava().stable-2))
		}
		switch a.(type) {
		case SmoothBursty, SmoothWarmingUp:
		default:
			rate = max(rate, float64(r.Permits)/float64(microsOf(r)))
		}
		same = same && (interval == 0 || interval == microsOf(r))
		permits, interval = max(permits, r.Permits), microsOf(r)
	}
	if bound > 0 {
		return bound
	}
	brought := int64(math.Floor(rate*float64(w.Microseconds()) + 1e-6))
	switch list[0].(type) {
	case FixedWindow:
		if same {
			return FixedWindow{per(most, micros(interval))}.bound(w, n)
		}
		return 2*most - 1 + brought
	case SlidingCounter:
		if same {
			return SlidingCounter{per(most, micros(interval))}.bound(w, n)
		}
		return 2*most + brought
	case SlidingLog:
		if same {
			return SlidingLog{per(most, micros(interval))}.bound(w, n)
		}
		return 2*most + brought
	case IntervalBucket:
		if same {
			return IntervalBucket{per(permits, micros(interval)), most}.bound(w, n)
		}
		return most - 1 + permits + brought
	case SmoothBursty, SmoothWarmingUp:
		return most + brought + 1
	}
	return most + brought
}

// drawMixed returns an algorithm of that kind at an interval of some dozens of microseconds.
func drawMixed(random interface{ Int64N(int64) int64 }, kind string, interval int64) Algorithm {
	r := per(1+random.Int64N(20), micros(interval))
	burst := 1 + random.Int64N(8)
	switch kind {
	case "fixed window":
		return FixedWindow{r}
	case "calendar quota":
		return CalendarQuota{Permits: r.Permits, Per: Day, Location: time.UTC}
	case "sliding log":
		return SlidingLog{r}
	case "sliding counter":
		return SlidingCounter{r}
	case "interval bucket":
		return IntervalBucket{r, burst}
	case "token bucket":
		return TokenBucket{r, burst}
	case "debt bucket":
		return DebtBucket{r, burst, 1 + random.Int64N(4)}
	case "gcra":
		return GCRA{r, burst}
	case "leaky queue":
		return LeakyQueue{r, burst}
	case "smooth bursty":
		return SmoothBursty{float64(r.Permits) * 1e4, micros(interval * 10)}
	}
	return SmoothWarmingUp{PermitsPerSecond: float64(r.Permits) * 1e4, Warmup: micros(interval * 10)}
}

// TestParametersMeetOnOneState tests that limiters of two or three sets of parameters which share a state grant no more together than
// largestOf, in any window, whatever is settled and however the clock is put back; that what rejects and gives back changes nothing for those
// that come after it; and that script and Go, from what Redis has stored, say the same.
func TestParametersMeetOnOneState(t *testing.T) {
	ctx, rdb := t.Context(), patient(t)
	const longest = 600
	for kind := range every() {
		t.Run(kind, func(t *testing.T) {
			random := proptest.Rand(t)
			for range redistest.Cases(6, 150) {
				now, interval := time.UnixMicro(1_790_000_000_000_000), 10+random.Int64N(50)
				if kind == "calendar quota" {
					now = time.Date(2026, 9, 22, 0, 0, 0, 0, time.UTC).Add(-micros(random.Int64N(100)))
				}
				var list []Algorithm
				for range 2 + random.IntN(2) {
					if random.IntN(2) == 0 {
						interval = 10 + random.Int64N(400)
					}
					list = append(list, drawMixed(random, kind, interval))
				}
				limiters := ofOneState(t, rdb, func() time.Time { return now }, list...)
				clock := int64(0) // real time, where the clock of Redis is put back
				type granted struct {
					at    int64
					n     int64
					grant *Grant
				}
				var window []*granted
				what := fmt.Sprintf("%+v", list)
				for range redistest.Cases(60, 300) {
					pass := random.Int64N(1 + random.Int64N(8))
					if random.IntN(12) == 0 {
						pass = random.Int64N(100)
					}
					now, clock = now.Add(micros(pass)), clock+pass
					if random.IntN(25) == 0 {
						now = now.Add(-micros(1 + random.Int64N(100)))
					}
					l := limiters[random.IntN(len(limiters))]
					a := l.Algorithm()
					n := min(1+random.Int64N(3), a.model().Largest)
					if i := len(window) - 1 - random.IntN(4); i >= 0 && window[i].grant != nil && random.IntN(4) == 0 {
						g := window[i]
						actual := max(0, random.Int64N(n+2)-2)
						if random.IntN(10) == 0 {
							actual = g.n + random.Int64N(3)
						}
						require.NoError(t, g.grant.Settle(ctx, actual), what)
						g.n, g.grant = min(g.n, actual), nil
						continue
					}
					q := calls.Demand{Now: now.UnixMicro(), N: n, Spend: random.IntN(6) > 0}
					if a.model().Reserves && random.IntN(2) == 0 {
						q.AtMost = random.Int64N(40)
					}
					before := text(t, rdb, l)
					r, err := l.calls.Request(ctx, ratelimiter.OperationAllow, q)
					require.NoError(t, err, what)
					if kind != "sliding log" {
						st, ok := a.model().Stored(before)
						if before == "" {
							st, ok = a.model().Idle(), true
						}
						require.True(t, ok, "%q of %s", before, what)
						require.Equal(t, st.Take(q, l.lastEpoch(q.Spend)).Result(), r.Result, "%q read by %+v", before, a)
					}
					require.GreaterOrEqual(t, r.Wait, time.Duration(0), what)
					if !r.Granted || !q.Spend {
						require.False(t, !r.Granted && r.Wait == 0, "%+v: %s", r, what)
						continue
					}
					g := &granted{at: clock + r.Wait.Microseconds(), n: n}
					if checkSettles(newSetting(a)) == nil {
						g.grant = newGrant(l, n, r)
					}
					window = append(window, g)
					if len(window) > 1 && g.at < window[len(window)-2].at { // a turn of a queue whose clock was put back
						g.at = window[len(window)-2].at
					}
					sum := int64(0)
					for i := len(window) - 1; i >= 0 && g.at-window[i].at < longest; i-- {
						sum += window[i].n
						w := micros(g.at - window[i].at + 1)
						require.LessOrEqual(t, sum, largestOf(list, w, 3), "in %v of %s", w, what)
					}
				}
			}
		})
	}
}

// text returns the state that Redis has stored of l.
func text(t *testing.T, rdb redis.Cmdable, l *Shared) string {
	t.Helper()
	if len(l.Keys()) == 2 {
		return ""
	}
	value, err := rdb.Get(t.Context(), l.Keys()[0]).Result()
	if err != redis.Nil {
		require.NoError(t, err)
	}
	for i, c := range value {
		if c == ';' {
			return value[:i]
		}
	}
	return value
}

// TestTheLargerBoundHolds is what was found: each pair of limiters, of which one asks after the other, grants in some seconds no more than
// the larger of their bounds.
func TestTheLargerBoundHolds(t *testing.T) {
	rdb, s := patient(t), time.Second
	for what, x := range map[string]struct {
		list []Algorithm
		in   time.Duration // and 10 s in advance of a queue
	}{
		"a bucket of one beside one of a hundred": {[]Algorithm{GCRA{per(10, s), 100}, GCRA{per(1, s), 1}}, 6 * s},
		"gcra, burst 100 to 50":                   {[]Algorithm{GCRA{per(10, s), 100}, GCRA{per(10, s), 50}}, 8 * s},
		"gcra, 10/s to 20/s":                      {[]Algorithm{GCRA{per(10, s), 100}, GCRA{per(20, s), 100}}, 8 * s},
		"token bucket, burst 100 to 50":           {[]Algorithm{TokenBucket{per(10, s), 100}, TokenBucket{per(10, s), 50}}, 8 * s},
		"gcra, 600/min to 10/s":                   {[]Algorithm{GCRA{per(600, time.Minute), 600}, GCRA{per(10, s), 10}}, 4 * s},
		"debt bucket":                             {[]Algorithm{DebtBucket{per(10, s), 100, 10}, DebtBucket{per(10, s), 50, 5}}, 8 * s},
		"interval bucket":                         {[]Algorithm{IntervalBucket{per(10, s), 100}, IntervalBucket{per(10, s), 50}}, 8 * s},
		"leaky queue":                             {[]Algorithm{LeakyQueue{per(10, s), 100}, LeakyQueue{per(10, s), 50}}, 8 * s},
		"sliding log, 600/min to 10/s":            {[]Algorithm{SlidingLog{per(600, time.Minute)}, SlidingLog{per(10, s)}}, 4 * s},
		"fixed window, 600/min to 10/s":           {[]Algorithm{FixedWindow{per(600, time.Minute)}, FixedWindow{per(10, s)}}, 4 * s},
		"sliding counter, 600/min to 10/s":        {[]Algorithm{SlidingCounter{per(600, time.Minute)}, SlidingCounter{per(10, s)}}, 4 * s},
		"smooth bursty":                           {[]Algorithm{SmoothBursty{10, 10 * s}, SmoothBursty{10, 5 * s}}, 8 * s},
		"smooth warming up":                       {[]Algorithm{SmoothWarmingUp{PermitsPerSecond: 10, Warmup: 10 * s}, SmoothWarmingUp{PermitsPerSecond: 20, Warmup: s}}, 8 * s},
		"calendar quota":                          {[]Algorithm{CalendarQuota{Permits: 100, Per: Day, Location: time.UTC}, CalendarQuota{Permits: 50, Per: Day, Location: time.UTC}}, 8 * s},
	} {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			now := time.UnixMicro(1_790_000_000_000_000)
			limiters := ofOneState(t, rdb, func() time.Time { return now }, x.list[order[0]], x.list[order[1]])
			begin, got, atMost := now, int64(0), time.Duration(0)
			if what == "leaky queue" {
				atMost = time.Hour
			}
			step := time.Duration(redistest.Cases(250, 50)) * time.Millisecond
			for ; now.Sub(begin) < x.in; now = now.Add(step) {
				for range 2 {
					for _, l := range limiters {
						for {
							r, err := l.Reserve(t.Context(), 1, atMost)
							require.NoError(t, err)
							if !r.Granted {
								break
							}
							got++
						}
					}
				}
			}
			w := now.Sub(begin) - step + time.Microsecond
			if what == "leaky queue" {
				w += 10 * s
			}
			bound := max(x.list[0].bound(w, 1), x.list[1].bound(w, 1))
			t.Logf("%s, %v: %d in %v; the larger bound is %d", what, order, got, x.in, bound)
			require.LessOrEqual(t, got, bound, what)
		}
	}
}

// TestASettlementKeepsTheNumbers tests that what others were granted by other numbers comes back as before after a settlement, which
// waits for no more than the limiter takes to fill by either, and that their grants can be settled as before.
func TestASettlementKeepsTheNumbers(t *testing.T) {
	rdb, slow, fast := patient(t), per(10, 10*time.Second), per(100, 100*time.Millisecond)
	for kind, list := range map[string][]Algorithm{
		"gcra":            {GCRA{slow, 10}, GCRA{fast, 100}},
		"token bucket":    {TokenBucket{slow, 10}, TokenBucket{fast, 100}},
		"debt bucket":     {DebtBucket{slow, 9, 1}, DebtBucket{fast, 99, 1}},
		"interval bucket": {IntervalBucket{slow, 10}, IntervalBucket{fast, 100}},
		"fixed window":    {FixedWindow{slow}, FixedWindow{fast}},
		"sliding counter": {SlidingCounter{slow}, SlidingCounter{fast}},
	} {
		for actual := range int64(4) { // of 2
			now := time.UnixMicro(1_790_000_000_000_000)
			limiters := ofOneState(t, rdb, func() time.Time { return now }, list...)
			early, late := grantOf(t, limiters[0], 2), grantOf(t, limiters[1], 98)
			before := redistest.Must(limiters[1].Peek(t.Context(), 50))(t)
			require.NoError(t, early.Settle(t.Context(), actual))
			after := redistest.Must(limiters[1].Peek(t.Context(), 50))(t)
			more := time.Duration(max(0, actual-2)) * 100 * time.Millisecond // of an interval bucket, at most
			require.LessOrEqual(t, after.Wait, before.Wait+more, "%s: 2 settled to %d", kind, actual)
			require.LessOrEqual(t, redistest.Must(limiters[0].Peek(t.Context(), 1))(t).Wait, 20*time.Second, kind)
			require.NoError(t, late.Cancel(t.Context()))
			back := redistest.Must(limiters[1].Peek(t.Context(), 1))(t).Available - after.Available
			require.EqualValues(t, 98-max(0, actual-2), back, "%s: 98 are cancelled, of %d that lack", kind, 100-after.Available)
		}
	}
}

// TestACancelTakesNothing tests that no more are in use after a grant was canceled than before, by the numbers of the last grant.
func TestACancelTakesNothing(t *testing.T) {
	rdb := patient(t)
	for _, other := range []ratelimiter.Rate{per(9, 700*time.Millisecond), per(2, 17*time.Microsecond), per(3, 3*time.Second)} {
		own := per(2, time.Second)
		for kind, list := range map[string][]Algorithm{
			"GCRA":           {GCRA{own, 2}, GCRA{other, other.Permits}},
			"DebtBucket":     {DebtBucket{own, 2, 1}, DebtBucket{other, other.Permits, 1}},
			"IntervalBucket": {IntervalBucket{own, 2}, IntervalBucket{other, other.Permits}},
			"FixedWindow":    {FixedWindow{own}, FixedWindow{other}},
			"SlidingCounter": {SlidingCounter{own}, SlidingCounter{other}},
		} {
			for _, pause := range []time.Duration{0, time.Microsecond, 100 * time.Millisecond, 650 * time.Millisecond} {
				for _, later := range []time.Duration{0, time.Microsecond, 100 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond} {
					now := time.UnixMicro(1_790_000_000_000_000)
					limiters := ofOneState(t, rdb, func() time.Time { return now }, list...)
					early := grantOf(t, limiters[0], 1)
					now = now.Add(pause)
					for range other.Permits {
						redistest.Must(limiters[1].Allow(t.Context(), 1))(t)
					}
					now = now.Add(later)
					before := redistest.Must(limiters[1].Peek(t.Context(), 1))(t).Available
					require.NoError(t, early.Cancel(t.Context()))
					after := redistest.Must(limiters[1].Peek(t.Context(), 1))(t).Available
					require.GreaterOrEqual(t, after, before, "%s, the other at %v, after %v and %v", kind, other, pause, later)
				}
			}
		}
	}
}

// TestARejectionFreesNothing tests that a handle with a smaller burst, a smaller rate or both that is rejected leaves the key of With as it is.
func TestARejectionFreesNothing(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := redistest.Must(NewShared(rdb, redistest.Key(t), GCRA{per(10, time.Second), 100}, WithoutCachedRejections(), WithClientClock()))(t).For("tenant")
		large := l.With(GCRA{per(10, time.Second), 100})
		require.True(t, redistest.Must(large.Allow(t.Context(), 100))(t).Granted)
		state := redistest.Must(rdb.Get(t.Context(), large.Keys()[0]).Result())(t)
		for _, small := range []GCRA{{per(10, time.Second), 50}, {per(1, time.Second), 1}, {per(1000, time.Second), 1}, {per(1, time.Hour), 50}} {
			require.False(t, redistest.Must(l.With(small).Allow(t.Context(), 1))(t).Granted)
			require.False(t, redistest.Must(large.Allow(t.Context(), 1))(t).Granted)
		}
		require.Equal(t, state, redistest.Must(rdb.Get(t.Context(), large.Keys()[0]).Result())(t))
	})
}

// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// ordinaryRates are rates that people write into a configuration: of most the product of permits and
// microseconds is more than 2^52, or a permit takes less than a microsecond.
var ordinaryRates = []ratelimiter.Rate{
	per(100_000, 24*time.Hour),
	per(123_457, 24*time.Hour), // a prime
	per(2_000, 30*24*time.Hour),
	per(150, 365*24*time.Hour),
	per(1_300_000, time.Hour),
	per(1<<20, time.Second),
	per(10_000_000, time.Second),
	per(10<<20, time.Second),
	per(1<<32-2, 24*time.Hour),
	per(1<<32-2, time.Second),
	per(7, micros(3)),
	per(1, 20*calls.Longest),
	per(19_999_999, 30*24*time.Hour),
	per(999_999_000, 10*24*time.Hour),
}

// atRate is each algorithm at the rate r, with room for one interval's permits. Guava's two count by the
// second, and at least one a year.
func atRate(r ratelimiter.Rate) map[string]Algorithm {
	perSecond := float64(r.Permits) / r.Interval.Seconds()
	all := map[string]Algorithm{
		"fixed window":    FixedWindow{r},
		"sliding log":     SlidingLog{r},
		"sliding counter": SlidingCounter{r},
		"interval bucket": IntervalBucket{r, r.Permits},
		"token bucket":    TokenBucket{r, r.Permits},
		"debt bucket":     DebtBucket{r, max(1, r.Permits/2), max(1, r.Permits/2)},
		"gcra":            GCRA{r, r.Permits},
		"leaky queue":     LeakyQueue{r, r.Permits},
	}
	if r.Interval <= calls.Longest {
		all["smooth bursty"] = SmoothBursty{perSecond, r.Interval}
		all["smooth warming up"] = SmoothWarmingUp{PermitsPerSecond: perSecond, Warmup: r.Interval}
	}
	return all
}

// At every ordinary rate a caller that asks again after each wait gets the rate, less a billionth of it, and no more
// than the bound.
func TestOrdinaryRatesDoNotDrift(t *testing.T) {
	redistest.NoServer(t)
	for _, r := range ordinaryRates {
		for kind, a := range atRate(r) {
			for _, n := range []int64{1, max(1, r.Permits/100)} {
				s, begin := a.model().Idle(), int64(1_790_000_000_000_000)
				now, granted := begin, int64(0)
				for range 20_000 {
					if now-begin > 4*longestInterval.Microseconds() {
						break
					}
					d := s.Take(calls.Demand{Now: now, N: n, Spend: true}, calls.Epoch{})
					if d.Granted {
						granted += n
					}
					now += d.Wait
				}
				passed := now - begin
				require.LessOrEqual(t, granted, a.bound(micros(passed+1), n), "%s of %v by %d", kind, r, n)
				owed, _ := mulDiv(passed, r.Permits, microsOf(r))
				owed -= n + owed/1_000_000_000
				if kind == "sliding counter" && r.Interval < time.Millisecond {
					continue // a window of three instants cannot slide
				}
				switch kind {
				case "smooth warming up":
					owed -= 2 * r.Permits // the area of the warm-up above the rate
				case "fixed window", "sliding log", "sliding counter", "interval bucket":
					owed -= r.Permits // up to the end of the interval
				}
				require.GreaterOrEqual(t, granted, owed, "%s of %v by %d in %v", kind, r, n, micros(passed))
			}
		}
	}
}

// The share of the previous window is exact also when the product is too large for a double: just below a whole
// number of permits, just at it and just above.
func TestCounterIsExact(t *testing.T) {
	ctx, rdb := t.Context(), patient(t)
	random := proptest.Rand(t)
	for range redistest.Cases(200, 5000) {
		interval := longestInterval.Microseconds() - 2*random.Int64N(1_000_000) - 1
		permits := calls.MaxPermits - random.Int64N(1000)
		count := permits - random.Int64N(1_000_000)
		inverse := new(big.Int).ModInverse(big.NewInt(count), big.NewInt(interval))
		if inverse == nil {
			continue
		}
		for _, off := range []int64{-1, 0, 1} { // count × rest is that much more than a multiple of interval
			rest := new(big.Int).Mul(inverse, big.NewInt(off))
			rest.Mod(rest, big.NewInt(interval))
			start := int64(1_790_000_000_000_000)
			now := start + interval - rest.Int64()
			l, err := NewShared(rdb, redistest.Key(t), SlidingCounter{per(permits, micros(interval))},
				func(c *config) { c.Clock = func() time.Time { return time.UnixMicro(now) } })
			require.NoError(t, err)
			require.NoError(t, rdb.Set(ctx, l.Keys()[0], fmt.Sprint(start, 0, count, interval), 0).Err())
			local := &slidingCounter{permits: permits, interval: interval, length: interval, start: start, previous: count}
			for _, n := range []int64{1, permits/2 + random.Int64N(permits/2), permits} {
				q := calls.Demand{Now: now, N: n}
				got := redistest.Must(l.calls.Request(ctx, ratelimiter.OperationAllow, q))(t)
				require.Equal(t, local.Take(q, calls.Epoch{}).Outcome(q), got, "%d of %d, %d µs of %d", n, count, rest, interval)
			}
		}
	}
}

// A log whose sum of permits begins again goes on counting as the local form does.
func TestLogBeginsItsSumAnew(t *testing.T) {
	ctx, rdb := t.Context(), patient(t)
	for _, step := range []time.Duration{0, time.Microsecond, 100 * time.Microsecond} {
		a := SlidingLog{per(1_000_000, time.Millisecond)}
		now := time.UnixMicro(1_790_000_000_000_000)
		l := redistest.Must(NewShared(rdb, redistest.Key(t), a, func(c *config) { c.Clock = func() time.Time { return now } }))(t)
		redistest.Must(l.Allow(ctx, 1))(t)
		require.NoError(t, rdb.ZRemRangeByRank(ctx, l.Keys()[0], 0, -1).Err())
		const last = 1<<50 - 1_000_000
		require.NoError(t, rdb.ZAdd(ctx, l.Keys()[0], redis.Z{Score: float64(now.UnixMicro()), Member: fmt.Sprintf("%016d:1:1000", int64(last))}).Err())
		local := a.model().Idle()
		local.Take(calls.Demand{Now: now.UnixMicro(), N: 1, Spend: true}, calls.Epoch{})
		for i := range 60 {
			q := calls.Demand{Now: now.UnixMicro(), Spend: i%7 > 0, N: 70_000 + int64(i)}
			got := redistest.Must(l.calls.Request(ctx, ratelimiter.OperationAllow, q))(t)
			require.Equal(t, local.Take(q, calls.Epoch{}).Outcome(q), got, "%v, call %d", step, i)
			if now = now.Add(step); !got.Granted {
				now = now.Add(got.Wait)
			}
		}
		newest := redistest.Must(rdb.ZRange(ctx, l.Keys()[0], -1, -1).Result())(t)
		require.Less(t, newest[0], fmt.Sprintf("%016d", int64(1<<50)), "it began anew")
	}
}

// TestARateHasPermitsAndAnIntervalOnly tests that what only a RateLimiter can apply is an error that names the field, and reaches
// nobody's keys.
func TestARateHasPermitsAndAnIntervalOnly(t *testing.T) {
	rdb, r := redistest.Client(t), per(10, time.Second)
	for field, change := range map[string]func(*ratelimiter.Rate){
		"Rate.Type is PER_CLIENT":   func(r *ratelimiter.Rate) { r.Type = ratelimiter.PerClient },
		"Rate.KeepAlive is 1m0s":    func(r *ratelimiter.Rate) { r.KeepAlive = time.Minute },
		"Rate.MinGap is 1ms":        func(r *ratelimiter.Rate) { r.MinGap = time.Millisecond },
		"Rate.Permits 0 ":           func(r *ratelimiter.Rate) { r.Permits = 0 },
		"Rate.Permits 4294967296 ":  func(r *ratelimiter.Rate) { r.Permits = 1 << 32 },
		"Rate.Interval 0s ":         func(r *ratelimiter.Rate) { r.Interval = 0 },
		"Rate.Interval 1.5µs ":      func(r *ratelimiter.Rate) { r.Interval = 1500 },
		"Rate.Interval 446760h0m0s": func(r *ratelimiter.Rate) { r.Interval = 51 * calls.Longest },
	} {
		bad := r
		change(&bad)
		for kind, a := range atRate(bad) {
			if kind == "smooth bursty" || kind == "smooth warming up" {
				continue // they have no Rate
			}
			_, err := NewLocal(a)
			_, shared := NewShared(rdb, redistest.Key(t), a)
			for _, err := range []error{err, shared} {
				require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument, kind)
				require.ErrorContains(t, err, field, kind)
			}
		}
		_, err := redistest.Must(NewShared(rdb, redistest.Key(t), GCRA{r, 10}))(t).With(GCRA{bad, 10}).Allow(t.Context(), 1)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		require.ErrorContains(t, err, field)
	}
}

// TestAClockPutBackBringsNothing tests that a bucket which has granted all that it may at an instant grants nothing more at that
// instant when the clock is put back, also if permits come in within a microsecond.
func TestAClockPutBackBringsNothing(t *testing.T) {
	ctx, rdb, r := t.Context(), patient(t), per(7, 3*time.Microsecond)
	for kind, a := range map[string]Algorithm{
		"gcra": GCRA{r, 6}, "debt bucket": DebtBucket{r, 6, 3}, "leaky queue": LeakyQueue{r, 6}, "slow": GCRA{per(7, time.Minute), 6},
	} {
		for _, back := range []time.Duration{28 * time.Microsecond, time.Hour} {
			now, local := time.UnixMicro(1_790_000_000_000_000), a.model().Idle()
			shared := redistest.Must(NewShared(rdb, redistest.Key(t), a, WithoutCachedRejections(), func(c *config) { c.Clock = func() time.Time { return now } }))(t)
			atMost := time.Duration(0)
			if a.model().Reserves {
				atMost = time.Second
			}
			take := func() (got [2]int64) {
				for redistest.Must(shared.Reserve(ctx, 1, atMost))(t).Granted {
					got[0]++
				}
				for local.Take(calls.Demand{Now: now.UnixMicro(), N: 1, AtMost: atMost.Microseconds(), Spend: true}, calls.Epoch{}).Granted {
					got[1]++
				}
				return got
			}
			first := take()
			require.GreaterOrEqual(t, first[0], a.model().Largest, kind)
			require.Equal(t, first[0], first[1], kind)
			now = now.Add(-back)
			require.Equal(t, [2]int64{}, take(), "%s, put back by %v", kind, back)
		}
	}
}

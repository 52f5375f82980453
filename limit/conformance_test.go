// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"context"
	"io"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/limittest"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// promised returns the promises of an algorithm of limit.EveryAlgorithm.
// boundOf returns the bound of a for the checks.
func boundOf(a limit.Algorithm) func(window time.Duration, n int64) int64 {
	return func(window time.Duration, n int64) int64 { return limit.Bound(a, window, n) }
}

func promised(a limit.Algorithm) limittest.Key {
	s := limittest.Key{Bound: boundOf(a), Largest: limit.MaxPerCall(a), Rate: ratelimiter.Rate{Permits: 3, Interval: time.Second}}
	if rate := reflect.ValueOf(a).FieldByName("Rate"); rate.IsValid() {
		s.Rate = rate.Interface().(ratelimiter.Rate)
	}
	switch a := a.(type) {
	case limit.CalendarQuota:
		s.Rate = ratelimiter.Rate{Permits: a.Permits, Interval: 24 * time.Hour}
	case limit.SmoothBursty:
		s.Largest, s.Unbounded = 8, true
	case limit.SmoothWarmingUp:
		// The area of the warm-up above the rate: 2 s.
		s.Largest, s.Unbounded, s.Behind = 8, true, 6
	}
	return s
}

// unforgiving are algorithms whose parameters hide no error: the time of a permit is short and not a whole number
// of microseconds, and nothing is stored.
var unforgiving = map[string]limit.Algorithm{
	"token bucket of one":    limit.TokenBucket{Rate: short, Burst: 1},
	"gcra of one":            limit.GCRA{Rate: short, Burst: 1},
	"debt bucket of one":     limit.DebtBucket{Rate: short, Burst: 1, Debt: 1},
	"leaky queue of one":     limit.LeakyQueue{Rate: short, Capacity: 1},
	"interval bucket of one": limit.IntervalBucket{Rate: ratelimiter.Rate{Permits: 1, Interval: short.Interval}, Burst: 1},
	"sliding counter, short": limit.SlidingCounter{Rate: short},
	// Several permits a microsecond.
	"fixed window, fast":    limit.FixedWindow{Rate: fast},
	"sliding log, fast":     limit.SlidingLog{Rate: fast},
	"interval bucket, fast": limit.IntervalBucket{Rate: fast, Burst: 9},
	"token bucket, fast":    limit.TokenBucket{Rate: fast, Burst: 9},
	"debt bucket, fast":     limit.DebtBucket{Rate: fast, Burst: 4, Debt: 5},
	"gcra, fast":            limit.GCRA{Rate: fast, Burst: 9},
	"leaky queue, fast":     limit.LeakyQueue{Rate: fast, Capacity: 9},
}

var fast = ratelimiter.Rate{Permits: 7, Interval: 3 * time.Microsecond}

var short = ratelimiter.Rate{Permits: 3, Interval: 100 * time.Microsecond}

func TestLocalConformance(t *testing.T) {
	redistest.NoServer(t)
	all := limit.EveryAlgorithm()
	maps.Copy(all, unforgiving)
	for kind, a := range all {
		t.Run(kind, func(t *testing.T) {
			limittest.Run(t, func(t *testing.T, check func(limittest.Key)) {
				synctest.Test(t, func(t *testing.T) {
					s := promised(a)
					s.Random = proptest.Rand(t)
					s.Calls = redistest.Cases(30_000, 0) // 0 is the suite's own million
					if redistest.UnderRace {
						s.Calls = redistest.Cases(1_000, 20_000)
					}
					s.New = func() limit.Limiter { return redistest.Must(limit.NewLocal(a))(t) }
					check(s)
				})
			})
		})
	}
}

func TestSharedConformance(t *testing.T) {
	redistest.Repeats(t)
	for kind, a := range limit.EveryAlgorithm() {
		t.Run(kind, func(t *testing.T) {
			limittest.Run(t, func(t *testing.T, check func(limittest.Key)) {
				redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
					check(sharedSubject(t, rdb, a))
				})
			})
		})
	}
}

// calls returns how many calls NoDrift makes of a shared limiter: few on miniredis, which compiles a script each
// time. TestLocalAndSharedAgree shows that
// the shared form does what the local one does, which makes a million.
func calls() int {
	switch {
	case redistest.Lane() == "miniredis":
		return 500
	case redistest.UnderRace:
		return redistest.Cases(500, 2_000)
	}
	return redistest.Cases(2_000, 20_000)
}

func sharedSubject(t *testing.T, rdb *redis.Client, a limit.Algorithm) limittest.Key {
	s := promised(a)
	s.Calls, s.Random = calls(), proptest.Rand(t)
	// Only the clock of miniredis is virtual. The limiter uses it unless the check steps the clock.
	var step time.Duration
	var options []limit.Option
	if !redistest.TTLsAreVirtual() {
		options = append(options, limit.WithClientClock())
	}
	if strings.HasSuffix(t.Name(), "/ClockSteps") {
		options = append(options, limit.WithClock(func() time.Time { return time.Now().Add(step) }))
	}
	s.StepClock = func(d time.Duration) { step += d }
	var keys []string
	s.New = func() limit.Limiter {
		l := redistest.Must(limit.NewShared(rdb, redistest.Key(t), a, options...))(t)
		keys = append(keys, l.Keys()...)
		return l
	}
	s.Deadlines = func(ctx context.Context) (map[string]time.Duration, error) { return deadlines(ctx, rdb, keys) }
	s.LoseReply = loser(t, rdb)
	return s
}

// deadlines returns the TTLs of those keys that exist.
func deadlines(ctx context.Context, rdb *redis.Client, keys []string) (map[string]time.Duration, error) {
	there := map[string]time.Duration{}
	for _, k := range keys {
		ttl, err := rdb.PTTL(ctx, k).Result()
		if err != nil {
			return nil, err
		}
		if ttl != -2 {
			there[k] = ttl
		}
	}
	return there, nil
}

// loser returns a function that makes rdb lose the reply of the next script that runs.
func loser(t *testing.T, rdb *redis.Client) func() {
	var lose atomic.Bool
	rdb.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && !redis.HasErrorPrefix(err, "NOSCRIPT") && lose.Swap(false) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}))
	t.Cleanup(func() { require.False(t, lose.Load(), "no reply was lost") })
	return func() { lose.Store(true) }
}

// A RRateLimiter keeps the promises of a sliding log, in whole milliseconds.
func TestRRateLimiterConformance(t *testing.T) {
	limittest.Run(t, func(t *testing.T, check func(limittest.Key)) {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			client := clienttest.InBubble(t, rdb)
			log := limit.SlidingLog{Rate: ratelimiter.Rate{Permits: 7, Interval: time.Second}}
			check(limittest.Key{
				New: func() limit.Limiter {
					l := client.RateLimiter(redistest.Key(t))
					require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 7, Interval: time.Second}))
					return l
				},
				Bound: boundOf(log), Rate: log.Rate, Largest: 7, Resolution: time.Millisecond,
				Calls: calls(), Random: proptest.Rand(t), LoseReply: loser(t, rdb),
			})
		})
	})
}

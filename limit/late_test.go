// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// settleable are the algorithms whose grants can be settled, at an interval of a dozen microseconds.
func settleable() map[string]Algorithm {
	interval := micros(12)
	return map[string]Algorithm{
		"fixed window":         FixedWindow{per(6, interval)},
		"sliding counter":      SlidingCounter{per(6, interval)},
		"calendar quota":       CalendarQuota{Permits: 6, Per: Day, Location: time.UTC},
		"interval bucket":      IntervalBucket{per(2, interval), 6},
		"interval bucket, low": IntervalBucket{per(6, interval), 4},
		"token bucket":         TokenBucket{per(5, interval), 6},
		"debt bucket":          DebtBucket{per(5, interval), 4, 3},
		"gcra":                 GCRA{per(5, interval), 6},
		"token bucket, fast":   TokenBucket{per(7, micros(3)), 6},
	}
}

// TestCancelledLate checks what is left when two grants of half of a limiter are cancelled: at once in either order all of it; and
// nothing of what has come back by itself, or was forgotten, since others have taken it all.
func TestCancelledLate(t *testing.T) {
	r := per(1, time.Second)
	for kind, a := range map[string]Algorithm{
		"fixed window": FixedWindow{per(10, time.Second)}, "sliding counter": SlidingCounter{per(10, time.Second)},
		"calendar quota":  CalendarQuota{Permits: 10, Per: Day, Location: time.UTC},
		"interval bucket": IntervalBucket{r, 10}, "token bucket": TokenBucket{r, 10}, "debt bucket": DebtBucket{r, 9, 1}, "gcra": GCRA{r, 10},
	} {
		steps := map[string]struct {
			change func(t *testing.T, l granter, lost func(), first, second *Grant)
			left   int64
		}{
			"the first one first": {func(t *testing.T, _ granter, _ func(), first, second *Grant) {
				require.NoError(t, first.Cancel(t.Context()))
				require.NoError(t, second.Cancel(t.Context()))
			}, 10},
			"the second one first": {func(t *testing.T, _ granter, _ func(), first, second *Grant) {
				require.NoError(t, second.Cancel(t.Context()))
				require.NoError(t, first.Cancel(t.Context()))
			}, 10},
			"refilled": {func(t *testing.T, l granter, _ func(), first, second *Grant) {
				require.NoError(t, first.Cancel(t.Context()))
				time.Sleep(5 * time.Second)
				if kind == "calendar quota" {
					time.Sleep(24 * time.Hour)
				}
				exhaust(t, l)
				require.NoError(t, second.Cancel(t.Context()))
			}, 0},
			"forgotten": {func(t *testing.T, l granter, lost func(), first, second *Grant) {
				lost()
				exhaust(t, l)
				require.NoError(t, first.Cancel(t.Context()))
				require.NoError(t, second.Cancel(t.Context()))
			}, 0},
		}
		for name, c := range steps {
			run := func(t *testing.T, l granter, lost func()) {
				first, second := grantOf(t, l, 5), grantOf(t, l, 5)
				c.change(t, l, lost, first, second)
				got := int64(0)
				for redistest.Must(l.Allow(t.Context(), 1))(t).Granted {
					got++
				}
				require.Equal(t, c.left, got)
			}
			for how, opts := range map[string][]Option{"": {WithoutCachedRejections()}, ", nothing remembered": {WithoutCachedRejections(), WithoutReplay()}} {
				t.Run("shared "+kind+", "+name+how, func(t *testing.T) {
					redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
						l := twin(t, shared(t, rdb, a), rdb, opts...)
						run(t, l, func() { require.NoError(t, rdb.Del(t.Context(), l.Keys()...).Err()) })
					})
				})
			}
			t.Run("local "+kind+", "+name, func(t *testing.T) {
				redistest.NoServer(t)
				synctest.Test(t, func(t *testing.T) {
					l := redistest.Must(NewLocal(a))(t)
					run(t, l, l.Reset)
				})
			})
		}
	}
}

// A lateGrant is a grant of a test and how many of its permits count.
type lateGrant struct {
	*Grant
	at    time.Time
	life  int // of the limiter
	count int64
}

// TestBoundHoldsWhateverIsSettled checks that no window has more than the bound, of the permits that grants keep, whatever the
// order of grants, settlements, cancellations, resets, keys that are lost or have expired, and clocks that are put back. The bound
// of a CalendarQuota is that of a period.
func TestBoundHoldsWhateverIsSettled(t *testing.T) {
	redistest.NoRace(t, "one caller at a time")
	for kind, a := range settleable() {
		t.Run("local "+kind, func(t *testing.T) {
			redistest.NoServer(t)
			synctest.Test(t, func(t *testing.T) {
				l := redistest.Must(NewLocal(a))(t)
				settleAtRandom(t, a, l, 100_000, func(int) { l.Reset() })
			})
		})
		t.Run("shared "+kind, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				var back time.Duration
				clock := func(c *config) { c.Clock = func() time.Time { return time.Now().Add(-back) } }
				l := redistest.Must(NewShared(rdb, redistest.Key(t), a, clock, WithoutCachedRejections()))(t)
				settleAtRandom(t, a, l, redistest.Cases(3000, 100_000), func(how int) {
					switch {
					case how == 0:
						require.NoError(t, l.Reset(t.Context()))
					case how < 3:
						require.NoError(t, rdb.Del(t.Context(), l.Keys()...).Err())
					case how < 5 && kind != "calendar quota":
						back += micros(int64(how) * 7) // and nothing is lost
						return
					}
				})
			})
		})
	}
}

// settleAtRandom makes that many random steps. At some it calls upset, with a number up to 9: the limiter begins anew then, unless that is
// above 2.
func settleAtRandom(t *testing.T, a Algorithm, l granter, steps int, upset func(how int)) {
	const longest = 40
	random, life := proptest.Rand(t), 0
	var list, window []*lateGrant // those that can be settled, and those of the last windows
	check := func() {
		now, sum, bound := time.Now(), int64(0), int64(0)
		for i := len(window) - 1; i >= 0; i-- {
			g := window[i]
			if now.Sub(g.at) >= micros(longest) || g.life != life {
				window = window[i+1:]
				return
			}
			sum += g.count
			if sum > bound { // which a longer window may have, too
				w := now.Sub(g.at) + time.Microsecond
				bound = a.bound(w, min(3, a.model().Largest))
				require.LessOrEqual(t, sum, bound, "in %v", w)
			}
		}
	}
	for range steps {
		switch p := random.IntN(100); {
		case p < 30:
			time.Sleep(micros(random.Int64N(4)))
		case p < 33:
			time.Sleep(micros(random.Int64N(30)))
		case p == 33 && random.IntN(20) == 0:
			time.Sleep(3 * time.Minute) // its key expires
		case p < 36:
			if how := random.IntN(10); how < 5 {
				upset(how)
				if _, local := l.(*Local); local || how < 3 {
					life++
				}
			}
		case p < 60 && len(list) > 0:
			i := random.IntN(len(list))
			if random.IntN(2) == 0 {
				i = len(list) - 1
			}
			g := list[i]
			actual := max(0, random.Int64N(5+2)-2) // most are cancelled, or given back in part
			list[i] = list[len(list)-1]
			list = list[:len(list)-1]
			require.NoError(t, g.Settle(t.Context(), actual))
			g.count = min(g.count, actual)
		default:
			n := 1 + random.Int64N(min(3, a.model().Largest))
			g, r, err := l.AllowGrant(t.Context(), n)
			require.NoError(t, err)
			if r.Granted {
				x := &lateGrant{Grant: g, at: time.Now(), life: life, count: n}
				window = append(window, x)
				check()
				if len(list) < 12 {
					list = append(list, x)
				} else {
					list[random.IntN(len(list))] = x
				}
			}
		}
	}
}

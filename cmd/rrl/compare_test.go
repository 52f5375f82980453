package main

import (
	"context"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

// compared are the comparisons of all cases, which many tests look at.
func compared(t *testing.T) map[string]comparison {
	t.Helper()
	redistest.NoServer(t)
	redistest.NoRace(t, "the tests of the command have its goroutines")
	all, err := comparedOnce()
	require.NoError(t, err)
	return all
}

var comparedOnce = sync.OnceValues(func() (map[string]comparison, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the command does
	all := map[string]comparison{}
	for _, c := range theCases() {
		var err error
		if all[c.name], err = c.compare(context.Background(), theContestants(), c.rate.Interval); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// TestCompareCases: what each limiter makes of each case follows from its model. The reasons are beside the
// numbers; none is a copy of what the command said.
func TestCompareCases(t *testing.T) {
	const ms = time.Millisecond
	// A worst below 0 is not worked out; a waited below 0, neither.
	type want struct {
		limiter         string
		admitted, worst int64
		waited          time.Duration
	}
	for name, wants := range map[string][]want{
		"articles": {
			// The window that the first request opens holds seconds 0, 1, 2, the next one 3, 4. So the three
			// seconds from 2s on hold 980 + 900 + 100.
			{"FixedWindow", 2000, 1980, 0},
			{"IntervalBucket", 2000, 1980, 0},
			// 1000 are in use at 3s. In the seconds 3 and 4 only what seconds 0 and 1 took comes back: 10 each.
			{"SlidingLog", 1020, 1000, 0},
			{"RRateLimiter", 1020, 1000, 0},
			// Of the previous 1000 a share of (3s - x) / 3s counts, rounded down: by the last request of second 3,
			// x = 899/900 s, ceil(332.96) are free, and all 100 of second 4.
			{"SlidingCounter", 1000 + 333 + 100, 980 + 333 + 100, 0},
			// Full at 2s; until the last request of second 3, 1.99889s later, 666.296 flow in. The first of second 4
			// finds .667, the other 99 find 3.3 more each.
			{"TokenBucket", 20 + 1666 + 99, 1666 + 99, 0},
			{"GCRA", 20 + 1666 + 99, 1666 + 99, 0},
			{"DebtBucket", 20 + 1667 + 99, 1667 + 99, 0}, // and one into debt
			// The same, one turn each 3ms.
			{"LeakyQueue", 20 + 1666 + 99, 1000, -1},
			// Nothing is owed for more than 3s, so that nobody is refused.
			{"SmoothBursty", 2000, 1980, -1},
		},
		"edge": {
			// The window ends at 1s: 5, and 5 again. From 0.95s on one second holds 4 + 5.
			{"FixedWindow", 10, 9, 0},
			{"IntervalBucket", 10, 9, 0},
			// At 1.05s only the first one is back.
			{"SlidingLog", 6, 5, 0},
			{"RRateLimiter", 6, 5, 0},
			// At 1.05s 95% of 5, rounded down to 4, are in use.
			{"SlidingCounter", 6, 5, 0},
			// 5 at 0.95s, and half a permit more at 1.05s: 1.5.
			{"TokenBucket", 6, 5, 0},
			{"GCRA", 6, 5, 0},
			{"DebtBucket", 7, 6, 0}, // and one into debt
			// At 1.05s 3.5 are in the queue: one more, which waits until they have flowed out, 200ms each.
			{"LeakyQueue", 6, 5, 700 * ms},
			// 1.5 stored at 1.05s: two pass, and the others 100ms, 300ms and 500ms later.
			{"SmoothBursty", 10, 9, 500 * ms},
			// Cold, a permit takes 520ms. At 0.95s it is so again: turns after 0, 520ms, 880ms, and the next, after
			// 1.1s, is refused; at 1.05s that one is 1s away.
			{"SmoothWarmingUp", 5, 3, time.Second},
		},
		"trickle": {
			// 10 of the 12 in each second. The last 2 before 4s and the first 10 after it are in one.
			{"FixedWindow", 36 + 100, 12, 0},
			{"SlidingLog", 36 + 100, 10, 0},
			{"RRateLimiter", 36 + 100, 10, 0},
			// Full at 4s; until the last request 9.91667s later 99.2 flow in.
			{"TokenBucket", 36 + 109, 12, 0},
			{"GCRA", 36 + 109, 12, 0},
			{"DebtBucket", 36 + 110, 12, 0},
			{"LeakyQueue", 36 + 109, 10, -1},
		},
		"burst": {
			// 10 at 4s, nothing until 5s, then the rate.
			{"FixedWindow", 40, 10, 0},
			{"IntervalBucket", 40, 10, 0},
			{"SlidingLog", 40, 10, 0},
			{"RRateLimiter", 40, 10, 0},
			// At 5s all of the previous 10 count still; from 5.1s on one more is free each 100ms.
			{"SlidingCounter", 39, 10, 0},
			// 10 at 4s, and one each 100ms after it.
			{"TokenBucket", 49, 19, 0},
			{"GCRA", 49, 19, 0},
			{"DebtBucket", 50, 20, 0},
			// 10 turns from 4s on, and each later one behind 9 others.
			{"LeakyQueue", 49, 10, 900 * ms},
			// 10 stored, one that the next pays for, and 10 within the next second.
			{"SmoothBursty", 60, 20, time.Second},
			// Turns after 0, 280, 520, 720, 880 and 1000ms; from then on each request finds one a second away.
			{"SmoothWarmingUp", 45, -1, -1},
		},
		"large": {
			// The small ones keep all permits in use.
			{"FixedWindow", 40, 10, 0},
			{"IntervalBucket", 40, 10, 0},
			{"SlidingLog", 40, 10, 0},
			{"RRateLimiter", 40, 10, 0},
			// At 1s and at 3s the 10 of the second before count in full, after a second of 9 they do not.
			{"SlidingCounter", 38, 10, 0},
			// The first large one finds 9.5, and from 0.1s to 1s 10 small ones go. Then these take what flows in.
			{"TokenBucket", 48, 18, 0},
			{"GCRA", 48, 18, 0},
			// The second one goes into a debt of 6.5, for which six small ones are refused; the third meets a debt.
			{"DebtBucket", 50, 18, 0},
			// The first large one has its turn at 1s, behind 9 small ones; all after it wait for 8 permits.
			{"LeakyQueue", 48, 17, 800 * ms},
			// All large ones. The third has to wait for 650ms, and four small ones behind it too long.
			{"SmoothBursty", 60, 18, time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := compared(t)[name]
			by := map[string]outcome{}
			for _, o := range c.outcomes {
				by[o.limiter] = o
			}
			for _, w := range wants {
				o, ok := by[w.limiter]
				require.True(t, ok, w.limiter)
				if w.admitted >= 0 {
					require.Equal(t, w.admitted, o.admitted, "%s admitted", w.limiter)
				}
				if w.worst >= 0 {
					require.Equal(t, w.worst, o.worst, "%s in its worst window", w.limiter)
				}
				if w.waited >= 0 {
					require.Equal(t, w.waited, o.waited, "%s waited", w.limiter)
				}
			}
		})
	}
}

// The waits of the articles' traffic are no round numbers.
func TestCompareWaits(t *testing.T) {
	for _, o := range compared(t)["articles"].outcomes {
		switch o.limiter {
		case "LeakyQueue":
			// It is full, and the requests come each 1.1ms: one that is let in has up to 999 others before it.
			require.Greater(t, o.waited, 2995*time.Millisecond)
			require.LessOrEqual(t, o.waited, 2997*time.Millisecond)
		case "SmoothBursty":
			// Of the 1880 of the seconds 2 and 3 1000 were stored, and the others take 3ms each: so long from 2s on
			// the first of second 4 waits.
			require.InDelta(t, 880*3*time.Millisecond-2*time.Second, o.waited, float64(time.Millisecond))
		case "SmoothWarmingUp":
			// Turns may be 3s away. 500 permits take 3s from 2s on, the others 3ms each: 1166 fit in before the last of
			// second 3 has to wait too long. For the first of second 4 nothing is free yet; the others find turns.
			require.InDelta(t, 20+1167+99, o.admitted, 1)
			require.Greater(t, o.waited, 2990*time.Millisecond)
			require.LessOrEqual(t, o.waited, 3*time.Second)
			require.LessOrEqual(t, o.worst, int64(1000))
		// The grants of second 0 are 100ms apart, and so they come back: who comes 1.111ms after one waits longest.
		case "SlidingLog":
			require.Equal(t, 98889*time.Microsecond, o.told)
		case "RRateLimiter":
			require.Equal(t, 99*time.Millisecond, o.told, "in whole milliseconds")
		}
	}
}

// TestCompareAddsUp: whatever the traffic, everybody is admitted or refused, no window is above the
// limiter's bound, and the pictures show what the table says.
func TestCompareAddsUp(t *testing.T) {
	for name, c := range compared(t) {
		asked := c.asked().admitted
		require.Len(t, c.outcomes, 11)
		for _, o := range c.outcomes {
			require.Equal(t, asked, o.admitted+o.refused, "%s, %s", name, o.limiter)
			require.LessOrEqual(t, o.worst, o.bound, "%s, %s", name, o.limiter)
			sum, most := int64(0), int64(0)
			for _, n := range c.perBin(o) {
				sum += n
			}
			for _, n := range c.windows(o) {
				most = max(most, n)
			}
			require.Equal(t, o.admitted, sum, "%s, %s", name, o.limiter)
			require.Equal(t, o.worst, most, "%s, %s", name, o.limiter)
			require.Equal(t, o.refused > 0, o.told > 0, "%s, %s", name, o.limiter)
		}
	}
}

// TestCompareIsTheLimitersOwn: the embedded Redis whose clock is put from request to request grants what the
// limiter in this process does while time passes, request by request.
func TestCompareIsTheLimitersOwn(t *testing.T) {
	for name, c := range compared(t) {
		for i, w := range theContestants() {
			if w.redisson || w.name == "SmoothBursty" { // a local one begins with nothing stored
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				l, err := limit.NewLocal(w.algorithm(c.rate))
				require.NoError(t, err)
				began := time.Now()
				var grants []grant
				for _, r := range c.requests {
					time.Sleep(time.Until(began.Add(r.at)))
					got, err := l.Reserve(t.Context(), r.permits, c.wait)
					require.NoError(t, err)
					if got.Granted {
						grants = append(grants, grant{virtualBegin.Add(r.at + got.Wait), r.permits})
					}
				}
				require.Equal(t, c.outcomes[i].grants, grants, "%s, %s", name, w.name)
			})
		}
	}
}

// Without patience nobody waits: those that hand out turns refuse like the others.
func TestCompareWithoutWaiting(t *testing.T) {
	edge := theCases()[1]
	c, err := edge.compare(t.Context(), theContestants(), 0)
	require.NoError(t, err)
	for _, o := range c.outcomes {
		require.Zero(t, o.waited, o.limiter)
		switch o.limiter {
		case "LeakyQueue":
			require.EqualValues(t, 2, o.admitted, "one at 0, one at 0.95s; at 1.05s its 200ms are not over")
		case "SmoothBursty":
			require.EqualValues(t, 7, o.admitted, "1 + 4, and at 1.05s 1.5 are stored: the second one pays later")
		case "SmoothWarmingUp":
			require.EqualValues(t, 2, o.admitted)
		}
	}
}

func TestBinFor(t *testing.T) {
	for length, want := range map[time.Duration]time.Duration{
		0:                        100 * time.Millisecond,
		29999 * time.Millisecond: 100 * time.Millisecond,
		30 * time.Second:         200 * time.Millisecond,
		time.Minute:              500 * time.Millisecond,
		2 * time.Hour:            50 * time.Second,
	} {
		require.Equal(t, want, binFor(length), "%v", length)
	}
}

// What is red begins at the limit and ends there, step by step.
func TestCompareAboveTheLimit(t *testing.T) {
	c := cell{windows: []int64{1, 5, 7, 7, 4, 6}, axes: axes{limit: 4, bin: time.Second}}
	var outlines [][]float64
	for _, p := range c.aboveLimit() {
		require.Len(t, p.XYs, 1)
		var flat []float64
		for _, xy := range p.XYs[0] {
			flat = append(flat, xy.X, xy.Y)
		}
		outlines = append(outlines, flat)
	}
	require.Equal(t, [][]float64{{1, 4, 1, 5, 2, 5, 2, 7, 4, 7, 4, 4}, {5, 4, 5, 6, 6, 6, 6, 4}}, outlines)
	require.Empty(t, cell{windows: []int64{4}, axes: axes{limit: 4}}.aboveLimit())
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/grantlog"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/stretchr/testify/require"
)

// compared returns the comparisons of all cases, which many tests use.
func compared(t *testing.T) map[string]comparison {
	t.Helper()
	redistest.NoServer(t)
	redistest.NoRace(t, "the tests of the command have its goroutines")
	all := redistest.Must(comparedOnce())(t)
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

// TestCompareCases checks that the result of each limiter in each case is the one that follows from its model. The
// reasons are beside the numbers; none of the numbers is copied from the command's output.
func TestCompareCases(t *testing.T) {
	const ms = time.Millisecond
	// A worst or a waited below 0 has not been worked out, and is not checked.
	type want struct {
		limiter         string
		admitted, worst int64
		waited          time.Duration
	}
	for name, wants := range map[string][]want{
		"articles": {
			// The window that the first request opens holds the seconds 0, 1 and 2, and the next one 3 and 4. So the
			// three seconds from 2s on hold 980 + 900 + 100.
			{"FixedWindow", 2000, 1980, 0},
			{"IntervalBucket", 2000, 1980, 0},
			// 1000 are in use at 3s. In the seconds 3 and 4 only what was granted in the seconds 0 and 1 comes back: 10
			// in each.
			{"SlidingLog", 1020, 1000, 0},
			{"RRateLimiter", 1020, 1000, 0},
			// Of the previous 1000 a share of (3s - x) / 3s counts, rounded down. By the last request of second 3, x =
			// 899/900 s and ceil(332.96) are free; in second 4 all 100 are.
			{"SlidingCounter", 1000 + 333 + 100, 980 + 333 + 100, 0},
			// The bucket is full at 2s; until the last request of second 3, 1.99889s later, 666.296 flow in. The first
			// request of second 4 finds .667, and the other 99 find 3.3 more each.
			{"TokenBucket", 20 + 1666 + 99, 1666 + 99, 0},
			{"GCRA", 20 + 1666 + 99, 1666 + 99, 0},
			{"DebtBucket", 20 + 1667 + 99, 1667 + 99, 0}, // and one goes into debt
			// The same, with one turn every 3ms.
			{"LeakyQueue", 20 + 1666 + 99, 1000, -1},
			// No debt is longer than 3s, so no request is rejected.
			{"SmoothBursty", 2000, 1980, -1},
		},
		"edge": {
			// The window ends at 1s: 5 are admitted, and 5 again. From 0.95s on one second holds 4 + 5.
			{"FixedWindow", 10, 9, 0},
			{"IntervalBucket", 10, 9, 0},
			// At 1.05s only the first permit is back.
			{"SlidingLog", 6, 5, 0},
			{"RRateLimiter", 6, 5, 0},
			// At 1.05s 95% of 5, rounded down to 4, are in use.
			{"SlidingCounter", 6, 5, 0},
			// There are 5 at 0.95s, and half a permit more at 1.05s: 1.5.
			{"TokenBucket", 6, 5, 0},
			{"GCRA", 6, 5, 0},
			{"DebtBucket", 7, 6, 0}, // and one goes into debt
			// At 1.05s 3.5 are in the queue. One more is admitted, and waits until they have flowed out, 200ms each.
			{"LeakyQueue", 6, 5, 700 * ms},
			// 1.5 are stored at 1.05s: two requests pass at once, and the others 100ms, 300ms and 500ms later.
			{"SmoothBursty", 10, 9, 500 * ms},
			// A cold permit takes 520ms, and at 0.95s the limiter is cold again. The turns are after 0, 520ms and 880ms,
			// and the next one, after 1.1s, is rejected; at 1.05s that turn is 1s ahead.
			{"SmoothWarmingUp", 5, 3, time.Second},
		},
		"trickle": {
			// In each second 10 of the 12 are admitted. One window holds the last 2 before 4s and the first 10 after it.
			{"FixedWindow", 36 + 100, 12, 0},
			{"SlidingLog", 36 + 100, 10, 0},
			{"RRateLimiter", 36 + 100, 10, 0},
			// The bucket is full at 4s; until the last request, 9.91667s later, 99.2 flow in.
			{"TokenBucket", 36 + 109, 12, 0},
			{"GCRA", 36 + 109, 12, 0},
			{"DebtBucket", 36 + 110, 12, 0},
			{"LeakyQueue", 36 + 109, 10, -1},
		},
		"burst": {
			// 10 are admitted at 4s, none until 5s, and then as many as the rate allows.
			{"FixedWindow", 40, 10, 0},
			{"IntervalBucket", 40, 10, 0},
			{"SlidingLog", 40, 10, 0},
			{"RRateLimiter", 40, 10, 0},
			// At 5s all of the previous 10 still count; from 5.1s on one more is free every 100ms.
			{"SlidingCounter", 39, 10, 0},
			// 10 are admitted at 4s, and one every 100ms after it.
			{"TokenBucket", 49, 19, 0},
			{"GCRA", 49, 19, 0},
			{"DebtBucket", 50, 20, 0},
			// There are 10 turns from 4s on, and each later request is behind 9 others.
			{"LeakyQueue", 49, 10, 900 * ms},
			// 10 are stored, one more goes into debt, and 10 follow within the next second.
			{"SmoothBursty", 60, 20, time.Second},
			// The turns are after 0, 280, 520, 720, 880 and 1000ms; from then on each request finds one that is a second
			// ahead.
			{"SmoothWarmingUp", 45, -1, -1},
		},
		"large": {
			// The small requests keep all permits in use.
			{"FixedWindow", 40, 10, 0},
			{"IntervalBucket", 40, 10, 0},
			{"SlidingLog", 40, 10, 0},
			{"RRateLimiter", 40, 10, 0},
			// At 1s and at 3s the 10 of the second before count in full; after a second with 9 they do not.
			{"SlidingCounter", 38, 10, 0},
			// The first large request finds 9.5, and from 0.1s to 1s 10 small ones are admitted. Then the small ones
			// take what flows in.
			{"TokenBucket", 48, 18, 0},
			{"GCRA", 48, 18, 0},
			// The second large request goes into a debt of 6.5, for which six small ones are rejected. The third finds a
			// debt.
			{"DebtBucket", 50, 18, 0},
			// The first large request has its turn at 1s, behind 9 small ones; all later ones have to wait for 8
			// permits.
			{"LeakyQueue", 48, 17, 800 * ms},
			// All large requests are admitted. The third has to wait for 650ms, and for four small ones behind it the
			// wait is too long.
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

// TestCompareWaits checks the waits in the articles' traffic, which are no round numbers.
func TestCompareWaits(t *testing.T) {
	for _, o := range compared(t)["articles"].outcomes {
		switch o.limiter {
		case "LeakyQueue":
			// The queue is full, and a request comes every 1.1ms: an admitted one has up to 999 others before it.
			require.Greater(t, o.waited, 2995*time.Millisecond)
			require.LessOrEqual(t, o.waited, 2997*time.Millisecond)
		case "SmoothBursty":
			// Of the 1880 requests of the seconds 2 and 3, 1000 had stored permits, and the others take 3ms each. That
			// is how long after 2s the first request of second 4 has to wait.
			require.InDelta(t, 880*3*time.Millisecond-2*time.Second, o.waited, float64(time.Millisecond))
		case "SmoothWarmingUp":
			// A turn may be 3s ahead. 500 permits take 3s from 2s on, the others 3ms each: 1166 fit in before the wait
			// of the last requests of second 3 is too long. For the first request of second 4 nothing is free yet; the
			// others find turns.
			require.InDelta(t, 20+1167+99, o.admitted, 1)
			require.Greater(t, o.waited, 2990*time.Millisecond)
			require.LessOrEqual(t, o.waited, 3*time.Second)
			require.LessOrEqual(t, o.worst, int64(1000))
		// The grants of second 0 are 100ms apart, and so are their returns: a request that comes 1.111ms after a return
		// waits longest.
		case "SlidingLog":
			require.Equal(t, 98889*time.Microsecond, o.told)
		case "RRateLimiter":
			require.Equal(t, 99*time.Millisecond, o.told, "in whole milliseconds")
		}
	}
}

// TestCompareAddsUp checks that under any traffic every request is admitted or rejected, no window exceeds the
// limiter's bound, and the pictures show the numbers of the table.
func TestCompareAddsUp(t *testing.T) {
	for name, c := range compared(t) {
		asked := c.asked().admitted
		require.Len(t, c.outcomes, 11)
		for _, o := range c.outcomes {
			require.Equal(t, asked, o.admitted+o.rejected, "%s, %s", name, o.limiter)
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
			require.Equal(t, o.rejected > 0, o.told > 0, "%s, %s", name, o.limiter)
		}
	}
}

// TestCompareIsTheLimitersOwn checks that the embedded Redis, whose clock is set from request to request, grants
// exactly what the limiter in this process grants while time passes.
func TestCompareIsTheLimitersOwn(t *testing.T) {
	for name, c := range compared(t) {
		for i, w := range theContestants() {
			if w.redisson || w.name == "SmoothBursty" { // a local limiter begins with nothing stored
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				l := redistest.Must(limit.NewLocal(w.algorithm(c.rate)))(t)
				began := time.Now()
				var grants grantlog.Grants
				for _, r := range c.requests {
					time.Sleep(time.Until(began.Add(r.at)))
					got := redistest.Must(l.Reserve(t.Context(), r.permits, c.wait))(t)
					if got.Granted {
						grants = append(grants, grantlog.At(virtualBegin.Add(r.at+got.Wait), r.permits))
					}
				}
				require.Equal(t, c.outcomes[i].grants, grants, "%s, %s", name, w.name)
			})
		}
	}
}

// TestCompareWithoutWaiting checks that without patience no request waits: limiters that hand out turns reject like
// the others.
func TestCompareWithoutWaiting(t *testing.T) {
	edge := theCases()[1]
	c := redistest.Must(edge.compare(t.Context(), theContestants(), 0))(t)
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

// TestCompareAboveTheLimit checks that the red area begins and ends at the limit, step by step.
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

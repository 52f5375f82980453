// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.Main(m)
}

// compared returns the outcomes of all cases, in their order.
func compared(t *testing.T) [][]outcome {
	t.Helper()
	redistest.NoServer(t)
	redistest.NoRace(t, "it has one goroutine")
	return redistest.Must(comparedOnce())(t)
}

var comparedOnce = sync.OnceValues(func() (all [][]outcome, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the program does
	for _, t := range cases {
		outcomes, err := t.compare(context.Background())
		if err != nil {
			return nil, err
		}
		all = append(all, outcomes)
	}
	return all, nil
})

// TestCases checks that the result of each limiter in each case is the one that follows from its model. The
// reasons are beside the numbers; none of the numbers is copied from the output.
func TestCases(t *testing.T) {
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
			by := map[string]outcome{}
			for _, all := range compared(t) {
				for _, o := range all {
					if o.name == name {
						by[o.limiter] = o
					}
				}
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

// TestOutcomesAddUp checks that every permit is admitted or rejected, that no window exceeds what the limiter promises, and that the
// pictures have the numbers of the tables.
func TestOutcomesAddUp(t *testing.T) {
	for _, all := range compared(t) {
		require.Len(t, all, 11)
		for _, o := range all {
			asked, drawn := int64(0), int64(0)
			for _, r := range o.arrivals() {
				asked += r.permits
			}
			perBin, windows := o.bins()
			for _, n := range perBin {
				drawn += n
			}
			require.Equal(t, asked, o.admitted+o.rejected, "%s, %s", o.name, o.limiter)
			require.LessOrEqual(t, o.worst, o.bound, "%s, %s", o.name, o.limiter)
			require.Equal(t, o.admitted, drawn, "%s, %s", o.name, o.limiter)
			require.Equal(t, o.worst, slices.Max(windows), "%s, %s", o.name, o.limiter)
		}
	}
}

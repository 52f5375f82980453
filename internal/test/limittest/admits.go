// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
)

// checkBound tests, for several kinds of traffic, every window that begins and ends with a grant.
func checkBound(ctx context.Context, s Key) {
	wait := func(_ *caller, r ratelimiter.Result) time.Duration { return r.Wait }
	for name, traffic := range map[string]struct {
		calls int
		most  int64 // the largest call
		pause func(c *caller, r ratelimiter.Result) time.Duration
	}{
		"greedy": {1500, 1, wait},
		"bursts at the edge": {1500, 1, func(c *caller, r ratelimiter.Result) time.Duration {
			if len(c.grants)%3 == 0 { // late in an interval, so that the next begins soon
				return max(r.Reset-c.Resolution, 0)
			}
			return r.Wait
		}},
		"trickle": {1500, 1, func(c *caller, _ ratelimiter.Result) time.Duration { return c.each() }},
		"large":   {400, s.Largest, wait},
		"any": {2500, min(s.Largest, 5), func(c *caller, r ratelimiter.Result) time.Duration {
			switch c.random.IntN(7) {
			case 0:
				return r.Wait
			case 1:
				return r.Reset
			case 2:
				return c.upTo(r.Reset)
			case 3:
				return c.upTo(c.Rate.Interval)
			case 4:
				return c.upTo(c.each())
			}
			return 0
		}},
	} {
		c := s.caller(ctx)
		for range c.few(traffic.calls) {
			n := traffic.most
			if n < c.Largest && n > 1 {
				n = 1 + c.random.Int64N(n)
			}
			if d := traffic.pause(c, c.allow(n)); d > 0 {
				time.Sleep(c.round(d))
			}
		}
		c.withinBound(name)
	}
}

// few returns n, or less for a limiter that is slow.
func (c *caller) few(n int) int {
	if c.Calls < 10_000 {
		return n / 8
	}
	return n
}

// withinBound fails if a window that begins with one grant and ends with another is above the bound. What a window may hold, a longer
// one may, too, so the bound is asked for only where the last answer is exceeded, and once for each length.
func (c *caller) withinBound(when string) {
	slices.SortStableFunc(c.grants, func(a, b grant) int { return cmp.Compare(a.at, b.at) })
	bounds := map[time.Duration]int64{}
	for i := range c.grants {
		sum, bound := int64(0), int64(0)
		for _, last := range c.grants[i:] {
			sum += last.n
			if sum <= bound {
				continue
			}
			window := last.at.Truncate(c.Resolution) - c.grants[i].at.Truncate(c.Resolution) + c.Resolution
			known := false
			if bound, known = bounds[window]; !known {
				bound = c.Bound(window, c.most)
				bounds[window] = bound
			}
			if sum > bound {
				fail("%s: %d permits in the %v from %v on; the bound is %d", when, sum, window, c.grants[i].at, bound)
			}
		}
	}
}

// checkSameInstant tests that calls at one instant are counted separately.
func checkSameInstant(ctx context.Context, s Key) {
	if got, _ := s.caller(ctx).exhaust(); got == 0 {
		fail("an unused limiter granted nothing")
	}
}

// checkConcurrency tests that many callers at one instant get as much as one caller.
func checkConcurrency(ctx context.Context, s Key) {
	want, _ := s.caller(ctx).exhaust()
	c := s.caller(ctx)
	var (
		mu     sync.Mutex
		got    int64
		failed error
		all    sync.WaitGroup
	)
	for range want + 50 {
		all.Go(func() {
			r, err := c.l.Allow(ctx, 1)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			}
			if r.Granted {
				got++
			}
		})
	}
	all.Wait()
	must(failed)
	if c.now() == 0 && got != want || got > want {
		fail("%d callers at one instant got %d permits; one caller gets %d", want+50, got, want)
	}
}

// checkEventual tests that a caller that asks without a pause is served at about the rate. It is not by a limiter
// that rounds down what has come in since the last call and takes that for the state of now.
func checkEventual(ctx context.Context, s Key) {
	c := s.caller(ctx)
	pause := c.round(c.each() / 20)
	for c.now() < 20*c.each()+3*c.Rate.Interval {
		c.exhaust() // several at one instant, where a permit takes less than the resolution
		time.Sleep(pause)
	}
	if least := c.owed(c.now()) * 9 / 10; c.granted() < least-1 {
		fail("a caller that asks every %v got %d permits in %v; the rate owes %d", pause, c.granted(), c.now(), least)
	}
}

// checkDrift tests that over very many calls a caller that asks after each wait, and in between, gets at least the
// rate and at most the bound.
func checkDrift(ctx context.Context, s Key) {
	c := s.caller(ctx)
	got := int64(0)
	for i := 0; i < c.Calls; i++ {
		r := c.allow(1)
		c.grants = c.grants[:0] // which are not needed here, and would be a million
		if r.Granted {
			got++
			continue
		}
		if early := c.upTo(r.Wait); i%2 == 0 && early < r.Wait {
			i++
			time.Sleep(early)
			if r = c.allow(1); r.Granted {
				fail("granted before the wait that was told")
			}
		}
		time.Sleep(r.Wait)
	}
	if least, most := c.owed(c.now())-1, c.Bound(c.now()+c.Resolution, 1); got < least || got > most {
		fail("%d calls got %d permits in %v; that should be %d to %d", c.Calls, got, c.now(), least, most)
	}
}

// checkIdle tests that a limiter that has not been used for long is as a new one, and no fuller.
func checkIdle(ctx context.Context, s Key) {
	c := s.caller(ctx)
	first := c.peek(1)
	at, last := c.exhaust()
	for _, idle := range []time.Duration{last.Reset, 20 * c.Rate.Interval, 30 * 24 * time.Hour} {
		time.Sleep(idle)
		if now := c.peek(1); !now.Granted || now.Reset != 0 || now.Available < first.Available {
			fail("idle for %v it is %+v; unused it was %+v", idle, now, first)
		}
		got, r := c.exhaust()
		if got < at {
			fail("idle for %v it granted %d; unused it granted %d", idle, got, at)
		}
		if r.Reset > idle {
			time.Sleep(r.Reset - idle)
		}
	}
	c.withinBound("idle in between")
}

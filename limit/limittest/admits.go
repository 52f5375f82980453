// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/limit"
)

// checkBound tests, for several kinds of traffic, every window that begins and ends with a grant.
func checkBound(ctx context.Context, s Key) error {
	for name, traffic := range map[string]func(c *caller) error{
		"greedy": func(c *caller) error {
			return c.traffic(c.few(1500), 1, func(r limit.Result) time.Duration { return r.Wait })
		},
		"bursts at the edge": func(c *caller) error {
			return c.traffic(c.few(1500), 1, func(r limit.Result) time.Duration {
				// Late in an interval, so that the next begins soon.
				if len(c.grants)%3 == 0 {
					return max(r.Reset-c.Resolution, 0)
				}
				return r.Wait
			})
		},
		"trickle": func(c *caller) error {
			return c.traffic(c.few(1500), 1, func(limit.Result) time.Duration { return c.each() })
		},
		"large": func(c *caller) error {
			return c.traffic(c.few(400), c.Largest, func(r limit.Result) time.Duration { return r.Wait })
		},
		"any": func(c *caller) error {
			return c.traffic(c.few(2500), min(c.Largest, 5), func(r limit.Result) time.Duration {
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
			})
		},
	} {
		c := s.caller(ctx)
		if err := traffic(c); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := c.withinBound(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// traffic makes calls of up to most permits, or of exactly Largest if that is most, with pauses in between.
func (c *caller) traffic(calls int, most int64, pause func(limit.Result) time.Duration) error {
	for range calls {
		n := most
		if most < c.Largest && most > 1 {
			n = 1 + c.random.Int64N(most)
		}
		r, err := c.allow(n)
		if err != nil {
			return err
		}
		if d := pause(r); d > 0 {
			time.Sleep(c.round(d))
		}
	}
	return nil
}

// few returns n, or less for a limiter that is slow.
func (c *caller) few(n int) int {
	if c.Calls < 10_000 {
		return n / 8
	}
	return n
}

// withinBound returns an error if a window that begins with one grant and ends with another is above the bound.
func (c *caller) withinBound() error {
	slices.SortStableFunc(c.grants, func(a, b grant) int { return cmp.Compare(a.at, b.at) })
	for i := range c.grants {
		sum := int64(0)
		for j := i; j < len(c.grants); j++ {
			sum += c.grants[j].n
			window := c.grants[j].at.Truncate(c.Resolution) - c.grants[i].at.Truncate(c.Resolution) + c.Resolution
			if bound := c.Bound(window, c.most); sum > bound {
				return fmt.Errorf("%d permits in the %v from %v on; the bound is %d", sum, window, c.grants[i].at, bound)
			}
		}
	}
	return nil
}

// checkSameInstant tests that calls at one instant are counted separately.
func checkSameInstant(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	got, _, err := c.exhaust()
	if err == nil && got == 0 {
		err = fmt.Errorf("an unused limiter granted nothing")
	}
	return err
}

// checkConcurrency tests that many callers at one instant get as much as one caller.
func checkConcurrency(ctx context.Context, s Key) error {
	want, _, err := s.caller(ctx).exhaust()
	if err != nil {
		return err
	}
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
	if failed != nil {
		return failed
	}
	if c.now() == 0 && got != want || got > want {
		return fmt.Errorf("%d callers at one instant got %d permits; one caller gets %d", want+50, got, want)
	}
	return nil
}

// checkEventual tests that a caller that asks without a pause is served at about the rate. It is not by a limiter
// that rounds down what has come in since the last call and takes that for the state of now.
func checkEventual(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	pause := c.round(c.each() / 20)
	for c.now() < 20*c.each()+3*c.Rate.Interval {
		// Several at one instant, where a permit takes less than the resolution.
		if _, _, err := c.exhaust(); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	if least := c.owed(c.now()) * 9 / 10; c.granted() < least-1 {
		return fmt.Errorf("a caller that asks every %v got %d permits in %v; the rate owes %d", pause, c.granted(), c.now(), least)
	}
	return nil
}

// checkDrift tests that over very many calls a caller that asks after each wait, and in between, gets at least the
// rate and at most the bound.
func checkDrift(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	got := int64(0)
	for i := 0; i < c.Calls; i++ {
		r, err := c.allow(1)
		if err != nil {
			return err
		}
		c.grants = c.grants[:0] // which are not needed here, and would be a million
		if r.Granted {
			got++
			continue
		}
		if early := c.upTo(r.Wait); i%2 == 0 && early < r.Wait {
			i++
			time.Sleep(early)
			if r, err = c.allow(1); err != nil {
				return err
			}
			if r.Granted {
				return fmt.Errorf("granted %v before the wait that was told", r.Wait)
			}
		}
		time.Sleep(r.Wait)
	}
	if least, most := c.owed(c.now())-1, c.Bound(c.now()+c.Resolution, 1); got < least || got > most {
		return fmt.Errorf("%d calls got %d permits in %v; that should be %d to %d", c.Calls, got, c.now(), least, most)
	}
	return nil
}

// checkIdle tests that a limiter that has not been used for long is as a new one, and no fuller.
func checkIdle(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	first, err := c.l.Peek(ctx, 1)
	if err != nil {
		return err
	}
	at, last, err := c.exhaust()
	if err != nil {
		return err
	}
	for _, idle := range []time.Duration{last.Reset, 20 * c.Rate.Interval, 30 * 24 * time.Hour} {
		time.Sleep(idle)
		now, err := c.l.Peek(ctx, 1)
		if err != nil {
			return err
		}
		if !now.Granted || now.Reset != 0 || now.Available < first.Available {
			return fmt.Errorf("idle for %v it is %+v; unused it was %+v", idle, now, first)
		}
		got, r, err := c.exhaust()
		if err != nil {
			return err
		}
		if got < at {
			return fmt.Errorf("idle for %v it granted %d; unused it granted %d", idle, got, at)
		}
		if r.Reset > idle {
			time.Sleep(r.Reset - idle)
		}
	}
	return c.withinBound()
}

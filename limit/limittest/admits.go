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

// checkBound lets every kind of traffic come and looks at every window that begins and ends with a grant.
func checkBound(ctx context.Context, s Subject) error {
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

// traffic makes calls of up to most permits, most of them where most is Largest, with pauses in between.
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

// few is n, or fewer of a limiter that is slow to ask.
func (c *caller) few(n int) int {
	if c.Calls < 10_000 {
		return n / 8
	}
	return n
}

// withinBound looks at every window that begins with one grant and ends with another.
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

// checkSameInstant: calls at one instant are told apart.
func checkSameInstant(ctx context.Context, s Subject) error {
	c := s.caller(ctx)
	got, _, err := c.exhaust()
	if err == nil && got == 0 {
		err = fmt.Errorf("an unused limiter granted nothing")
	}
	return err
}

// checkConcurrency: callers at one instant get together what one alone gets.
func checkConcurrency(ctx context.Context, s Subject) error {
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

// checkEventual: whoever asks all the time is served at about the rate all the same. A limiter that
// rounds what has flowed in since the last call down, and calls that now, starves a fast caller.
func checkEventual(ctx context.Context, s Subject) error {
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

// checkDrift: over very many calls a caller that asks when it was told to, and in between, gets what the
// rate owes, and what the bound allows.
func checkDrift(ctx context.Context, s Subject) error {
	c := s.caller(ctx)
	got := int64(0)
	for i := 0; i < c.Calls; i++ {
		r, err := c.allow(1)
		if err != nil {
			return err
		}
		c.grants = c.grants[:0] // a million of them are of no use here
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

// checkIdle: what nobody uses for long is full, and no fuller.
func checkIdle(ctx context.Context, s Subject) error {
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
		if !now.Granted || now.Reset != 0 || now.Remaining < first.Remaining {
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

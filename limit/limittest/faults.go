// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"context"
	"fmt"
	"time"
)

// checkClock tests that a clock which is put back grants nothing in addition and makes no caller wait longer than
// the limiter takes to be full, and that one which is put forward grants no more than if that time had passed.
func checkClock(ctx context.Context, s Key) error {
	if s.StepClock == nil {
		return ErrSkipped
	}
	for _, step := range []time.Duration{time.Millisecond, s.Rate.Interval / 2, time.Hour, 24 * time.Hour} {
		step = step.Truncate(time.Millisecond)
		c := s.caller(ctx)
		_, full, err := c.exhaust()
		if err != nil {
			return err
		}
		time.Sleep(full.Wait) // so that something is in use and something is not
		before := c.granted()
		s.StepClock(-step)
		// Whatever the clock says, no more is granted than real time allows.
		most := 4*full.Reset + 4*c.Rate.Interval
		for end := c.now() + most; c.now() < end; {
			r, err := c.allow(1)
			if err != nil {
				return err
			}
			if !r.Granted {
				if r.Wait > most {
					return fmt.Errorf("put back by %v, a caller is told to wait %v", step, r.Wait)
				}
				time.Sleep(min(r.Wait, c.round(c.each()/2)))
			}
		}
		if err := c.withinBound(); err != nil {
			return fmt.Errorf("put back by %v: %w", step, err)
		}
		if got, least := c.granted()-before, c.owed(most-full.Reset-c.Rate.Interval)-c.Rate.Permits; got < least {
			return fmt.Errorf("put back by %v: %d permits granted in %v; at least %d are due", step, got, most, least)
		}
		// Now forward: for the limiter that time has passed.
		c.grants = nil
		if _, _, err = c.exhaust(); err != nil {
			return err
		}
		s.StepClock(step)
		if _, _, err = c.exhaust(); err != nil {
			return err
		}
		if got, most := c.granted(), c.Bound(step+c.Resolution, 1); got > most {
			return fmt.Errorf("put forward by %v: %d permits granted; the bound is %d", step, got, most)
		}
	}
	return nil
}

// checkDeadlines tests that every key has a TTL, whatever the last call was.
func checkDeadlines(ctx context.Context, s Key) error {
	if s.Deadlines == nil {
		return ErrSkipped
	}
	c := s.caller(ctx)
	look := func(after string, any bool) error {
		keys, err := s.Deadlines(ctx)
		if err != nil {
			return err
		}
		if any != (len(keys) > 0) {
			return fmt.Errorf("%s there are %d keys", after, len(keys))
		}
		for key, ttl := range keys {
			if ttl <= 0 {
				return fmt.Errorf("%s the key %q has no TTL", after, key)
			}
		}
		return nil
	}
	if _, err := c.l.Peek(ctx, 1); err != nil {
		return err
	}
	if err := look("after a peek", false); err != nil {
		return err
	}
	for range 3 {
		if _, err := c.allow(1); err != nil {
			return err
		}
		if err := look("after a grant", true); err != nil {
			return err
		}
		if _, _, err := c.exhaust(); err != nil {
			return err
		}
		if err := look("after a rejection", true); err != nil {
			return err
		}
		time.Sleep(c.Rate.Interval)
	}
	return nil
}

// checkLostReply tests that a call whose reply was lost takes its permits once.
func checkLostReply(ctx context.Context, s Key) error {
	if s.LoseReply == nil {
		return ErrSkipped
	}
	n := min(2, s.Largest)
	c := s.caller(ctx)
	s.LoseReply()
	if r, err := c.allow(n); err != nil || !r.Granted {
		return fmt.Errorf("the reply of the first call was lost: %+v, %v", r, err)
	}
	took := c.now()
	got, _, err := c.exhaust()
	if err != nil {
		return err
	}
	twin := s.caller(ctx)
	if _, err := twin.allow(n); err != nil {
		return err
	}
	time.Sleep(took)
	want, _, err := twin.exhaust()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("after a grant of %d whose reply was lost %d were left, without the loss %d", n, got, want)
	}
	return nil
}

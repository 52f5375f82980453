// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"context"
	"fmt"
	"time"
)

// checkClock tests that a clock which is put back grants nothing in addition and makes no caller wait longer than
// the limiter takes to be full, and that one which is put forward grants no more than if that time had passed.
func checkClock(ctx context.Context, s Key) {
	if s.StepClock == nil {
		must(ErrSkipped)
	}
	for _, step := range []time.Duration{time.Millisecond, s.Rate.Interval / 2, time.Hour, 24 * time.Hour} {
		step = step.Truncate(time.Millisecond)
		back := fmt.Sprintf("put back by %v", step)
		c := s.caller(ctx)
		_, full := c.exhaust()
		time.Sleep(full.Wait) // so that something is in use and something is not
		before := c.granted()
		s.StepClock(-step)
		// Whatever the clock says, no more is granted than real time allows.
		most := 4*full.Reset + 4*c.Rate.Interval
		for end := c.now() + most; c.now() < end; {
			if r := c.allow(1); r.Wait > most {
				fail("%s, a caller is told to wait %v", back, r.Wait)
			} else if !r.Granted {
				time.Sleep(min(r.Wait, c.round(c.each()/2)))
			}
		}
		c.withinBound(back)
		if got, least := c.granted()-before, c.owed(most-full.Reset-c.Rate.Interval)-c.Rate.Permits; got < least {
			fail("%s: %d permits granted in %v; at least %d are due", back, got, most, least)
		}
		// Now forward: for the limiter that time has passed.
		c.grants = nil
		c.exhaust()
		s.StepClock(step)
		c.exhaust()
		if got, most := c.granted(), c.Bound(step+c.Resolution, 1); got > most {
			fail("put forward by %v: %d permits granted; the bound is %d", step, got, most)
		}
	}
}

// checkDeadlines tests that every key has a TTL, whatever the last call was.
func checkDeadlines(ctx context.Context, s Key) {
	if s.Deadlines == nil {
		must(ErrSkipped)
	}
	c := s.caller(ctx)
	look := func(after string, any bool) {
		keys, err := s.Deadlines(ctx)
		must(err)
		if any != (len(keys) > 0) {
			fail("%s there are %d keys", after, len(keys))
		}
		for key, ttl := range keys {
			if ttl <= 0 {
				fail("%s the key %q has no TTL", after, key)
			}
		}
	}
	c.peek(1)
	look("after a peek", false)
	for range 3 {
		c.allow(1)
		look("after a grant", true)
		c.exhaust()
		look("after a rejection", true)
		time.Sleep(c.Rate.Interval)
	}
}

// checkLostReply tests that a call whose reply was lost takes its permits once.
func checkLostReply(ctx context.Context, s Key) {
	if s.LoseReply == nil {
		must(ErrSkipped)
	}
	n := min(2, s.Largest)
	c := s.caller(ctx)
	s.LoseReply()
	if r := c.allow(n); !r.Granted {
		fail("the reply of the first call was lost: %+v", r)
	}
	took := c.now()
	got, _ := c.exhaust()
	twin := s.caller(ctx)
	twin.allow(n)
	time.Sleep(took)
	if want, _ := twin.exhaust(); got != want {
		fail("after a grant of %d whose reply was lost %d were left, without the loss %d", n, got, want)
	}
}

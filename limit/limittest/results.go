// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// checkWait tests that a call just before the end of the wait is rejected, and one at its end is granted.
func checkWait(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	rejected := 0
	for range 300 {
		n := 1 + c.random.Int64N(c.Largest)
		r, err := c.allow(n)
		if err != nil {
			return err
		}
		if r.Granted {
			time.Sleep(c.upTo(c.each()))
			continue
		}
		rejected++
		if r.Wait > c.Resolution {
			time.Sleep(r.Wait - c.Resolution)
			early, err := c.allow(n)
			if err != nil {
				return err
			}
			if early.Granted || early.Wait != c.Resolution {
				return fmt.Errorf("%d permits, told to wait %v: just before that the result was %+v", n, r.Wait, early)
			}
			time.Sleep(c.Resolution)
		} else {
			time.Sleep(r.Wait)
		}
		then, err := c.allow(n)
		if err != nil {
			return err
		}
		if !then.Granted {
			return fmt.Errorf("%d permits, told to wait %v: after that the result was %+v", n, r.Wait, then)
		}
	}
	if rejected == 0 {
		return errors.New("nothing was ever rejected")
	}
	return nil
}

// checkRejected tests that a wait does not change, however often the caller is rejected meanwhile.
func checkRejected(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	for range 20 {
		_, r, err := c.exhaust()
		if err != nil {
			return err
		}
		due := c.now() + r.Wait
		for range 50 {
			if err := c.stillRejected(due, r.Available); err != nil {
				return err
			}
		}
		for step := c.round(r.Wait / 40); c.now()+step < due; time.Sleep(step) {
			if err := c.stillRejected(due, r.Available); err != nil {
				return err
			}
		}
		time.Sleep(due - c.now())
		if r, err = c.allow(1); err != nil {
			return err
		}
		if !r.Granted {
			return fmt.Errorf("rejected calls made the wait longer: %+v", r)
		}
	}
	return nil
}

func (c *caller) stillRejected(due time.Duration, remaining int64) error {
	r, err := c.allow(1)
	if err != nil {
		return err
	}
	if r.Granted || r.Available != remaining || c.now()+r.Wait != due {
		return fmt.Errorf("asked again %v before the wait was over: %+v", due-c.now(), r)
	}
	return nil
}

// checkPeek tests that a Peek returns what the call then returns, and changes nothing.
func checkPeek(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	for range 300 {
		n := 1 + c.random.Int64N(c.Largest)
		p, err := c.l.Peek(ctx, n)
		if err != nil {
			return err
		}
		for range 3 {
			q, err := c.l.Peek(ctx, n)
			if err != nil {
				return err
			}
			if p != q {
				return fmt.Errorf("two peeks differ: %+v, %+v", p, q)
			}
		}
		r, err := c.allow(n)
		if err != nil {
			return err
		}
		if p.Granted != r.Granted || p.Wait != r.Wait {
			return fmt.Errorf("a peek for %d said %+v, the call %+v", n, p, r)
		}
		if !r.Granted && p.Available != r.Available || r.Granted && !c.Unbounded && p.Available < n {
			return fmt.Errorf("a peek for %d said %+v, the call %+v", n, p, r)
		}
		time.Sleep(c.upTo(c.Rate.Interval))
	}
	return nil
}

// checkMany tests that several permits are granted together or not at all, and that a call for more than can ever be
// granted is an error.
func checkMany(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	before, err := c.l.Peek(ctx, 1)
	if err != nil {
		return err
	}
	bad := map[int64]error{
		0: ratelimiter.ErrInvalidArgument, -1: ratelimiter.ErrInvalidArgument,
		math.MinInt64: ratelimiter.ErrInvalidArgument, math.MaxInt64: ratelimiter.ErrInvalidArgument,
	}
	if !c.Unbounded {
		bad[c.Largest+1] = ratelimiter.ErrPermitsExceedRate
	}
	for n, want := range bad {
		if r, err := c.l.Allow(ctx, n); !errors.Is(err, want) || r.Granted {
			return fmt.Errorf("%d permits: %+v, %v instead of %v", n, r, err, want)
		}
		if r, err := c.l.Peek(ctx, n); !errors.Is(err, want) || r.Granted {
			return fmt.Errorf("a peek for %d permits: %+v, %v instead of %v", n, r, err, want)
		}
	}
	after, err := c.l.Peek(ctx, 1)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("calls that are errors changed %+v to %+v", before, after)
	}
	for range 100 {
		if _, err := c.allow(1 + c.random.Int64N(c.Largest)); err != nil {
			return err
		}
		before, err := c.l.Peek(ctx, 1)
		if err != nil {
			return err
		}
		if r, err := c.allow(c.Largest); err != nil {
			return err
		} else if r.Granted {
			continue
		}
		// What is left is not enough for that call. It must still be there for one that asks for no more.
		p, err := c.l.Peek(ctx, 1)
		if err != nil {
			return err
		}
		if p != before {
			return fmt.Errorf("a call that was rejected changed %+v to %+v", before, p)
		}
		if p.Available > 0 && !c.Unbounded {
			r, err := c.allow(p.Available)
			if err != nil {
				return err
			}
			if !r.Granted {
				return fmt.Errorf("%d permits remained and were rejected: %+v", p.Available, r)
			}
		}
		time.Sleep(c.upTo(c.Rate.Interval))
	}
	return c.withinBound()
}

// checkReserve tests that the instants from which reserved permits may be used keep the bound, and that no call is
// granted with a longer wait than it allows.
func checkReserve(ctx context.Context, s Key) error {
	c := s.caller(ctx)
	l, ok := c.l.(limit.Reserver)
	if !ok {
		return ErrSkipped
	}
	ahead := 0
	for range c.few(1500) {
		n := 1 + c.random.Int64N(min(3, c.Largest))
		atMost := c.upTo(4 * c.each())
		r, err := l.Reserve(ctx, n, atMost)
		if err != nil {
			return err
		}
		if r.Granted && r.Wait > atMost || !r.Granted && r.Wait <= 0 {
			return fmt.Errorf("Reserve(%d) within %v: %+v", n, atMost, r)
		}
		if r.Granted && r.Wait > 0 {
			ahead++
		}
		c.book(n, r.Wait, r)
		if c.random.IntN(3) == 0 {
			time.Sleep(c.upTo(2 * c.each()))
		}
		if !r.Granted && c.random.IntN(4) == 0 {
			time.Sleep(r.Wait)
			if again, err := l.Reserve(ctx, n, atMost); err != nil || !again.Granted {
				return fmt.Errorf("Reserve(%d) within %v was told to wait %v; after that %+v, %v", n, atMost, r.Wait, again, err)
			} else {
				c.book(n, again.Wait, again)
			}
		}
	}
	return c.withinBound()
}

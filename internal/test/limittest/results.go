// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
)

// checkWait tests that a call just before the end of the wait is rejected, and one at its end is granted.
func checkWait(ctx context.Context, s Key) {
	c := s.caller(ctx)
	rejected := 0
	for range 300 {
		n := 1 + c.random.Int64N(c.Largest)
		r := c.allow(n)
		if r.Granted {
			time.Sleep(c.upTo(c.each()))
			continue
		}
		rejected++
		left := r.Wait
		if r.Wait > c.Resolution {
			time.Sleep(r.Wait - c.Resolution)
			if early := c.allow(n); early.Granted || early.Wait != c.Resolution {
				fail("%d permits, told to wait %v: just before that the result was %+v", n, r.Wait, early)
			}
			left = c.Resolution
		}
		time.Sleep(left)
		if then := c.allow(n); !then.Granted {
			fail("%d permits, told to wait %v: after that the result was %+v", n, r.Wait, then)
		}
	}
	if rejected == 0 {
		fail("nothing was ever rejected")
	}
}

// checkRejected tests that a wait does not change, however often the caller is rejected meanwhile.
func checkRejected(ctx context.Context, s Key) {
	c := s.caller(ctx)
	for range 20 {
		_, first := c.exhaust()
		due := c.now() + first.Wait
		again := func() {
			if r := c.allow(1); r.Granted || r.Available != first.Available || c.now()+r.Wait != due {
				fail("asked again %v before the wait was over: %+v", due-c.now(), r)
			}
		}
		for range 50 {
			again()
		}
		for step := c.round(first.Wait / 40); c.now()+step < due; time.Sleep(step) {
			again()
		}
		time.Sleep(due - c.now())
		if r := c.allow(1); !r.Granted {
			fail("rejected calls made the wait longer: %+v", r)
		}
	}
}

// checkPeek tests that a Peek returns what the call then returns, and changes nothing.
func checkPeek(ctx context.Context, s Key) {
	c := s.caller(ctx)
	for range 300 {
		n := 1 + c.random.Int64N(c.Largest)
		p := c.peek(n)
		for range 3 {
			if q := c.peek(n); p != q {
				fail("two peeks differ: %+v, %+v", p, q)
			}
		}
		r := c.allow(n)
		if p.Granted != r.Granted || p.Wait != r.Wait || !r.Granted && p.Available != r.Available ||
			r.Granted && !c.Unbounded && p.Available < n {
			fail("a peek for %d said %+v, the call %+v", n, p, r)
		}
		time.Sleep(c.upTo(c.Rate.Interval))
	}
}

// checkMany tests that several permits are granted together or not at all, and that a call for more than can ever be
// granted is an error.
func checkMany(ctx context.Context, s Key) {
	c := s.caller(ctx)
	before := c.peek(1)
	bad := map[int64]error{
		0: ratelimiter.ErrInvalidArgument, -1: ratelimiter.ErrInvalidArgument,
		math.MinInt64: ratelimiter.ErrInvalidArgument, math.MaxInt64: ratelimiter.ErrInvalidArgument,
	}
	if !c.Unbounded {
		bad[c.Largest+1] = ratelimiter.ErrPermitsExceedRate
	}
	for n, want := range bad {
		for name, call := range map[string]func(context.Context, int64) (ratelimiter.Result, error){"Allow": c.l.Allow, "Peek": c.l.Peek} {
			if r, err := call(ctx, n); !errors.Is(err, want) || r.Granted {
				fail("%s(%d): %+v, %v instead of %v", name, n, r, err, want)
			}
		}
	}
	if after := c.peek(1); before != after {
		fail("calls that are errors changed %+v to %+v", before, after)
	}
	for range 100 {
		c.allow(1 + c.random.Int64N(c.Largest))
		before := c.peek(1)
		if c.allow(c.Largest).Granted {
			continue
		}
		// What is left is not enough for that call. It must still be there for one that asks for no more.
		p := c.peek(1)
		if p != before {
			fail("a call that was rejected changed %+v to %+v", before, p)
		}
		if p.Available > 0 && !c.Unbounded {
			if r := c.allow(p.Available); !r.Granted {
				fail("%d permits remained and were rejected: %+v", p.Available, r)
			}
		}
		time.Sleep(c.upTo(c.Rate.Interval))
	}
	c.withinBound("many permits a call")
}

// checkReserve tests that the instants from which reserved permits may be used keep the bound, and that no call is
// granted with a longer wait than it allows.
func checkReserve(ctx context.Context, s Key) {
	c := s.caller(ctx)
	l, ok := c.l.(Reserver)
	if !ok {
		must(ErrSkipped)
	}
	reserve := func(n int64, atMost time.Duration) ratelimiter.Result {
		r, err := l.Reserve(ctx, n, atMost)
		must(err)
		c.book(n, r.Wait, r)
		if r.Granted && r.Wait > atMost || !r.Granted && r.Wait <= 0 {
			fail("Reserve(%d) within %v: %+v", n, atMost, r)
		}
		return r
	}
	for _, n := range []int64{0, -1} {
		if r, err := l.Reserve(ctx, n, time.Second); !errors.Is(err, ratelimiter.ErrInvalidArgument) || r.Granted {
			fail("Reserve(%d): %+v, %v instead of %v", n, r, err, ratelimiter.ErrInvalidArgument)
		}
	}
	for range c.few(1500) {
		n := 1 + c.random.Int64N(min(3, c.Largest))
		atMost := c.upTo(4 * c.each())
		r := reserve(n, atMost)
		if c.random.IntN(3) == 0 {
			time.Sleep(c.upTo(2 * c.each()))
		}
		if !r.Granted && c.random.IntN(4) == 0 {
			time.Sleep(r.Wait)
			if again := reserve(n, atMost); !again.Granted {
				fail("Reserve(%d) within %v was told to wait %v; after that %+v", n, atMost, r.Wait, again)
			}
		}
	}
	c.withinBound("reserved")
}

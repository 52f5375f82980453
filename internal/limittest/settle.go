// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A Grant can be settled, as a [limit.Grant] can.
type Grant interface {
	Settle(ctx context.Context, actual int64) error
}

// grant asks for n permits that can be settled. It ends the check with ErrSkipped if the limiter has no such grants.
func (c *caller) grant(n int64) (ratelimiter.Result, Grant) {
	ask := c.AllowGrant
	if ask == nil {
		l, ok := c.l.(interface {
			AllowGrant(ctx context.Context, n int64) (*limit.Grant, ratelimiter.Result, error)
		})
		if !ok {
			must(ErrSkipped)
		}
		ask = func(ctx context.Context, _ limit.Limiter, n int64) (Grant, ratelimiter.Result, error) {
			return l.AllowGrant(ctx, n)
		}
	}
	g, r, err := ask(c.ctx, c.l, n)
	if errors.Is(err, limit.ErrCannotSettle) {
		must(ErrSkipped)
	}
	must(err)
	c.book(n, 0, r)
	return r, g
}

// checkSettle tests that what is given back was not used, that what is taken in addition is paid, and that a grant is
// settled once, also when a reply is lost.
func checkSettle(ctx context.Context, s Key) {
	s.caller(ctx).cancels()
	s.caller(ctx).settlesLess()
	s.caller(ctx).settlesMore()
}

// cancels tests that a grant that is cancelled at once leaves no trace, and is cancelled once.
func (c *caller) cancels() {
	c.allow(min(2, c.Largest))
	for lost := range 2 {
		if lost == 1 && c.LoseReply == nil {
			break
		}
		time.Sleep(c.Rate.Interval)
		before := c.peek(1)
		for range 10 {
			r, g := c.grant(min(3, c.Largest, before.Available))
			if !r.Granted {
				fail("what is available was rejected: %+v", r)
			}
			if lost == 1 {
				c.LoseReply()
			}
			at := c.now()
			must(g.Settle(c.ctx, 0))
			if err := g.Settle(c.ctx, 0); !errors.Is(err, ratelimiter.ErrSettled) {
				fail("settled again: %v", err)
			}
			if after := c.peek(1); c.now() == at && after.Available != before.Available || after.Available < before.Available {
				fail("before a grant that was cancelled: %+v, after it: %+v", before, after)
			}
		}
	}
}

// settlesLess tests that the permits that were used keep the bound, however late a grant is settled.
func (c *caller) settlesLess() {
	type open struct {
		g Grant
		i int // in c.grants
	}
	var list []open
	for range c.few(1500) {
		r, g := c.grant(1 + c.random.Int64N(c.Largest))
		if r.Granted {
			list = append(list, open{g, len(c.grants) - 1})
		}
		switch c.random.IntN(6) {
		case 0:
			time.Sleep(c.upTo(r.Reset))
		case 1:
			time.Sleep(r.Reset)
		case 2:
			time.Sleep(c.upTo(c.Rate.Interval))
		}
		if len(list) > 0 && c.random.IntN(3) > 0 {
			i := c.random.IntN(len(list))
			used := &c.grants[list[i].i].n
			*used = c.random.Int64N(*used + 1)
			must(list[i].g.Settle(c.ctx, *used))
			list = slices.Delete(list, i, i+1)
		}
	}
	c.withinBound("settled late")
}

// settlesMore tests that nobody is granted anything until what was taken in addition is paid.
func (c *caller) settlesMore() {
	// Nobody waits for less than the resolution, so what comes in within it is there already.
	early := int64(c.Resolution) * c.Rate.Permits / int64(c.Rate.Interval)
	if early > 0 {
		early++
	}
	for range c.few(100) {
		r, g := c.grant(1)
		for !r.Granted {
			time.Sleep(r.Wait)
			r, g = c.grant(1)
		}
		before := c.peek(1)
		more := before.Available + early + c.random.Int64N(c.Largest)
		must(g.Settle(c.ctx, 1+more))
		if r = c.allow(1); r.Granted || r.Available != 0 {
			fail("of %d available permits %d were taken by Settle, and after that %+v", before.Available, more, r)
		}
		time.Sleep(r.Wait - c.Resolution)
		if r = c.allow(1); r.Granted {
			fail("granted before what is owed was paid: %+v", r)
		}
		time.Sleep(c.Resolution)
		if r = c.allow(1); !r.Granted {
			fail("rejected although what is owed is paid: %+v", r)
		}
		time.Sleep(c.upTo(r.Reset))
	}
}

// SPDX-License-Identifier: Apache-2.0

package limittest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A Grant can be settled, as a [limit.Grant] can.
type Grant interface {
	Settle(ctx context.Context, actual int64) error
}

// grant asks for n permits that can be settled. Its error is ErrSkipped if the limiter has no such grants.
func (c *caller) grant(n int64) (limit.Result, Grant, error) {
	ask := c.AllowGrant
	if ask == nil {
		l, ok := c.l.(interface {
			AllowGrant(ctx context.Context, n int64) (limit.Result, *limit.Grant, error)
		})
		if !ok {
			return limit.Result{}, nil, ErrSkipped
		}
		ask = func(ctx context.Context, _ limit.Limiter, n int64) (limit.Result, Grant, error) {
			return l.AllowGrant(ctx, n)
		}
	}
	r, g, err := ask(c.ctx, c.l, n)
	if errors.Is(err, limit.ErrCannotSettle) {
		return r, nil, ErrSkipped
	}
	if err != nil {
		return r, nil, fmt.Errorf("AllowGrant(%d) at %v: %w", n, c.now(), err)
	}
	c.book(n, 0, r)
	return r, g, nil
}

// checkSettle tests that what is given back was not used, that what is taken in addition is paid, and that a grant is
// settled once, also when a reply is lost.
func checkSettle(ctx context.Context, s Key) error {
	if err := s.caller(ctx).cancels(); err != nil {
		return err
	}
	if err := s.caller(ctx).settlesLess(); err != nil {
		return err
	}
	return s.caller(ctx).settlesMore()
}

// cancels tests that a grant that is cancelled at once leaves no trace, and is cancelled once.
func (c *caller) cancels() error {
	n := min(3, c.Largest)
	if _, err := c.allow(min(2, c.Largest)); err != nil {
		return err
	}
	for lost := range 2 {
		if lost == 1 && c.LoseReply == nil {
			break
		}
		time.Sleep(c.Rate.Interval)
		before, err := c.l.Peek(c.ctx, 1)
		if err != nil {
			return err
		}
		for range 10 {
			r, g, err := c.grant(min(n, before.Available))
			if err != nil || !r.Granted {
				return fmt.Errorf("%+v, %w", r, err)
			}
			if lost == 1 {
				c.LoseReply()
			}
			at := c.now()
			if err := g.Settle(c.ctx, 0); err != nil {
				return err
			}
			if err := g.Settle(c.ctx, 0); !errors.Is(err, ratelimiter.ErrSettled) {
				return fmt.Errorf("settled again: %w", err)
			}
			after, err := c.l.Peek(c.ctx, 1)
			if err != nil {
				return err
			}
			if c.now() == at && after.Available != before.Available || after.Available < before.Available {
				return fmt.Errorf("before a grant that was cancelled: %+v, after it: %+v", before, after)
			}
		}
	}
	return nil
}

// settlesLess tests that the permits that were used keep the bound, however late a grant is settled.
func (c *caller) settlesLess() error {
	type open struct {
		g Grant
		i int // in c.grants
	}
	var list []open
	for range c.few(1500) {
		n := 1 + c.random.Int64N(c.Largest)
		r, g, err := c.grant(n)
		if err != nil {
			return err
		}
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
			if err := list[i].g.Settle(c.ctx, *used); err != nil {
				return err
			}
			list = slices.Delete(list, i, i+1)
		}
	}
	return c.withinBound()
}

// settlesMore tests that nobody is granted anything until what was taken in addition is paid.
func (c *caller) settlesMore() error {
	for range c.few(100) {
		r, g, err := c.grant(1)
		if err != nil {
			return err
		}
		for !r.Granted {
			time.Sleep(r.Wait)
			if r, g, err = c.grant(1); err != nil {
				return err
			}
		}
		before, err := c.l.Peek(c.ctx, 1)
		if err != nil {
			return err
		}
		more := before.Available + c.random.Int64N(c.Largest)
		if err := g.Settle(c.ctx, 1+more); err != nil {
			return err
		}
		if r, err = c.allow(1); err != nil {
			return err
		}
		if r.Granted || r.Available != 0 {
			return fmt.Errorf("of %d available permits %d were taken by Settle, and after that %+v", before.Available, more, r)
		}
		time.Sleep(r.Wait - c.Resolution)
		if r, err = c.allow(1); err != nil || r.Granted {
			return fmt.Errorf("granted before what is owed was paid: %+v, %w", r, err)
		}
		time.Sleep(c.Resolution)
		if r, err = c.allow(1); err != nil || !r.Granted {
			return fmt.Errorf("rejected although what was owed is paid: %+v, %w", r, err)
		}
		time.Sleep(c.upTo(r.Reset))
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/http/rates"
)

// settleDelay is how long settling may hold up the caller at the end of a body.
const settleDelay = time.Second

// A settlement is the share of a limit with Settle in a demand.
type settlement struct {
	permits int64
	most    int64 // that can be meant
	settle  func(*http.Response) int64
}

// settles reports whether a limit of the plan is settled.
func (p *plan) settles() bool {
	return slices.ContainsFunc(p.demands, func(d demand) bool { return len(d.settlements) > 0 })
}

// mostIntervals is how many intervals of a rate one settlement may take. What is more is a platform's mistake, or a lie: in
// a quota of 30,000 tokens a minute, 2^32-1 of them would leave nothing for 2,386 hours.
const mostIntervals = 100

// mostSettled returns the most permits to which a limit's Settle may settle a request that spent permits at first.
func (l *Limit) mostSettled(permits int64) int64 {
	if l.Rate.Permits == 0 { // the rate is set elsewhere
		return rates.MaxPermits
	}
	return min(mostIntervals*max(l.Rate.Permits, permits), rates.MaxPermits)
}

// The reasons of EventUnsettled that are not those of Redis or of the body.
var (
	errNoResponse = errors.New("there is no response")
	errHandedOver = errors.New("the connection was handed over, and has no end")
	errNotRead    = errors.New("the body was not read to its end")
	errNoNumber   = errors.New("Limit.Settle did not find it in the response")
)

// settleAtEnd has the permits settled when the caller has read the body, or closes it.
func (c *roundTrip) settleAtEnd(a *answer) {
	if !c.holdsGrants() {
		return
	}
	resp := a.response
	b := c.settledBody(a)
	switch _, handedOver := resp.Body.(io.Writer); {
	case resp.Body == nil || resp.Body == http.NoBody:
		b.end(io.EOF)
	case handedOver: // as with 101
		c.unsettled(errHandedOver)
	default:
		b.source = resp.Body
		resp.Body = b
	}
}

// settleThrottled settles the permits of an attempt that is made again. All of its body has been read ahead.
func (c *roundTrip) settleThrottled(a *answer) {
	if !c.holdsGrants() {
		return
	}
	b := c.settledBody(a)
	if a.body != nil {
		b.feed(a.body.buf)
	}
	b.end(io.EOF)
	c.grants, c.quotaGrants = nil, nil
}

// holdsGrants reports whether anything is to be settled.
func (c *roundTrip) holdsGrants() bool { return len(c.grants)+len(c.quotaGrants) > 0 }

// giveBack returns what the limits with Settle took for a request that is not sent now.
func (c *roundTrip) giveBack() {
	c.settle(func(int, int) (int64, error) { return 0, nil })
	c.grants, c.quotaGrants = nil, nil
}

// unsettled tells that the permits of all limits with Settle stay what they are, because of err.
func (c *roundTrip) unsettled(err error) {
	c.settle(func(int, int) (int64, error) { return 0, err })
}

func unknown(err error) error { return fmt.Errorf("httplimit: what was used is not known: %w", err) }

// settle settles each grant. For each limit's part, the ith of demand k, actual returns how many permits were used;
// a part with an error stays as it is.
func (c *roundTrip) settle(actual func(k, i int) (int64, error)) {
	if !c.holdsGrants() {
		return
	}
	ctx, cancel := c.context(settleDelay)
	defer cancel()
	tell := func(d *demand, err error) {
		e := c.event
		e.Kind, e.Limiter, e.Err = EventUnsettled, d.name, err
		c.t.emit(e)
	}
	for _, g := range c.quotaGrants {
		if g.settlement < 0 { // it is given back
			_ = g.grant.Cancel(ctx) // what cannot be given back stays taken
			continue
		}
		d := &c.plan.demands[g.demand]
		n, err := actual(g.demand, g.settlement)
		if err != nil && d.alone { // otherwise the rate's says so
			tell(d, unknown(err))
		} else if err == nil {
			if err := g.grant.Settle(ctx, n); err != nil {
				tell(d, err)
			}
		}
	}
	for _, g := range c.grants {
		k := c.plan.index(g.Limiter().Name())
		if k < 0 || len(c.plan.demands[k].settlements) == 0 {
			continue
		}
		d := &c.plan.demands[k]
		sum := d.permits
		for i, s := range d.settlements {
			if n, err := actual(k, i); err != nil {
				tell(d, unknown(err))
			} else {
				sum += n - s.permits
			}
		}
		if err := g.Settle(ctx, sum); err != nil {
			tell(d, err)
		}
	}
}

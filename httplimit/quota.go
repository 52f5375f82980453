// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A quotaDemand is a number of permits that a request takes of the Quota of a Limit.
type quotaDemand struct {
	limit   *Limit
	name    string
	permits int64

	demand, settlement int  // which of the plan settles it; -1 for none
	gives              bool // its grants can be given back
}

// A quotaGrant is what a quota granted to a request, to be settled.
type quotaGrant struct {
	*quotaDemand
	grant *limit.Grant
}

// A granter is a quota whose grants can be settled.
type granter interface {
	AllowGrant(ctx context.Context, n int64) (*limit.Grant, ratelimiter.Result, error)
}

// alone reports whether l is a quota and nothing else.
func (l *Limit) alone() bool { return l.Quota != nil && l.Rate == (ratelimiter.Rate{}) }

// quotaDemand returns what a request demands of the quota of l. Its limiter is demand k of the plan, or a new one if k < 0.
func (p *plan) quotaDemand(l *Limit, gives bool, name string, permits int64, k int) quotaDemand {
	q := quotaDemand{l, name, permits, k, -1, gives}
	if l.Settle == nil {
		return q
	}
	if q.settlement = 0; k < 0 {
		q.demand = len(p.demands)
	} else {
		q.settlement = len(p.demands[k].settlements)
	}
	return q
}

// checkAlone returns an error for each limit that needs a Client.
func checkAlone(rules []Rule) error {
	var list []error
	for i, r := range rules {
		for j, l := range r.Limits {
			if !l.alone() {
				problems{fmt.Sprintf("rules[%d].limits[%d]", i, j), &list}.add("", "the client is nil, and this is not a quota alone")
			}
		}
	}
	return errors.Join(list...)
}

// checkQuota checks the quota of a limit.
func checkQuota(l *Limit, p problems) {
	if l.Quota == nil {
		return
	}
	if err, ok := l.Quota.(error); ok { // of the profile that made it
		p.add("quota", "%v", err)
		return
	}
	if v := reflect.ValueOf(l.Quota); v.Kind() == reflect.Pointer && v.IsNil() {
		p.add("quota", "it is a nil %T", l.Quota)
		return
	}
	if l.alone() && l.LeaveFree > 0 {
		p.add("leave_free", "%d of a quota alone, which has no others to leave permits to", l.LeaveFree)
	}
	of, known := l.Quota.(interface{ Algorithm() limit.Algorithm })
	if known && of.Algorithm() == nil {
		p.add("quota", "the %T is not one that its function returned", l.Quota)
		return
	}
	if known && l.Weight > limit.MaxPerCall(of.Algorithm()) {
		p.add("weight", "%d is more than the %d permits that the quota grants a request", l.Weight, limit.MaxPerCall(of.Algorithm()))
	}
	if l.Settle == nil {
		return
	}
	if !givesBack(l.Quota) {
		p.add("settle", "the grants of this quota, a %T, cannot be settled", l.Quota)
	}
}

// givesBack reports whether the grants of a quota can be settled.
func givesBack(quota limit.Limiter) bool {
	g, ok := quota.(granter)
	if !ok {
		return false
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel() // so that nothing is taken, and nothing sent
	_, _, err := g.AllowGrant(ended, 1)
	return !errors.Is(err, limit.ErrCannotSettle)
}

// quotaWait returns the name of the quota that takes longest to grant the request, and how long that takes; 0 if all
// grant it now. A quota that returns an error is asked later.
func (c *roundTrip) quotaWait(ctx context.Context) (name string, wait time.Duration) {
	for _, q := range c.plan.quotas {
		r, err := c.askQuota(func() (ratelimiter.Result, error) { return q.limit.Quota.Peek(ctx, q.permits) })
		if err == nil && !r.Granted && r.Wait > wait {
			name, wait = q.name, r.Wait
		}
	}
	return name, wait
}

// takeQuotas takes the permits of the quotas. It returns the name of the one that did not grant them, with the wait or the error.
func (c *roundTrip) takeQuotas(ctx context.Context) (name string, wait time.Duration, err error) {
	c.quotaGrants, c.quotaKept = nil, false
	for i := range c.plan.quotas {
		q := &c.plan.quotas[i]
		r, err := c.askQuota(func() (r ratelimiter.Result, err error) {
			if !q.gives {
				r, err = q.limit.Quota.Allow(ctx, q.permits)
				c.quotaKept = c.quotaKept || r.Granted
				return r, err
			}
			var g *limit.Grant
			if g, r, err = q.limit.Quota.(granter).AllowGrant(ctx, q.permits); g != nil {
				c.quotaGrants = append(c.quotaGrants, quotaGrant{q, g})
			}
			return r, err
		})
		policy := c.t.client.OutagePolicy()
		if q.limit.OutagePolicy != nil {
			policy = *q.limit.OutagePolicy
		}
		switch {
		case err != nil && policy == ratelimiter.FailOpen() && !errors.Is(err, ratelimiter.ErrOverloaded):
		case err != nil || !r.Granted:
			return q.name, r.Wait, err
		}
	}
	c.quotaGrants = slices.DeleteFunc(c.quotaGrants, func(g quotaGrant) bool { return g.settlement < 0 })
	return "", 0, nil
}

// comesBack reports whether giveBack gives back all that was taken.
func (c *roundTrip) comesBack() bool {
	return !c.quotaKept && !slices.ContainsFunc(c.plan.demands, func(d demand) bool { return !d.alone && len(d.settlements) == 0 })
}

func (c *roundTrip) askQuota(ask func() (ratelimiter.Result, error)) (r ratelimiter.Result, err error) {
	if p := c.t.contain(&c.event, "Limit.Quota", func() { r, err = ask() }); p != nil {
		return ratelimiter.Result{}, p
	}
	return r, err
}

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
	if of, known := l.Quota.(withAlgorithm); known && of.Algorithm() == nil {
		p.add("quota", "the %T is not one that its function returned", l.Quota)
		return
	}
	if most, known := mostOf(l.Quota); known && l.Weight > most {
		p.add("weight", "%d is more than the %d permits that the quota grants a request", l.Weight, most)
	}
	if l.Settle == nil {
		return
	}
	if !givesBack(l.Quota) {
		p.add("settle", "the grants of this quota, a %T, cannot be settled", l.Quota)
	}
}

// A withAlgorithm is a quota that tells its algorithm, such as a [limit.Shared] or a [limit.Local].
type withAlgorithm interface{ Algorithm() limit.Algorithm }

// mostOf returns the most permits that a quota can grant a request. They are not known of a limit.Limiter of another package that has no
// algorithm.
func mostOf(quota limit.Limiter) (most int64, known bool) {
	if of, ok := quota.(withAlgorithm); ok {
		most = limit.MaxPerCall(of.Algorithm())
	}
	return most, most > 0
}

// same reports whether two quotas are one.
func same(a, b limit.Limiter) bool {
	return a != nil && reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// checkQuotaSum is checkSum for those before the last limit that have the same quota. A limit that requests may do without does not count.
// The names are those of the limits.
func checkQuotaSum(limits []Limit, names []template, p problems) {
	last := &limits[len(limits)-1]
	counts := func(i int) bool {
		l := &limits[i]
		return same(l.Quota, last.Quota) && l.Key == nil && names[i].constant() && l.WeightFunc == nil
	}
	most, _ := mostOf(last.Quota)
	checkTogether(limits, counts, most, "the quota", "it grants a request", p)
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
// grant it now. If one can never grant what the request takes of it, quotaWait returns its name and
// ratelimiter.ErrPermitsExceedRate, whatever the policy. A quota that returns another error is asked later.
func (c *roundTrip) quotaWait(ctx context.Context) (name string, wait time.Duration, err error) {
	for i, q := range c.plan.quotas {
		var sum, most int64
		r, err := c.askQuota(func() (r ratelimiter.Result, err error) {
			sum, most = c.plan.together(i)
			return q.limit.Quota.Peek(ctx, q.permits)
		})
		switch {
		case errors.Is(err, ratelimiter.ErrPermitsExceedRate):
			return q.name, 0, err
		case err != nil:
		case sum > most:
			return q.name, 0, fmt.Errorf("%w: the limits of the request take %d permits together of one quota, which grants a request at most %d",
				ratelimiter.ErrPermitsExceedRate, sum, most)
		case !r.Granted && r.Wait > wait:
			name, wait = q.name, r.Wait
		}
	}
	return name, wait, nil
}

// together returns how many permits quotas[:i+1] take of the last one's quota, and the most that it can grant a request. Both are 0 if
// there is no other, whose permits are left to the quota itself, or if the most is not known.
func (p *plan) together(i int) (sum, most int64) {
	last, others := &p.quotas[i], 0
	for j := range p.quotas[:i] {
		if q := &p.quotas[j]; same(q.limit.Quota, last.limit.Quota) {
			sum += q.permits
			others++
		}
	}
	if others == 0 {
		return 0, 0
	}
	most, known := mostOf(last.limit.Quota)
	if !known {
		return 0, 0
	}
	return sum + last.permits, most
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

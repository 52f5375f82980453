// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A quotaDemand is a number of permits that a request takes of the Quota of a Limit.
type quotaDemand struct {
	limit   *Limit
	name    string
	permits int64
}

// quotaWait returns the name of the quota that takes longest to grant the request, and how long that takes; 0 if all
// grant it now. A quota that returns an error is asked later.
func (c *call) quotaWait(ctx context.Context) (name string, wait time.Duration) {
	for _, q := range c.plan.quotas {
		r, err := c.askQuota(func() (limit.Result, error) { return q.limit.Quota.Peek(ctx, q.permits) })
		if err == nil && !r.Granted && r.Wait > wait {
			name, wait = q.name, r.Wait
		}
	}
	return name, wait
}

// takeQuotas takes the permits of the quotas. It returns the name of the one that did not grant them, with the wait or the error.
func (c *call) takeQuotas(ctx context.Context) (name string, wait time.Duration, err error) {
	for _, q := range c.plan.quotas {
		r, err := c.askQuota(func() (limit.Result, error) { return q.limit.Quota.Allow(ctx, q.permits) })
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
	return "", 0, nil
}

func (c *call) askQuota(ask func() (limit.Result, error)) (r limit.Result, err error) {
	if p := c.t.contain(&c.event, "Limit.Quota", func() { r, err = ask() }); p != nil {
		return limit.Result{}, p
	}
	return r, err
}

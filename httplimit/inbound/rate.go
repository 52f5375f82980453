// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// ErrRateDiffers says that a limiter in Redis has another rate than the Middleware was made with. The function of
// [WithFailures] gets it once for each such rate. By default the Middleware has then set its own rate, or another
// server has set one later, which this Middleware now obeys. With [WithStoredRates] the rate in Redis counts.
var ErrRateDiffers = errors.New("inbound: the limiter has another rate")

// maxTold is how many reported rates a Middleware remembers.
const maxTold = 64

// A difference is a rate that has been reported to the function of WithFailures; it is zero if the rate is not known.
type difference struct {
	rule *rule
	is   ratelimiter.Rate
}

// compareRate reports to the function of WithFailures if the limiter that was asked has another rate than its rule.
func (m *Middleware) compareRate(r *http.Request, p *part) {
	is, want := p.result.Rate, p.rule.Rate
	switch {
	case p.rule.LimiterFor != nil || p.result.Degraded:
	case !m.cfg.keepsStored():
		m.followRate(r, p)
	case errors.Is(p.err, ratelimiter.ErrPermitsExceedRate) && p.weight <= want.Permits:
		m.tellRate(r, p.rule, p.name, ratelimiter.Rate{}, p.err.Error())
	case is.Permits > 0:
		if p.rule.differs(is, want) {
			m.tellRate(r, p.rule, p.name, is, "it is "+is.String())
		}
	}
}

// differs reports whether the rate of a limiter is different from want.
func (r *rule) differs(is, want ratelimiter.Rate) bool {
	if r.anyKeepAlive {
		want.KeepAlive = is.KeepAlive
	}
	return is != want
}

// tellRate reports that a limiter has the rate is, unless it did so before.
func (m *Middleware) tellRate(r *http.Request, of *rule, name string, is ratelimiter.Rate, what string) {
	m.mu.Lock()
	d := difference{of, is}
	known := m.told[d] || len(m.told) >= maxTold
	if !known {
		if m.told == nil {
			m.told = map[difference]bool{}
		}
		m.told[d] = true
	}
	m.mu.Unlock()
	if !known {
		m.fail(r, rateError(of, name, what+"; SetRate changes it"))
	}
}

func rateError(of *rule, name, what string) error {
	return fmt.Errorf("%w: limiter %q: %s (the middleware was made with %v)", ErrRateDiffers, name, what, of.Rate)
}

// rateOf returns the rate that the header fields have for a limiter of Rule.LimiterFor.
func (r *rule) rateOf(l limit.Limiter) ratelimiter.Rate {
	if r.Rate != (ratelimiter.Rate{}) {
		return r.Rate
	}
	own, ok := l.(interface{ Algorithm() limit.Algorithm })
	if !ok {
		return ratelimiter.Rate{}
	}
	switch a := own.Algorithm().(type) {
	case limit.FixedWindow:
		return a.Rate
	case limit.SlidingLog:
		return a.Rate
	case limit.SlidingCounter:
		return a.Rate
	case limit.IntervalBucket:
		return a.Rate
	case limit.TokenBucket:
		return a.Rate
	case limit.DebtBucket:
		return a.Rate
	case limit.GCRA:
		return a.Rate
	case limit.LeakyQueue:
		return a.Rate
	case limit.CalendarQuota:
		return ratelimiter.Rate{Permits: a.Permits} // the window depends on the month
	}
	return ratelimiter.Rate{}
}

package inbound

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/goredisson/ratelimiter"
)

// ErrRateDiffers says that a limiter in Redis has another rate than the Middleware was made with, and that the one
// in Redis counts. A new number in a program changes nothing until somebody sets it there, with SetRate or by
// deleting the limiter. The function of [WithFailures] is told of it once for each such rate.
var ErrRateDiffers = errors.New("inbound: the limiter has another rate")

// maxTold bounds how many rates a Middleware remembers to have told of.
const maxTold = 64

// A difference is a rate that the function of WithFailures is told of once, zero where it is not known.
type difference struct {
	rule *rule
	is   ratelimiter.Rate
}

// compareRate tells the function of WithFailures when a limiter that was asked for so many permits goes by another rate than
// its rule.
func (m *Middleware) compareRate(r *http.Request, p *part, weight int64) {
	is, want := p.result.Rate, p.rule.Rate
	switch {
	case p.rule.Limiter != nil || p.result.Degraded:
	case errors.Is(p.err, ratelimiter.ErrPermitsExceedRate) && weight <= want.Permits:
		m.tellRate(r, p, ratelimiter.Rate{}, p.err.Error())
	case is.Permits > 0:
		if p.rule.anyKeepAlive {
			want.KeepAlive = is.KeepAlive
		}
		if is != want {
			m.tellRate(r, p, is, "it is "+is.String())
		}
	}
}

// tellRate tells that the limiter has the rate is, unless that was told before.
func (m *Middleware) tellRate(r *http.Request, p *part, is ratelimiter.Rate, what string) {
	m.mu.Lock()
	d := difference{p.rule, is}
	known := m.told[d] || len(m.told) >= maxTold
	if !known {
		if m.told == nil {
			m.told = map[difference]bool{}
		}
		m.told[d] = true
	}
	m.mu.Unlock()
	if !known {
		m.fail(r, fmt.Errorf("%w: limiter %q: %s, and the middleware was made with %v; SetRate changes it", ErrRateDiffers, p.name, what, p.rule.Rate))
	}
}

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

// compareRate tells the function of WithFailures when the limiter goes by another rate than the Middleware's.
func (m *Middleware) compareRate(r *http.Request, name string, is ratelimiter.Rate) {
	want := m.rate
	if m.anyKeepAlive {
		want.KeepAlive = is.KeepAlive
	}
	if is != want {
		m.tellRate(r, name, is, "it is "+is.String())
	}
}

// tellRate tells that the limiter has the rate is, which is zero where it is not known, unless that was told before.
func (m *Middleware) tellRate(r *http.Request, name string, is ratelimiter.Rate, what string) {
	m.mu.Lock()
	known := m.told[is] || len(m.told) >= maxTold
	if !known {
		if m.told == nil {
			m.told = map[ratelimiter.Rate]bool{}
		}
		m.told[is] = true
	}
	m.mu.Unlock()
	if !known {
		m.fail(r, fmt.Errorf("%w: limiter %q: %s, and the middleware was made with %v; SetRate changes it", ErrRateDiffers, name, what, m.rate))
	}
}

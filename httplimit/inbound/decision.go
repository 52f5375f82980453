// SPDX-License-Identifier: Apache-2.0

package inbound

import "net/http"

// An Outcome says what became of a request.
type Outcome string

// The outcomes of requests.
const (
	OutcomeUnlimited Outcome = "unlimited" // it takes no permits, and was passed on
	OutcomeGranted   Outcome = "granted"   // it got its permits, and was passed on
	OutcomeRejected  Outcome = "rejected"  // it was rejected with 429
	OutcomeOpen      Outcome = "open"      // Redis did not decide in time, and the outage policy passed it on
	OutcomeClosed    Outcome = "closed"    // Redis did not decide in time, and it was rejected with 503
)

// A Decision is what a Middleware decided about a request; see [WithDecisions].
type Decision struct {
	// Policy is the name of the Middleware. With several rules it is the name of the rule that decided: one that
	// rejects, otherwise the one with the fewest permits left.
	Policy  string
	Outcome Outcome
	// Limiter is the limiter's name in Redis, which may contain the client's address. It is empty for a request that
	// takes no permits.
	Limiter string
	// Degraded reports that Redis was unavailable and the outage policy decided.
	Degraded bool
	// DryRun reports that the request passes whatever the Outcome is: see [WithDryRun].
	DryRun bool
	// Err is why no decision was possible, or why the request can never be granted.
	Err error
}

// Passes reports whether the request is to be served.
func (d Decision) Passes() bool {
	return d.DryRun || d.Outcome != OutcomeRejected && d.Outcome != OutcomeClosed
}

// WithDecisions sets a function that is called once for each request, for metrics and logs, before the request is
// passed on or rejected. It runs in the request's goroutine. The default is none.
func WithDecisions(f func(*http.Request, Decision)) Option {
	return func(c *config) { c.decided = f }
}

// decide calls the function of WithDecisions.
func (m *Middleware) decide(r *http.Request, d Decision) {
	if m.cfg.decided == nil {
		return
	}
	if p := contain("the function of WithDecisions", func() { m.cfg.decided(r, d) }); p != nil {
		m.fail(r, p)
	}
}

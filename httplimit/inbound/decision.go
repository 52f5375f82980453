// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter"
)

// An Outcome says what became of a request. It is [OutcomeUnlimited], [OutcomeGranted], [OutcomeRejected],
// [OutcomeFailedOpen] or [OutcomeFailedClosed].
type Outcome string

// The outcomes of requests.
const (
	OutcomeUnlimited    Outcome = "unlimited" // it takes no permits, and was passed on
	OutcomeGranted      Outcome = "granted"   // it got its permits, and was passed on
	OutcomeRejected     Outcome = "rejected"  // it was rejected with 429
	OutcomeFailedOpen   Outcome = "open"      // Redis did not decide in time, and the outage policy passed it on
	OutcomeFailedClosed Outcome = "closed"    // Redis did not decide in time, and it was rejected with 503
)

// A Decision is what a Middleware decided about a request: what [Middleware.Decide] and [Middleware.DecideRequest] return,
// and what the functions of [WithRejection] and [WithDecisions] get.
type Decision struct {
	// Policy is the name of the Middleware without its braces, as in the field RateLimit-Policy. With several rules it is
	// the name of the rule that decided: of those that reject the one with the longest wait, otherwise the one with the
	// fewest permits left.
	Policy  string
	Outcome Outcome
	// Limiter is the limiter's name in Redis, which may contain the client's address, and more than the client should
	// know. It is empty for a request that takes no permits.
	Limiter string
	// Result is the limiter's reply, with the permits left and the rate. It is zero if the limiter was not asked, or
	// did not reply. With several rules it is that of Policy.
	Result ratelimiter.Result
	// RetryAfter is after what time the request may come again, in whole seconds. It is 0 if that is now or never.
	RetryAfter time.Duration
	// Degraded reports that Redis was unavailable and the outage policy decided.
	Degraded bool
	// DryRun reports that the request passes whatever the Outcome is: see [WithDryRun].
	DryRun bool
	// Err is why no decision was possible, or why the request can never be granted: it asks for more permits than there
	// are, or its weight is not known.
	Err error

	parts  []part
	fields *config // nil for none
}

// Passes reports whether the request is to be served.
func (d Decision) Passes() bool {
	return d.DryRun || d.Outcome != OutcomeRejected && d.Outcome != OutcomeFailedClosed
}

// Status returns the status of the response to a request that does not pass: 429, or 503 if no decision was possible. For one
// that passes it is 0.
func (d Decision) Status() int {
	switch {
	case d.Passes():
		return 0
	case d.Outcome == OutcomeFailedClosed:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// WithDecisions sets a function that is called once for each request, for metrics and logs, before the request is
// passed on or rejected. It runs in the request's goroutine. The default is none.
func WithDecisions(f func(*http.Request, Decision)) Option {
	return func(c *config) { c.decided = f }
}

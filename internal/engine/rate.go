// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// Recheck returns how long callers that wait for a limiter of that rate sleep at most before they ask again.
func (e *Engine) Recheck(r permit.Rate) time.Duration { return min(e.cfg.Recheck, RenewEvery(r)) }

// leastRenewal is how often a limiter is renewed at most, if its permits come back less often than that. A KeepAlive of less
// than twice as long, which only others can set, is too short to be kept up by calls that are late at times.
const leastRenewal = 10 * time.Millisecond

// RenewEvery returns how often callers that wait for a limiter of that rate have to ask for it. Each call renews its
// KeepAlive, so that it does not expire while they wait. Half of it leaves time for a call that is late.
func RenewEvery(r permit.Rate) time.Duration {
	if r.KeepAlive <= 0 {
		return link.MaxInterval
	}
	return max(r.KeepAlive/2, min(r.Interval/2, leastRenewal), time.Millisecond)
}

// lowerYield is how much later than its permits are free the queue of a lower class asks for them, so that callers of the
// others, who wait for the same instant, come first.
const lowerYield = 10 * time.Millisecond

func (l *limiter) yield(r permit.Rate) time.Duration {
	if l.link.Floor == 0 {
		return 0
	}
	return min(lowerYield, r.Interval/10)
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// Recheck returns the longest time that callers sleep before they ask again, when they wait for a limiter of that
// rate.
func (e *Engine) Recheck(r permit.Rate) time.Duration { return min(e.cfg.Recheck, RenewEvery(r)) }

// noteFor returns for how long it counts what a call has noted of those that wait: until the second call after it is overdue.
func (e *Engine) noteFor(r permit.Rate) time.Duration {
	return 2*min(e.Recheck(r), time.Hour) + 2*time.Second
}

// leastRenewal is the shortest time between two renewals of a limiter whose permits do not expire more often. A
// KeepAlive of less than twice as long, which only other programs can set, is too short to be kept up by calls that
// are sometimes late.
const leastRenewal = 10 * time.Millisecond

// RenewEvery returns how often waiting callers have to ask for a limiter of that rate. Each call renews its
// KeepAlive, so the limiter does not expire while they wait. RenewEvery uses half of the KeepAlive, which leaves time
// for a late call.
func RenewEvery(r permit.Rate) time.Duration {
	if r.KeepAlive <= 0 {
		return link.MaxInterval
	}
	return max(r.KeepAlive/2, min(r.Interval/2, leastRenewal), time.Millisecond)
}

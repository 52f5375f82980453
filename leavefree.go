// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// LeaveFree returns a handle of the same limiter for work that should give way, such as a batch job beside the requests
// of users. A request of the handle is granted only if at least that number of permits, in 0..2^32-1, stays free
// afterwards, whichever processes, in Go or Java, took the others. It should be at least the size of one request of l.
//
// The waiting requests of the handle have a queue of their own. One that has waited for age, which must be above 0,
// becomes like one of l that arrives at that moment, so it does not starve. To have it fail instead, give the call a
// timeout below age. During an outage the [OutagePolicy] ignores classes. See "Lower classes" in docs/design/engine.md.
//
// A request of more permits than the rate minus those that stay free returns ErrPermitsExceedRate.
func (l *RateLimiter) LeaveFree(permits int64, age time.Duration) *RateLimiter {
	l = l.made()
	handle := *l
	handle.want.Floor, handle.want.Age = 0, 0
	switch {
	case handle.err != nil:
	case permits < 0 || permits > permit.Max:
		handle.err = invalid("LeaveFree: %d permits are not in 0..%d", permits, int64(permit.Max))
	case age <= 0:
		handle.err = invalid("LeaveFree: the age of %v is not above 0", age)
	case permits > 0:
		handle.want.Floor, handle.want.Age = permits, age
	}
	return &handle
}

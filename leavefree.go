// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// LeaveFree returns a handle of the same limiter whose requests leave permits free for others. It is for work that
// should give way, such as a batch job beside the requests of users. A request of the handle is granted only if at
// least that number of permits stays free afterwards, no matter which processes, in Go or Java, took the others. The
// requests of l go on as before, and find these permits free as long as they do not use them up themselves. The
// larger the number, the sooner they are served; it should be at least the size of one of their requests.
//
// The waiting requests of the handle form a lower class with a queue of its own. A request that has waited for age
// becomes like a request of l that arrives at that moment, so it does not starve even if l uses up the whole rate. If
// a class constantly asks for more than is left to it, its requests come to compete with those of l after that time.
// To have them fail instead, give its calls a timeout below age.
//
// While Redis is unavailable, the [OutagePolicy] decides and ignores classes. The requests of a class reserve no
// permits, unlike large requests of l. [RateLimiter.Peek] and [RateLimiter.Allow] report what holds for the class. In
// [Client.TryAcquireAll], several demands for one limiter leave free the most that any of them does, and all demands
// turn ordinary when the longest age among them is over.
//
// A request of more permits than the rate minus those that stay free returns ErrPermitsExceedRate. If permits is not
// in 0..2^32-1, or age is not above 0, every call of the handle returns ErrInvalidArgument. With 0 permits, the
// requests of the handle are ordinary ones.
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

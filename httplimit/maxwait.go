// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"time"
)

// DefaultMaxWait is how long a request waits for permits if nothing else bounds its wait: its context has no
// deadline, and neither [WithMaxWait] nor [ContextWithMaxWait] is set.
const DefaultMaxWait = 30 * time.Second

const (
	// forever is longer than any request waits, and short enough to be added to a time.
	forever = 10 * 365 * 24 * time.Hour
	// reserve is the part of a deadline that is left for the request itself, or a fifth of the time if that is less. A
	// permit that arrives at the deadline is lost, and http.Client.Timeout hides every error that comes after it. The
	// limiter waits up to 10 ms for a reply that is on its way.
	reserve = 20 * time.Millisecond
)

type maxWaitKey struct{}

// ContextWithMaxWait returns a context whose requests wait no longer than d for permits, in addition to
// [WithMaxWait]. Unlike a deadline, it does not end a response that is still being read. With 0, requests that cannot
// be sent at once are rejected, with the exception of [WithMaxWait]; a negative d counts as 0.
func ContextWithMaxWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, maxWaitKey{}, min(max(d, 0), forever))
}

type leaveFreeKey struct{}

// A leftFree is what the requests of a context leave free.
type leftFree struct {
	permits int64
	age     time.Duration
}

// ContextWithLeaveFree returns a context whose requests leave at least that many permits free, of each limiter that they
// take permits from, until they have waited for age; see [Limit.LeaveFree], of which the larger number counts. It is for
// what should give way and uses the same rules as the rest, such as a job of the night that calls an SDK. If age is not
// above 0, it is ten seconds. A request that would then never be granted is rejected with ReasonRule.
func ContextWithLeaveFree(ctx context.Context, permits int64, age time.Duration) context.Context {
	if age <= 0 {
		age = defaultLeaveFor
	}
	return context.WithValue(ctx, leaveFreeKey{}, leftFree{permits, age})
}

// A patience is how long a request may wait, and which bound says so: "" for a dry run, which does not wait.
type patience struct {
	wait time.Duration
	by   bound
}

// patience returns the smallest of the bounds that ctx and the Transport set.
func (c *roundTrip) patience(ctx context.Context) patience {
	p := patience{forever, boundDefault}
	if c.t.cfg.maxWait >= 0 {
		p = patience{min(c.t.cfg.maxWait, forever), boundTransport}
	}
	if d, ok := ctx.Value(maxWaitKey{}).(time.Duration); ok && d < p.wait {
		p = patience{d, boundContext}
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		left -= min(reserve, left/5)
		if left < p.wait {
			return patience{max(left, 0), boundDeadline}
		}
	}
	if p.by == boundDefault {
		p.wait = DefaultMaxWait
	}
	return p
}

// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"time"
)

// DefaultMaxWait is how long a request waits for permits when nothing else bounds it: its context has no deadline, and
// neither [WithMaxWait] nor [ContextWithMaxWait] says how long.
const DefaultMaxWait = 30 * time.Second

const (
	// forever is longer than any request waits, and short enough to be added to a time.
	forever = 10 * 365 * 24 * time.Hour
	// reserve is what a deadline leaves for the request itself, or a fifth of the time when that is
	// less: a permit that comes with the deadline is lost, and http.Client.Timeout hides every error
	// that comes after it. The limiter waits up to 10 ms for an answer that is on its way.
	reserve = 20 * time.Millisecond
)

type maxWaitKey struct{}

// ContextWithMaxWait returns a context whose requests wait for permits no longer than d, beside [WithMaxWait]. Unlike a
// deadline, it does not end a response that is still being read. 0 rejects what cannot be sent at once; a negative d
// counts as 0.
func ContextWithMaxWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, maxWaitKey{}, min(max(d, 0), forever))
}

// A patience is how long a request may wait, and what bounds it; "" for a dry run, which does not wait.
type patience struct {
	wait time.Duration
	by   Bound
}

// patience returns the smallest of the bounds that ctx and the Transport set.
func (c *call) patience(ctx context.Context) patience {
	p := patience{forever, BoundDefault}
	if c.t.cfg.maxWait >= 0 {
		p = patience{min(c.t.cfg.maxWait, forever), BoundTransport}
	}
	if d, ok := ctx.Value(maxWaitKey{}).(time.Duration); ok && d < p.wait {
		p = patience{d, BoundContext}
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		left -= min(reserve, left/5)
		if left < p.wait {
			return patience{max(left, 0), BoundDeadline}
		}
	}
	if p.by == BoundDefault {
		p.wait = DefaultMaxWait
	}
	return p
}

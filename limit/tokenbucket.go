// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A TokenBucket is a token bucket that is refilled continuously, by Rate.Permits in each interval, up to
// Burst. It starts full.
//
// Bound: fewer than Burst + Rate × window in any window, as [Bound] has it. What comes in during the current microsecond
// already counts, so that a caller that is a fraction of a microsecond late loses nothing.
//
// It does not promise the rate in every window of one interval: a full bucket may be taken at once in addition.
// A [GCRA] is the same limiter by another name.
//
// Source: https://en.wikipedia.org/wiki/Token_bucket.
type TokenBucket struct {
	Rate  ratelimiter.Rate
	Burst int64
}

func (a TokenBucket) bound(window time.Duration, _ int64) int64 { return GCRA(a).bound(window, 0) }

func (a TokenBucket) check() error { return GCRA(a).check() }

func (a TokenBucket) model() calls.Model { return GCRA(a).model() }

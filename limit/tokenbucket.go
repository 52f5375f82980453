// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
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

func (a TokenBucket) largest() int64 { return a.Burst }

func (a TokenBucket) check() error                     { return GCRA(a).check() }
func (a TokenBucket) script() *dispatch.Script         { return gcraScript }
func (a TokenBucket) parameters() []any                { return GCRA(a).parameters() }
func (a TokenBucket) reserves() bool                   { return false }
func (a TokenBucket) idle() state                      { return GCRA(a).idle() }
func (a TokenBucket) stored(text string) (state, bool) { return GCRA(a).stored(text) }

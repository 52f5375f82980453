// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
)

// A listPart is the reservation of one limiter of a list, with what decides when something is done for it. As long as
// it has not begun, it holds nothing, except while takeAll tries whether everything is free.
type listPart struct {
	link.Reservation
	handle *engine.Handle
	begun  time.Time     // when gathering began; zero as long as what others leave is enough
	due    time.Time     // when all of it can be gathered; zero if that is now, or it has been
	takes  time.Duration // how long gathering takes, as of the last question; before it has begun
	look   time.Time     // when there may be more, or it is time to begin
	hold   *engine.Hold  // of the callers in the meantime, or nil
}

// hasBegun reports whether permits are being gathered.
func (v *listPart) hasBegun() bool { return !v.begun.IsZero() }

// take takes as many permits as are free. If that is less than wanted, wait is how long it takes until there
// are more.
func (v *listPart) take(ctx context.Context) (wait time.Duration, err error) {
	if v.Ahead = v.Rate.MinGap == 0 && !v.Complete(); v.Ahead {
		if err := v.Grow(ctx); err != nil || v.Complete() {
			return 0, err
		}
		if v.Last.Lacking > 0 {
			return max(v.Last.Wait, time.Millisecond), nil
		}
		v.Ahead = false // a cool-down has begun, or the permits left have been lost
	}
	for range 3 {
		if err := v.Grow(ctx); err != nil || v.Complete() {
			return 0, err
		}
		next := int64(1) // each permit as soon as it is back, because a peer may want it, too
		if v.Rate.MinGap > 0 {
			next = v.Permits - v.Last.Held
		}
		if wait, err = v.Ask(ctx, next); err != nil || wait > 0 {
			return max(wait, min(v.Rate.Interval/gatherSteps, maxGatherStep)), err
		}
	}
	return time.Millisecond, nil // others are always faster
}

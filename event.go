// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
)

// An EventKind says what happened: [OutageBegan], [OutageEnded], [Panicked], [RateChanged] or [LayoutsMixed]. More kinds
// may be added; ignore those that you do not know.
type EventKind string

const (
	// OutageBegan reports the begin of an outage; see [OutagePolicy]. Limiter is that of the call that raised the
	// suspicion, and Err is the cause.
	OutageBegan EventKind = "outage began"
	// OutageEnded reports its end, with the same Limiter, its Duration, and in Degraded how many requests an
	// [OutagePolicy] granted.
	OutageEnded EventKind = "outage ended"
	// Panicked reports that a hook of the redis client, in a call that then fails with ErrUnavailable, or a function of
	// a [Hook] panicked. Err has the value of the panic.
	Panicked EventKind = "panicked"
	// RateChanged reports that a limiter of package limit uses other parameters from now on, or cannot use them. Err
	// names both, or the reason; see limit.WithFleetParameters.
	RateChanged EventKind = "rate changed"
	// LayoutsMixed reports that a limiter holds grants that Redisson 3.16.4 to 3.16.8 cannot read beside some that
	// these have written; see [WithRedisson316]. Err says what to do. It is reported once for a limiter, and for at
	// most 100 of a Client.
	LayoutsMixed EventKind = "layouts mixed"
)

// An Event is what a Client passes to the Event functions of its Hooks. Fields that do not apply to the Kind are zero.
type Event struct {
	Kind     EventKind
	Limiter  string    // as RateLimiter.Name returns it
	Time     time.Time // by the clock of this process
	Duration time.Duration
	Degraded int64 // number of requests
	Err      error
}

// eventOf returns an event of the engine as an Event.
func eventOf(e link.Event) Event {
	kinds := [...]EventKind{link.OutageBegan: OutageBegan, link.OutageEnded: OutageEnded, link.Panicked: Panicked}
	return Event{Kind: kinds[e.Kind], Limiter: e.Limiter, Time: e.Time, Duration: e.Duration, Degraded: e.Granted, Err: e.Err}
}

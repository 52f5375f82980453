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
	// OutageBegan reports that Redis is now considered unavailable: it refuses, or does not reply, on a new connection
	// either; see [OutagePolicy]. Limiter is the limiter of the call that raised the suspicion, and Err is the cause.
	OutageBegan EventKind = "outage began"
	// OutageEnded reports that the outage is over. Limiter is that of OutageBegan, Duration is how
	// long the outage lasted, and Degraded is the number of requests that an [OutagePolicy] granted during it.
	OutageEnded EventKind = "outage ended"
	// Panicked reports that a hook of the redis client, or a function of a [Hook], panicked during a call for Limiter.
	// Err has the value of the panic in its text. A call in which a hook of the redis client panics fails with
	// ErrUnavailable.
	Panicked EventKind = "panicked"
	// RateChanged reports that a limiter of package limit uses other parameters from now on, which this or another
	// process has set, or that it cannot use what was set. Err names the old and the new parameters, or the reason;
	// see limit.WithFleetParameters.
	RateChanged EventKind = "rate changed"
	// LayoutsMixed reports that a limiter holds grants in the layout of Redisson 3.16.4 to 3.16.8 although this Client
	// writes another one or, with [WithRedisson316], grants in another layout. Calls of those versions fail at grants in
	// any layout but their own. Err says what to do. It is reported once for a limiter, and for at most 100 limiters of a
	// Client.
	LayoutsMixed EventKind = "layouts mixed"
)

// An Event is what a Client passes to the Event functions of its Hooks. Fields that do not apply to the Kind are
// zero.
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

package ratelimiter

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
)

// An EventKind tells what happened. More kinds may be added; ignore those that you do not know.
type EventKind int

const (
	// OutageBegan reports that Redis did not reply to a call in any attempt and is now considered unavailable.
	// Limiter is the limiter of that call, and Err is the cause.
	OutageBegan EventKind = iota + 1
	// OutageEnded reports that Redis has replied again. Limiter is the limiter of the call that found out,
	// Duration is how long the outage lasted, and Degraded is the number of requests that an [OutagePolicy]
	// granted during it.
	OutageEnded
	// Panicked reports that a hook of the redis client, or the observer itself, panicked during a call for
	// Limiter. Err holds the value of the panic. A call in which a hook panics fails with ErrUnavailable.
	Panicked
)

// String returns the kind in a form for log lines, such as "outage began".
func (k EventKind) String() string {
	switch k {
	case OutageBegan:
		return "outage began"
	case OutageEnded:
		return "outage ended"
	case Panicked:
		return "panicked"
	}
	return "unknown event"
}

// An Event is passed to the observer of a Client; see [WithObserver]. Fields that do not apply to the Kind are
// zero.
type Event struct {
	Kind     EventKind
	Limiter  string    // as RateLimiter.Name returns it
	Time     time.Time // by the clock of this process
	Duration time.Duration
	Degraded int64 // number of requests
	Err      error
}

// WithObserver sets a function that is called with every event of the Client, for logs, metrics and alarms. On
// a ring an outage is that of one shard. On a cluster it is that of one limiter, or of several limiters whose
// names hash alike. Otherwise it is that of the whole Client.
//
// The goroutine that notices an event calls f, without holding locks. That goroutine serves the requests of
// other callers, so f must not block. If f panics, it is called once more with an event of kind [Panicked], and
// nothing else ends. Calls of f may overlap, and the two events of an outage that ends at once may be delivered
// in either order; their Time is right in any case. The default is no observer.
func WithObserver(f func(Event)) Option {
	return func(c *config) { c.observer = f }
}

// eventOf returns an event of the engine as an Event.
func eventOf(e engine.Event) Event {
	kinds := [...]EventKind{engine.OutageBegan: OutageBegan, engine.OutageEnded: OutageEnded, engine.Panicked: Panicked}
	return Event{Kind: kinds[e.Kind], Limiter: e.Limiter, Time: e.Time, Duration: e.Duration, Degraded: e.Granted, Err: e.Err}
}

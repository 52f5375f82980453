package ratelimiter

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
)

// An EventKind says what happened. More kinds may come: ignore those that you do not know.
type EventKind int

const (
	// OutageBegan: Redis did not answer a call, however often it was sent, and counts as away. Limiter is
	// the one whose call it was, Err why.
	OutageBegan EventKind = iota + 1
	// OutageEnded: Redis has answered again. Limiter is the one whose call it was, Duration how long Redis
	// counted as away, Degraded how many requests an outage policy granted meanwhile.
	OutageEnded
)

// String is the kind as a log line wants it.
func (k EventKind) String() string {
	switch k {
	case OutageBegan:
		return "outage began"
	case OutageEnded:
		return "outage ended"
	}
	return "unknown event"
}

// An Event is what a Client tells its observer. What a kind does not speak of is zero.
type Event struct {
	Kind     EventKind
	Limiter  string    // the name, as RateLimiter.Name
	Time     time.Time // by the clock of this process
	Duration time.Duration
	Degraded int64 // requests
	Err      error
}

// WithObserver has f called with every event of the Client: for logs, metrics and alarms. On a ring
// an outage is that of a shard, on a cluster that of one limiter, or of several whose names hash alike;
// elsewhere that of the Client.
//
// f is called outside of all locks, by the goroutine that found out, which carries other callers'
// requests: it must not block. Calls may overlap, and the events of an outage that is over at once may
// come in either order; their Time is right. The default is no observer.
func WithObserver(f func(Event)) Option {
	return func(c *config) { c.observer = f }
}

// observe passes on what the engine has found out.
func observe(f func(Event)) func(engine.Event) {
	if f == nil {
		return nil
	}
	return func(e engine.Event) {
		kind := OutageBegan
		if e.Ended {
			kind = OutageEnded
		}
		f(Event{Kind: kind, Limiter: e.Limiter, Time: e.Time, Duration: e.Duration, Degraded: e.Granted, Err: e.Err})
	}
}

// Package engine decides who waits for the permits of a limiter, who shares a call for them, and what happens while
// Redis is away. It knows neither Redis nor the limiter's keys: a [Backend] asks.
//
// State decides, under the lock of its shard: limiter.go, batch.go, land.go, local.go. A method that needs the lock
// says so by its name. Flights talk to the backend, without the lock: flight.go, attempt.go, reconcile.go. Callers
// wait: engine.go, and list.go for those of several limiters.
package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Backend is where one limiter's permits are. Each of its methods but Audit makes one attempt. An error that is a
// *[retry.Error] is one of the way there; any other one is what the backend replied. It is called without locks, and
// by several goroutines.
type Backend interface {
	// Acquire asks for the permits of b. A *[permit.WrongTypeError] says that b has not the limiter's type.
	Acquire(ctx context.Context, b *permit.Batch) (permit.Reply, error)
	// Refund returns what of g nobody keeps.
	Refund(ctx context.Context, typ permit.Type, g permit.Grant) error
	// Reserve holds permits, and returns how many are held from now on and the rate without its type.
	Reserve(ctx context.Context, v permit.Reservation) (held int64, rate permit.Rate, err error)
	// Audit has the permits left and those in use make up the rate.
	Audit(ctx context.Context, typ permit.Type, lowered bool) error
}

// Backends is what the limiters of one Engine share.
type Backends interface {
	// NewID returns an ID that no call has had.
	NewID() permit.ID
	// Joint reports whether AcquireAll takes the limiters, which are Backends.
	Joint(limiters []any) bool
	// AcquireAll asks for all parts at one instant, and returns the places of those that refuse.
	AcquireAll(ctx context.Context, parts []permit.Part, replay bool) (refused []int, err error)
	// Shard returns which part of a divided Redis holds a limiter, as a comparable value; false where that is not
	// known.
	Shard(key string) (any, bool)
}

// A Config says how an Engine behaves.
type Config struct {
	Backends    Backends
	Divided     bool          // several parts of Redis hold the limiters: one may be away while others are there
	Recheck     time.Duration // how long the line sleeps at most before it asks again
	OutageLimit time.Duration // how long callers wait while Redis is away
	RefuseEarly bool          // a caller is refused as soon as its time is known to be too short
	Observe     func(Event)   // called outside of all locks; nil for nobody
}

// An Event is the begin or the end of an outage.
type Event struct {
	Ended    bool
	Limiter  string // whose call found out
	Time     time.Time
	Duration time.Duration // of an outage that has ended
	Granted  int64         // requests that policies granted meanwhile
	Err      error         // why it began
}

// A Request is what a caller asks for.
type Request struct {
	Permits  int64
	Wait     bool          // it stands in line
	Timeout  time.Duration // for which it waits; 0 for as long as it takes
	TellWait bool          // when it is refused
	Policy   *outage.Policy
}

// An Outcome is how a request ended.
type Outcome struct {
	Granted   bool
	Degraded  bool // a policy has decided it, or has it wait for the local share
	Available int64
	Wait      time.Duration
	Reply     *permit.Reply // what the call was told; shared, nil when none was made
	Err       error
}

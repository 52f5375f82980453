// SPDX-License-Identifier: Apache-2.0

// Package engine decides which callers wait for the permits of a limiter, which of them share a call, and what
// happens during an outage. It knows neither Redis nor the keys of the limiter; it asks through a [Backend].
//
// State decides, under the lock of its shard: limiter.go, and schedule.go, land.go, local.go and others, each for
// one part of it. A method that needs the lock has a name that ends in Locked, or belongs to a type that says so.
// Flights talk to the backend, without the lock: flight.go, attempt.go. So do offline.go, gather.go, reservation.go and
// ask.go. Callers wait: acquire.go, and place.go for those that want more than one limiter; package list is a client of
// these. docs/design/engine.md explains the words, and in which order to read.
package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Backend is where the permits of one limiter are. Each of its methods except Heal makes one attempt. An
// error that is a *[retry.Error] occurred on the way to Redis; any other error is what Redis replied. The
// methods are called without locks, and by several goroutines.
type Backend interface {
	// Acquire asks for the permits of b, and sets its type.
	Acquire(ctx context.Context, b *permit.Batch) (permit.Reply, error)
	// Refund gives back the permits of g that are not kept.
	Refund(ctx context.Context, typ permit.Type, g permit.Grant) error
	// Reserve holds permits.
	Reserve(ctx context.Context, v permit.Reservation) (permit.Reserved, error)
	// Probe makes one attempt at a write that changes nothing. It is rejected wherever the writes of the other methods
	// are.
	Probe(ctx context.Context) error
	// CheckDue returns why a caller whose own calls check nothing should check the state now, or Sick.
	CheckDue() permit.HealCause
	// Heal makes the permits left and those in use add up to the rate.
	Heal(ctx context.Context, typ permit.Type, c permit.HealCause) error
}

// A Backends has what the limiters of one Engine share.
type Backends interface {
	// NewID returns an ID that no call has had.
	NewID() permit.ID
	// Joint reports whether AcquireAll can decide the parts, each of whose limiters is a Backend.
	Joint(parts []permit.Part) bool
	// AcquireAll asks for all parts at one instant, sets their types, and returns the indexes of those that reject.
	AcquireAll(ctx context.Context, parts []permit.Part, replay bool) (rejected []int, err error)
	// Shard returns the part of a divided Redis that holds a limiter, as a comparable value. It reports false
	// if that is not known.
	Shard(key string) (any, bool)
}

// A Config configures an Engine.
type Config struct {
	Backends    Backends
	Divided     bool          // over several parts of Redis, of which one may be down while others are up
	Recheck     time.Duration // the longest sleep of the queue before it asks again
	OutageLimit time.Duration // how long callers wait during an outage
	RejectEarly bool          // reject a caller as soon as its time is known to be too short
	Observe     func(Event)   // called without locks; may be nil
}

// An EventKind tells what happened.
type EventKind int

const (
	OutageBegan EventKind = iota
	OutageEnded
	Panicked // foreign code that a flight has called
)

// An Event is passed to the observer of an Engine.
type Event struct {
	Kind     EventKind
	Limiter  string // whose call noticed
	Time     time.Time
	Duration time.Duration // of an outage that has ended
	Granted  int64         // requests that policies granted during it
	Err      error         // why the outage began, or the panic
}

// A Request is what a caller asks for.
type Request struct {
	Permits  int64
	Wait     bool          // wait in the queue
	Timeout  time.Duration // how long to wait; 0 for as long as it takes
	TellWait bool          // report the wait if it is rejected
	Own      bool          // its grant is a member of its own, so that it can be settled
	Known    time.Duration // how old a rejection may be that decides it without a call, if it does not wait
	Policy   *outage.Policy
}

// An Outcome is how a request ended.
type Outcome struct {
	Granted   bool
	Degraded  bool // a policy decided it, or makes it wait for the local quota
	Available int64
	Wait      time.Duration
	Asked     Asked         // the grant of a request with Own; zero if a local quota granted it
	Reply     *permit.Reply // the reply to the call, shared with other requests; nil if no call was made
	Err       error
}

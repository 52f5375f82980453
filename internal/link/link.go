// SPDX-License-Identifier: Apache-2.0

// Package link makes the calls for the permits of a limiter: it makes them again when they fail, keeps them back
// while Redis is down, and tells the health of Redis what each reply shows. It uses a [Backend], so it knows neither
// Redis nor the keys of a limiter. It does not know the callers that wait either, but tells their [Queue] of calls
// that do not come from it.
//
// Everything here talks to Redis or is about to, so no lock is held when it is called.
package link

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Backend is where the permits of one limiter are. Each of its methods makes one attempt. An
// error that is a *[retry.Error] occurred on the way to Redis; any other error is what Redis replied. The
// methods are called without locks, and by several goroutines.
type Backend interface {
	// Acquire asks for the permits of b, and sets its type.
	Acquire(ctx context.Context, b *permit.Batch) (permit.Reply, error)
	// Refund gives back the permits of g that are not kept.
	Refund(ctx context.Context, typ permit.Type, g permit.Grant) error
	// Reserve holds permits.
	Reserve(ctx context.Context, v permit.Reservation) (permit.Reserved, error)
	// Probe, Sweep and Spares are what an [outage.Server] needs.
	Probe(patience time.Duration) error
	Sweep()
	Spares() bool
	// Shortage returns why calls wait for a connection, a *[retry.Shortage], or nil if they do not.
	Shortage() error
	// CheckDue returns why a caller of so many permits whose own calls check nothing should check the state now, or Unchecked.
	CheckDue(permits int64) permit.HealCause
	// Heal returns the operation that makes the permits left and those in use add up to the rate.
	Heal(typ permit.Type, c permit.HealCause) permit.Op[struct{}]
}

// A Backends has what the limiters of one client share.
type Backends interface {
	// NewID returns an ID that no call has had.
	NewID() permit.ID
	// InOneCall reports whether AcquireAll can decide the parts, each of whose limiters is a Backend.
	InOneCall(parts []permit.Part) bool
	// AcquireAll asks for all parts at one instant, sets their types, and returns the indexes of those that reject.
	AcquireAll(ctx context.Context, parts []permit.Part, replay bool) (rejected []int, err error)
	// Server returns the address of the server of a divided Redis that holds a limiter: a master of a cluster or a shard of a
	// ring. It is empty if that is not known, or if Redis is not divided.
	Server(key string) (addr string)
}

// A Queue is where the callers of this process wait, for limiters whose keys hash alike. It must not be locked when its
// methods are called.
type Queue interface {
	sync.Locker // guards what is known of the limiters for outages

	// Touch records that a call which does not come from the queue begins or has ended, for the limiter with that key.
	Touch(key string)
	// Learn records what a reply says about the rate. Its call began at the given instant.
	Learn(l *Link, a *permit.Reply, began time.Time)
	// Changed wakes the callers of the limiter with that key, because permits may be available again.
	Changed(key string)
	// Background runs f in a goroutine of its own, for which Close of the client waits. It returns ErrClosed after that.
	Background(f func()) error
}

// A System is what the links of one client share. Its fields are set before it is used.
type System struct {
	Backends Backends
	Closed   chan struct{}                     // is closed when the client is
	Observe  func(Event)                       // called without locks; may be nil
	Began    func(h *outage.Health, err error) // an outage of the Redis of that health has begun

	healths outage.Healths
}

// IsClosed reports whether the client is closed.
func (s *System) IsClosed() bool {
	select {
	case <-s.Closed:
		return true
	default:
		return false
	}
}

// Idle reports whether no call is waited for, and no timer is armed for that.
func (s *System) Idle() bool { return s.healths.Idle() }

// Replied records that Redis has let this user in.
func (s *System) Replied() { s.healths.Replied() }

// An EventKind tells what happened.
type EventKind int

const (
	OutageBegan EventKind = iota
	OutageEnded
	Panicked // foreign code that a call has called
)

// An Event is passed to the observer of a System.
type Event struct {
	Kind     EventKind
	Limiter  string // whose call noticed
	Time     time.Time
	Duration time.Duration // of an outage that has ended
	Granted  int64         // requests that policies granted during it
	Err      error         // why the outage began, or the panic
}

// A QueueID identifies a wait queue: one limiter has one for all requests, and one more for each lower class of them.
type QueueID struct {
	Key   string // of the limiter
	Floor int64  // permits that its requests leave free
}

// A Link makes the calls for one limiter. It holds no state; those with the same key are alike.
type Link struct {
	QueueID
	Name    string // of the limiter, in errors
	Backend Backend
	System  *System
	Queue   Queue
}

// Health returns the health of the server that holds the limiter.
func (l *Link) Health() *outage.Health {
	return l.System.healths.Of(l.System.Backends.Server(l.Key))
}

// The methods below make a Link an outage.Server.

// Probe has the server carry out a write that changes nothing.
func (l *Link) Probe(patience time.Duration) error { return l.Backend.Probe(patience) }

// Sweep drops the idle connections to the server that are broken.
func (l *Link) Sweep() { l.Backend.Sweep() }

// Spares reports whether the redis client can spare the connection of an attempt that is given up.
func (l *Link) Spares() bool { return l.Backend.Spares() }

// Done is closed when the client is.
func (l *Link) Done() <-chan struct{} { return l.System.Closed }

// Began tells the callers in flight, and the observer, that an outage has begun.
func (l *Link) Began(h *outage.Health, err error) {
	l.System.Began(h, err)
	l.observe(Event{Kind: OutageBegan, Err: err})
}

// Ended tells the observer that the outage has ended.
func (l *Link) Ended(lasted time.Duration, granted int64) {
	l.observe(Event{Kind: OutageEnded, Duration: lasted, Granted: granted})
}

// ready returns the reason why a call cannot be made, if any. An error of the context comes first.
func (l *Link) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.System.IsClosed() {
		return permit.ErrClosed
	}
	return nil
}

// observe calls the observer, which does not panic.
func (l *Link) observe(ev Event) {
	if l.System.Observe != nil {
		ev.Limiter, ev.Time = l.Name, time.Now()
		l.System.Observe(ev)
	}
}

// ObservePanic tells the observer of a call that ended with a panic.
func (l *Link) ObservePanic(err error) {
	var p *retry.Panic
	if errors.As(err, &p) {
		l.observe(Event{Kind: Panicked, Err: err})
	}
}

// MaxInterval is the longest interval that is calculated with, so that several of them still fit a Duration. Nobody sees the
// end of a longer one.
const MaxInterval = 10 * 365 * 24 * time.Hour

// Bounded returns r with an interval of at most MaxInterval.
func Bounded(r permit.Rate) permit.Rate {
	r.Interval = min(r.Interval, MaxInterval)
	return r
}

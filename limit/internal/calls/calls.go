// SPDX-License-Identifier: Apache-2.0

// Package calls has the way of a call of a shared limiter of package limit, in this order:
//
//	calls.go   a request comes in, for one key
//	known.go   it is rejected without a call, if that is known
//	queue.go   its caller waits for permits, first come, first served
//	line.go    while a call of its key is in flight, it waits to share the next
//	flight.go  that call is made, and its callers get their outcomes
//	outage.go  while Redis is down, a policy decides
//	send.go    the script is sent until there is a reply, under an id of ids.go
//	reply.go   the reply of the script becomes the outcomes of the requests
//
// docs/design/engine.md says why those who wait and those who share a call do not stand in one queue.
//
// The script decides. What it replies is the state that it found, and what of it was granted; from the same state the same arithmetic in Go
// says what each of the requests is told: what is left, and how long it has to wait. A Local
// decides by that arithmetic alone. model.go has what an algorithm tells of itself, and what a request and its outcome are; keys.go has the names of
// the keys, and reset.go the calls that are no requests.
package calls

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
)

// A Limiter is what the limiters of all keys of one name share.
type Limiter struct {
	Sender        dispatch.Sender
	Name          string
	Signature     string                  // of the algorithm, which is part of the Redis keys
	Current       atomic.Pointer[Setting] // by which requests are decided, as far as is known
	Fleet         Fleet                   // nil if the parameters never change
	Policy        outage.Policy           // decides requests in an outage of Redis
	Clock         func() time.Time        // nil for that of Redis
	WithoutReplay bool
	WithoutKnown  bool
	Hooks         []ratelimiter.Hook
	outages       outages

	IDs    ids
	known  known
	queues queues
	lines  lines
}

// A Fleet follows the parameters that the processes of a name have set.
type Fleet interface {
	// Follow makes the setting that is in force the current one, if it is the first call, and otherwise sees to it that this is done
	// from time to time. It returns an error if none is known.
	Follow(ctx context.Context, s *Shared) error
}

// Now returns the setting by which requests are decided, as far as is known.
func (c *Limiter) Now() *Setting { return c.Current.Load() }

// A Shared is the limiter of one key.
type Shared struct {
	config *Limiter
	Key    string
	Own    *Setting // of a handle with a setting of its own; nil for that of config
	keys   []string
	slot   string // where what is known of the key is kept, and its queue
}

// Of returns the limiter of a key.
func (c *Limiter) Of(key string) Shared {
	keys := keysOf(c.Name, key, c.Signature, c.Now().Script.Keys)
	return Shared{config: c, Key: key, keys: keys, slot: keys[0]}
}

// With is Of for requests that are decided by the setting own. They have one Redis key with the signature each in it, whatever own
// is, but what is known of it is kept apart for own, whose signature is the last.
func (c *Limiter) With(key string, own *Setting, each, signature string) Shared {
	keys := keysOf(c.Name, key, each, 1)
	return Shared{config: c, Key: key, keys: keys, slot: keys[0] + " " + signature, Own: own}
}

// Limiter returns what s shares with other keys.
func (s *Shared) Limiter() *Limiter { return s.config }

// Now returns the setting by which the requests of s are decided, as far as is known.
func (s *Shared) Now() *Setting {
	if s.Own != nil {
		return s.Own
	}
	return s.config.Now()
}

// Request makes a request and tells the Hooks of it.
func (s *Shared) Request(ctx context.Context, op ratelimiter.Operation, q Demand) (Outcome, error) {
	if len(s.config.Hooks) == 0 { // asked would do the same, but a rejection that is known takes a fifth less time so
		return s.ask(ctx, q)
	}
	return s.config.asked(ctx, op, q.N, func() (Outcome, error) { return s.ask(ctx, q) })
}

// ask is Request without the Hooks.
func (s *Shared) ask(ctx context.Context, q Demand) (Outcome, error) {
	if err := s.check(ctx, q); err != nil {
		return Outcome{}, err
	}
	if r, _, ok := s.config.Rejected(s.slot, q); ok && !s.down() {
		return Outcome{Result: r}, nil
	}
	return s.batch(ctx, q)
}

// check returns an error if ctx is done, or q cannot be granted, however long it waits.
func (s *Shared) check(ctx context.Context, q Demand) error {
	if err := ContextError(ctx); err != nil {
		return err
	}
	return q.Check(&s.Now().Model)
}

// inForce returns the setting by which q is decided.
func (s *Shared) inForce(ctx context.Context, q Demand) (*Setting, error) {
	if s.config.Fleet == nil {
		return s.Now(), nil
	}
	if err := s.config.Fleet.Follow(ctx, s); err != nil {
		return nil, err
	}
	n := s.Now()
	if q.N > 0 {
		return n, q.Check(&n.Model)
	}
	return n, nil
}

// Settle makes a settlement, unless it gives back what was granted by other parameters: its mark is in the parts and the windows of these.
func (s *Shared) Settle(ctx context.Context, x *Settlement) error {
	if x.By < 0 && x.Mark.By != nil && x.Mark.By != s.config.Now() {
		return nil
	}
	_, err := s.batch(ctx, Demand{Spend: true, settlement: x})
	return err
}

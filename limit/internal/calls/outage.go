// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// outages is what a limiter knows of the outages of its Redis.
type outages struct {
	servers outage.Healths
	quotas  [512]struct {
		mu     sync.Mutex
		memory outage.Memory
	}

	began [32]outage.Broadcast // an outage; several, since all who wait for one take its lock
}

// health returns the health of the server that has the key.
func (s *Shared) health() *outage.Health {
	return s.config.outages.servers.Of(dispatch.ServerOf(s.config.Sender, s.keys[0]))
}

// begins returns a channel that is closed when the next outage begins.
func (o *outages) begins() <-chan struct{} { return o.began[mathrand.N(len(o.began))].Next() }

// down reports whether Redis is known to be down.
func (s *Shared) down() bool { return s.health().Down() }

// The methods below make a Shared an outage.Server.

// write returns the arguments of a write that changes nothing. A key that exists stays as it is, and one that does not is empty
// for a millisecond, which is a limiter that has not been used.
func (s *Shared) write() []any { return []any{"set", s.keys[len(s.keys)-1], "", "NX", "PX", 1} }

// Probe has the server carry out a write that changes nothing.
func (s *Shared) Probe(patience time.Duration) error {
	return dispatch.Probe(s.config.Sender, s.keys[0], s.write(), patience)
}

// Sweep drops the idle connections to the server that are broken.
func (s *Shared) Sweep() { dispatch.Sweep(s.config.Sender, s.keys[0], s.write()) }

// Spares reports whether the redis client can spare the connection of an attempt that is given up.
func (s *Shared) Spares() bool { return dispatch.Spares(s.config.Sender, s.keys[0]) }

// Done returns nil: a probe of a redis client that is closed gets a reply.
func (s *Shared) Done() <-chan struct{} { return nil }

// Began tells the callers in flight, and the hooks, that an outage has begun.
func (s *Shared) Began(_ *outage.Health, err error) {
	for i := range s.config.outages.began {
		s.config.outages.began[i].Happened()
	}
	s.config.Event(ratelimiter.Event{Kind: ratelimiter.OutageBegan, Err: err})
}

// Ended tells the hooks that the outage has ended.
func (s *Shared) Ended(lasted time.Duration, granted int64) {
	s.config.Event(ratelimiter.Event{Kind: ratelimiter.OutageEnded, Duration: lasted, Degraded: granted})
}

// attempt makes one attempt at a call, tells the health of Redis how it ended, and returns how it failed, or nil.
func (s *Shared) attempt(ctx context.Context, k outage.Traits, call func(ctx context.Context) error) *retry.Error {
	h := s.health()
	a := h.Begin(s, k)
	bounded, end := a.Context(ctx)
	defer end()
	err := call(bounded)
	if err != nil {
		err = dispatch.Failure(err)
	}
	failure, _ := h.End(ctx, a, err).(*retry.Error)
	return failure
}

// decideLocally decides q by the policy. If Redis is not known to be down it returns err.
func (s *Shared) decideLocally(q Demand, err error) (Outcome, error) {
	h := s.health()
	since, cause := h.Since()
	if cause == nil && err != nil {
		return Outcome{}, err
	}
	if err == nil || cause == nil {
		err = s.unavailable(cause)
	}
	if s.config.Policy.Kind == outage.FailClosed || q.settlement != nil {
		return Outcome{}, err
	}
	r := Outcome{Result: ratelimiter.Result{Granted: true, Degraded: true}, Permits: q.N}
	if s.config.Policy.Kind == outage.LocalQuota {
		if r, err = s.takeLocally(q, since, cause); err != nil {
			return Outcome{}, err
		}
	}
	if r.Granted && q.Spend {
		h.CountGrant()
	}
	return r, nil
}

// unavailable returns the error of a call that Redis has not carried out because of cause.
func (s *Shared) unavailable(cause error) error { return notServed("a call of "+s.Label(), cause) }

// notServed returns the error of what Redis has not done because of cause.
func notServed(what string, cause error) error {
	if permit.IsShortage(cause) {
		return permit.Overloaded(what, cause)
	}
	return fmt.Errorf("%w: %s: %w", ratelimiter.ErrUnavailable, what, cause)
}

// takeLocally decides q by the local quota.
func (s *Shared) takeLocally(q Demand, since time.Time, cause error) (Outcome, error) {
	o, key, now := &s.config.outages, s.keys[0], time.Now()
	part := &o.quotas[hash(key)%len(o.quotas)]
	part.mu.Lock()
	defer part.mu.Unlock()
	share := part.memory.Ledger(key, outage.MaxLedgers, permit.Rate{}, func(string) bool { return false })
	if share == nil {
		return Outcome{}, s.unavailable(fmt.Errorf("%w: %w", outage.ErrNoMemory, cause))
	}
	at, left, err := share.When(&s.config.Policy, q.least(), now, since)
	if err != nil {
		return Outcome{}, s.unavailable(fmt.Errorf("%w: %w", err, cause))
	}
	r := Outcome{Result: ratelimiter.Result{Granted: !at.After(now), Degraded: true, Available: left, Reset: s.config.Policy.Rate.Interval}}
	switch {
	case !r.Granted:
		r.Wait = max(at.Sub(now), LeastWait)
	case q.Spend:
		r.Permits = q.N
		if q.UpTo {
			r.Permits = max(min(q.N, left), 1)
		}
		share.Take(&s.config.Policy, r.Permits, now)
		r.Available = max(0, left-r.Permits)
	}
	return r, nil
}

// reconcile takes from the limiter what the local quota has granted. It is part of a flight, of which the key has one at a
// time.
func (s *Shared) reconcile(ctx context.Context) error {
	o, key := &s.config.outages, s.keys[0]
	if s.config.Policy.Kind != outage.LocalQuota || !s.config.Now().Settles() {
		return nil
	}
	part := &o.quotas[hash(key)%len(o.quotas)]
	part.mu.Lock()
	share := part.memory.Find(key)
	busy := share != nil && share.Busy(time.Now())
	part.mu.Unlock()
	if !busy || s.down() {
		return nil
	}
	var failed error
	_ = share.Reconcile(&outage.Reporter{
		Lock:  &part.mu,
		NewID: func() (id permit.ID) { _, _ = rand.Read(id[:]); return id },
		Report: func(b permit.Batch) (permit.Reply, error, error) {
			reply := permit.Reply{Granted: []int64{1}, Rate: s.config.Policy.Rate, Now: time.Now()}
			if b.DryRun {
				return reply, nil, nil
			}
			var f Flight
			x := Settlement{By: b.Runs[0].Permits}
			f.Add(&Request{Demand: Demand{Spend: true, settlement: &x}, Setting: s.Now(), Slot: s.slot}, false)
			if failed = s.Make(ctx, &f); failed != nil {
				return reply, nil, &retry.Error{Err: failed, Outcome: retry.NotExecuted}
			}
			return reply, nil, nil
		},
	})
	return failed
}

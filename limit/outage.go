// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// WithOutagePolicy sets the policy that decides requests during an outage of Redis; see ratelimiter.OutagePolicy for when one
// begins and ends. Requests are then decided at once, with Degraded set in their Result, and one call a second probes Redis.
// Hooks get an event when an outage begins and when it ends.
//
//   - FailClosed: every request, also in [Wait], returns ratelimiter.ErrUnavailable at once.
//   - FailOpen: every request is granted at once.
//   - LocalQuota(r, nodes): the process grants floor(r.Permits / nodes) permits in any r.Interval, beginning one r.Interval
//     after the outage has become known. Choose an r that the limiter would admit in the long run, since r counts whatever the
//     algorithm is. Callers that wait do so until their time is up. A request for more than the quota returns
//     ratelimiter.ErrUnavailable.
//
// When Redis is back, the process takes what its local quota granted in the last r.Interval from the limiter, before the
// next call for the key, as [Grant.Settle] does; once, or twice if Redis fails again meanwhile. A limiter whose grants cannot
// be settled ([ErrCannotSettle]) does not count them: for one interval it may grant the quotas in addition.
//
// The default is no policy: each call discovers by itself that Redis does not reply or refuses to write, so give ctx a
// deadline.
func WithOutagePolicy(p ratelimiter.OutagePolicy) Option {
	return func(c *config) {
		if err := p.Validate(); err != nil {
			c.err = err
			return
		}
		c.outages = &outages{policy: outage.PolicyOf(p)}
	}
}

// outages is what a limiter with a policy knows of the outages of its Redis.
type outages struct {
	policy outage.Policy
	// divided reports whether the keys are on several nodes of a cluster, of which one may be down while others are up.
	divided bool
	hashed  [16]outage.Health // of the keys that hash alike; the first is that of a single server
	shards  sync.Map          // of the shards of a ring
	quotas  [512]struct {
		mu     sync.Mutex
		memory outage.Memory
	}

	slow outage.Broadcast // an outage begins because Redis is too slow
}

// health returns the health of the Redis that has the key.
func (s *Shared) health() *outage.Health {
	o := s.config.outages
	if shard, ok := dispatch.ShardOf(s.config.rdb, s.keys[0]); ok {
		h, ok := o.shards.Load(shard)
		if !ok {
			h, _ = o.shards.LoadOrStore(shard, new(outage.Health))
		}
		return h.(*outage.Health)
	}
	if !o.divided {
		return &o.hashed[0]
	}
	return &o.hashed[hash(s.keys[0])%len(o.hashed)]
}

// slowed returns a channel that is closed when an outage begins because Redis is too slow; nil if there is no policy.
func (o *outages) slowed() <-chan struct{} {
	if o == nil {
		return nil
	}
	return o.slow.Next()
}

// down reports whether there is a policy and Redis is known to be down.
func (s *Shared) down() bool { return s.config.outages != nil && s.health().Down() }

// An owner is the Shared that makes a call.
type owner struct{ s *Shared }

// TooSlow implements [outage.Owner].
func (o owner) TooSlow(err error) {
	s := o.s
	s.config.outages.slow.Happened()
	s.config.event(ratelimiter.Event{Kind: ratelimiter.OutageBegan, Err: err})
}

// Traffic implements [outage.Owner].
func (o owner) Traffic() permit.Traffic {
	return permit.Traffic(dispatch.TrafficTo(o.s.config.rdb, o.s.keys[0]))
}

// Apart implements [outage.Owner].
func (o owner) Apart(ctx context.Context, w permit.Wire) permit.Prober {
	if a := dispatch.OpenApart(ctx, o.s.config.rdb, o.s.keys[0], dispatch.Wire(w)); a != nil {
		return apart{a, o.s}
	}
	return nil
}

// An apart makes probes on a connection of its own.
type apart struct {
	*dispatch.Apart
	s *Shared
}

// Probe makes one attempt at a write that changes nothing.
func (a apart) Probe(ctx context.Context) error {
	if err := a.s.write(ctx, a.Apart); err != nil {
		return dispatch.Failure(err)
	}
	return nil
}

// decideLocally decides q by the policy, and has Redis probed if that is due. If Redis is not known to be down it returns
// err.
func (s *Shared) decideLocally(ctx context.Context, q demand, err error) (ratelimiter.Result, error) {
	o, h := s.config.outages, s.health()
	since, cause := h.Since()
	if cause == nil && err != nil {
		return ratelimiter.Result{}, err
	}
	if c := (&outage.Call{Owner: owner{s}}); h.TryProbe(c) {
		go s.probe(context.WithoutCancel(ctx), h, c)
	}
	if err == nil || cause == nil {
		err = s.unavailable(cause)
	}
	if o.policy.Kind == outage.FailClosed || q.settlement != nil {
		return ratelimiter.Result{}, err
	}
	r := ratelimiter.Result{Granted: true, Degraded: true}
	if q.taken != nil {
		*q.taken = q.n
	}
	if o.policy.Kind == outage.LocalQuota {
		if r, err = s.takeLocally(q, since, cause); err != nil {
			return ratelimiter.Result{}, err
		}
	}
	if r.Granted && q.spend {
		h.CountGrant()
	}
	return r, nil
}

// unavailable returns the error of a call that Redis has not carried out because of cause.
func (s *Shared) unavailable(cause error) error {
	if permit.IsShortage(cause) {
		return permit.Overloaded("a call of "+s.label(), cause)
	}
	return fmt.Errorf("%w: a call of %s: %w", ratelimiter.ErrUnavailable, s.label(), cause)
}

// takeLocally decides q by the local quota.
func (s *Shared) takeLocally(q demand, since time.Time, cause error) (ratelimiter.Result, error) {
	o, key, now := s.config.outages, s.keys[0], time.Now()
	part := &o.quotas[hash(key)%len(o.quotas)]
	part.mu.Lock()
	defer part.mu.Unlock()
	share := part.memory.Ledger(key, outage.MaxLedgers, permit.Rate{}, func(string) bool { return false })
	if share == nil {
		return ratelimiter.Result{}, fmt.Errorf("%w: a call of %s: %w: %w", ratelimiter.ErrUnavailable, s.label(), outage.ErrNoMemory, cause)
	}
	at, left, err := share.When(&o.policy, q.least(), now, since)
	if err != nil {
		return ratelimiter.Result{}, fmt.Errorf("%w: a call of %s: %w: %w", ratelimiter.ErrUnavailable, s.label(), err, cause)
	}
	r := ratelimiter.Result{Granted: !at.After(now), Degraded: true, Available: left, Reset: o.policy.Rate.Interval}
	switch {
	case !r.Granted:
		r.Wait = max(at.Sub(now), leastWait)
	case q.spend:
		n := q.n
		if q.taken != nil {
			n = max(min(n, left), 1)
			*q.taken = n
		}
		share.Take(&o.policy, n, now)
		r.Available = max(0, left-n)
	}
	return r, nil
}

// write makes one attempt at a write that changes nothing. A key that exists stays as it is, and one that does not is empty for a
// millisecond, which is a limiter that has not been used.
func (s *Shared) write(ctx context.Context, to dispatch.Sender) error {
	cmd := redis.NewCmd(ctx, "set", s.keys[len(s.keys)-1], "", "NX", "PX", 1)
	err := dispatch.Send(ctx, to, dispatch.Once{Cmder: cmd})
	if err == redis.Nil { // the key exists
		return nil
	}
	return err
}

// probe makes one attempt at a write, to learn whether Redis is back, and another one on a connection of its own if no other is
// free.
func (s *Shared) probe(ctx context.Context, h *outage.Health, c *outage.Call) {
	defer h.End(c)
	bounded, cancel := context.WithTimeout(ctx, outage.MaxProof)
	defer cancel()
	dispatch.Refresh(bounded, s.config.rdb)
	sent := time.Now()
	err := s.write(bounded, s.config.rdb)
	if err != nil && (permit.IsShortage(err) || bounded.Err() != nil && s.shortage() != nil) {
		if sent, ok := outage.ProbeApart(ctx, owner{s}); ok {
			s.replied(h, c, sent, nil, outage.Wrote)
		}
		return
	}
	s.replied(h, c, sent, err, outage.Wrote)
}

// shortage returns why calls wait for a connection, or nil if they do not.
func (s *Shared) shortage() error { return dispatch.ShortageTo(s.config.rdb, s.keys[0]) }

// replied records what the reply to a call shows, or that there was none.
func (s *Shared) replied(h *outage.Health, c *outage.Call, sent time.Time, err error, what outage.Reply) {
	if err != nil {
		failure := dispatch.Failure(err)
		if !failure.Answered {
			return
		}
		if failure.Outcome != retry.Executed {
			what = outage.NotYet
		}
	}
	if ended, lasted, granted := h.Replied(c, sent, what); ended {
		s.config.event(ratelimiter.Event{Kind: ratelimiter.OutageEnded, Duration: lasted, Degraded: granted})
	}
}

// markDown records that a call has failed in all its attempts.
func (s *Shared) markDown(h *outage.Health, sent time.Time, failure *retry.Error) {
	if !failure.Local && h.MarkDown(sent, failure.Err, failure.ReadOnly) {
		s.config.event(ratelimiter.Event{Kind: ratelimiter.OutageBegan, Err: failure.Err})
	}
}

// reconcile takes from the limiter what the local quota has granted. It is part of a flight, of which the key has one at a
// time.
func (s *Shared) reconcile(ctx context.Context) error {
	o, key := s.config.outages, s.keys[0]
	if o == nil || o.policy.Kind != outage.LocalQuota || checkSettles(s.config.now().algorithm) != nil {
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
			reply := permit.Reply{Granted: []int64{1}, Rate: o.policy.Rate, Now: time.Now()}
			if b.DryRun {
				return reply, nil, nil
			}
			var f flight
			x := settlement{by: b.Runs[0].Permits}
			f.add(&request{demand: demand{spend: true, settlement: &x}, setting: s.now(), slot: s.slot}, false)
			if _, _, failed = s.send(ctx, &f); failed != nil {
				return reply, nil, &retry.Error{Err: failed, Outcome: retry.NotExecuted}
			}
			s.settled(&x)
			return reply, nil, nil
		},
	})
	return failed
}

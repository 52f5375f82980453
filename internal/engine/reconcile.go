package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// maxTellings bounds the calls by which Redis is told of the pending grants. A grant that does not fit is
// split, and sent again if a call has to reclaim more than it may at once.
const maxTellings = 16

// reconcile tells Redis of the pending grants of share. It returns only errors on the way to Redis, each a
// *[retry.Error]. A reply that is an error, for instance because the limiter has no rate, is not returned,
// since Redis is up and the caller's own request gets the same reply. Grants that Redis could not be told of
// then stay pending until it can be told, or until the interval in which they count is over. As long as Redis
// has no room for them, it has none for other requests either.
//
// It needs no limiter, because an idle one may be evicted, and become another one, while the call is on its
// way.
func (h *Handle) reconcile(ctx context.Context, share *outage.Share, typ *permit.Type) error {
	for {
		h.shard.lock()
		start, busy := share.StartReconciling(time.Now())
		h.shard.unlock()
		if start {
			break
		}
		if busy == nil {
			return nil
		}
		select {
		case <-busy:
		case <-h.engine.closed:
			return nil
		}
	}
	err := h.tellAll(ctx, share, typ)
	h.shard.lock()
	share.EndReconciling()
	h.shard.unlock()
	return err
}

// Reconcile tells Redis of the pending grants of the limiter, if there are any, for a caller outside of its line.
func (h *Handle) Reconcile(ctx context.Context) error {
	h.shard.lock()
	share := h.shard.memory.shares[h.key]
	busy := share != nil && share.Busy(time.Now())
	h.shard.unlock()
	if !busy {
		return nil
	}
	typ := h.Type()
	ctx = context.WithoutCancel(ctx)
	return h.gated(ctx, "charge", func(bool) error { return h.reconcile(ctx, share, &typ) })
}

// tellAll sends the pending grants. It first asks for the time of Redis, in order to date them back.
func (h *Handle) tellAll(ctx context.Context, share *outage.Share, typ *permit.Type) error {
	begin := time.Now()
	newID := h.engine.cfg.Backends.NewID
	there, refusal, err := h.tell(ctx, permit.Batch{ID: newID(), Runs: []permit.Run{{Permits: 1, Count: 1}}, DryRun: true}, typ)
	if err != nil || refusal != nil {
		return err
	}
	h.shard.lock()
	pending := share.Stage(time.Now(), newID)
	h.shard.unlock()
	for sent := 0; err == nil && refusal == nil && len(pending) > 0 && sent < maxTellings; sent++ {
		d := pending[0]
		age := begin.Sub(d.At)
		if age >= there.Rate.Interval {
			pending = pending[1:]
			continue
		}
		var a permit.Reply
		a, refusal, err = h.tell(ctx, permit.Batch{ID: d.ID, Runs: []permit.Run{{Permits: d.Permits, Count: 1}}, Replay: d.Replay,
			At: there.Now.Add(-age)}, typ)
		switch room := roomOf(&a); {
		case err != nil:
			failure, ok := err.(*retry.Error)
			pending[0].Replay = d.Replay || ok && failure.Outcome == retry.Unknown
		case refusal != nil:
		case a.Granted[0] == 1:
			pending = pending[1:]
		case a.Next == permit.Rest:
		case room < 1 || room >= d.Permits:
			sent = maxTellings // Redis has no room now
		default:
			pending[0] = outage.Pending{At: d.At, Permits: room, ID: newID()}
			pending = append(pending, outage.Pending{At: d.At, Permits: d.Permits - room, ID: newID()})
		}
	}
	h.shard.lock()
	share.SetPending(pending)
	h.shard.unlock()
	return err
}

// roomOf returns how many permits a request that was refused could have had.
func roomOf(a *permit.Reply) int64 {
	if len(a.Granted) > 0 && a.Granted[0] < 0 {
		return a.Rate.Permits
	}
	return a.Available
}

// tell makes one call, and another if the limiter turns out to have the other type, which it stores in *typ. A
// refusal is an error that Redis replied; err is an error on the way to Redis. After any reply nothing more is
// granted without Redis.
func (h *Handle) tell(ctx context.Context, b permit.Batch, typ *permit.Type) (a permit.Reply, refusal, err error) {
	for typeChanges := 0; ; typeChanges++ {
		b.Type = *typ
		h.Touch()
		sent := time.Now()
		a, err := h.backend.Acquire(ctx, &b)
		h.Touch()
		h.noteReply(nil, sent, err)
		if failure, ok := err.(*retry.Error); ok {
			if failure.Outcome != retry.Executed {
				return permit.Reply{}, nil, failure
			}
			return permit.Reply{}, failure, nil
		}
		other, ok := err.(*permit.WrongTypeError)
		if !ok || typeChanges == permit.MaxTypeChanges {
			return a, err, nil
		}
		*typ = other.Type
		h.LearnType(other.Type)
	}
}

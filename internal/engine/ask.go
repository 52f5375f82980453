// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// This file asks for permits outside of the queue, for a caller that needs more than one limiter, or only looks.

// maxAsks bounds the calls for one reply: each step of a walk or of a reclaim is one.
const maxAsks = 10_000

// An Asked is what the last call of [Handle.Ask] may have been granted. The zero value is that of one that certainly was
// granted nothing.
type Asked struct {
	Type permit.Type
	ID   permit.ID
}

// Peek returns the reply that a request would get, without taking permits and without keeping the limiter alive.
func (h *Handle) Peek(ctx context.Context, permits int64) (permit.Reply, error) {
	a, _, err := h.ask(ctx, permits, permit.Batch{DryRun: true})
	return a, err
}

// Look is like [Handle.Peek], but keeps the limiter alive, as a call that takes permits does.
func (h *Handle) Look(ctx context.Context, permits int64) (permit.Reply, error) {
	a, _, err := h.ask(ctx, permits, permit.Batch{DryRun: true, Renew: true})
	return a, err
}

// Ask asks for permits until the reply is complete. It does not wait in the queue.
func (h *Handle) Ask(ctx context.Context, permits int64) (permit.Reply, Asked, error) {
	return h.ask(ctx, permits, permit.Batch{})
}

// Check looks for permits that are lost or too many, if that is due, for a caller whose own calls do not check anything.
func (h *Handle) Check(ctx context.Context, permits int64) error {
	cause := h.backend.CheckDue()
	if cause == permit.Sick {
		return nil
	}
	_, _, err := h.ask(ctx, permits, permit.Batch{DryRun: true, Renew: true, Check: cause})
	return err
}

// ask makes the call b, whose ID and runs it sets, until the reply is complete.
func (h *Handle) ask(ctx context.Context, permits int64, b permit.Batch) (a permit.Reply, asked Asked, err error) {
	b.Floor = h.floor
	b.Runs = []permit.Run{{Permits: permits, Count: 1}}
	for range maxAsks {
		begin := time.Now()
		b.ID = h.engine.cfg.Backends.NewID()
		var unsure bool
		a, unsure, err = h.askOnce(ctx, &b)
		asked = Asked{Type: b.Type, ID: b.ID.Run(0)}
		if err != nil {
			if !unsure {
				asked = Asked{}
			}
			return permit.Reply{}, asked, err
		}
		if a.Granted[0] < 0 {
			return permit.Reply{}, asked, permit.Exceeds(h.name, permits, h.floor, a.Rate.Permits)
		}
		h.learnRate(&a, begin)
		b.Cursor = permit.Cursor{}
		switch {
		case a.Granted[0] > 0:
			if a.Next == permit.Heal {
				_ = h.backend.Heal(ctx, b.Type, b.Check) // the grant stands in any case
			}
			return a, asked, nil
		case a.Next == permit.On:
			b.Cursor = a.Cursor
		case a.Next == permit.Heal && !b.Healed:
			b.Healed = true
			if err := h.backend.Heal(ctx, b.Type, b.Check); err != nil {
				return permit.Reply{}, asked, err
			}
		default:
			return a, asked, nil
		}
	}
	return permit.Reply{}, asked, permit.CountKeepsChanging("acquire", h.name)
}

// askOnce makes the call b until there is a reply. With an error unsure is true where b may have been carried out.
func (h *Handle) askOnce(ctx context.Context, b *permit.Batch) (a permit.Reply, unsure bool, err error) {
	h.Touch()
	defer h.Touch()
	err = h.Gated(ctx, "acquire", func(replay bool) (err error) {
		b.Replay, b.Alone = replay && !b.DryRun, replay
		a, err = h.backend.Acquire(ctx, b)
		failure, lost := err.(*retry.Error)
		unsure = unsure || lost && failure.Outcome != retry.NotExecuted
		return err
	})
	return a, unsure, err
}

// Refund gives back what asked was granted, as if it had not been asked for.
func (h *Handle) Refund(ctx context.Context, asked Asked, permits int64) {
	if asked.ID != (permit.ID{}) {
		h.refund(ctx, asked.Type, permit.Grant{ID: asked.ID, Permits: permits})
		h.Changed()
	}
}

// Settle makes the grant that asked was given, of that many permits, one of another number: less gives permits back, more takes
// them, also where none are left. It does nothing if the grant has expired or is no longer there, and it may be repeated.
func (h *Handle) Settle(ctx context.Context, asked Asked, permits, actual int64) error {
	h.Touch()
	defer h.Touch()
	err := h.Gated(ctx, "settle", func(bool) error {
		return h.backend.Refund(ctx, asked.Type, permit.Grant{ID: asked.ID, Permits: permits, Keep: actual})
	})
	if actual < permits {
		h.Changed()
	}
	return err
}

func (h *Handle) learnRate(a *permit.Reply, begin time.Time) {
	h.shard.lock()
	defer h.shard.unlock()
	h.shard.limiterLocked(h).learnRateLocked(a, begin)
}

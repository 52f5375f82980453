// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// This file asks for permits outside of the queue, for a caller that needs several limiters, or that only looks.

// maxAsks bounds the calls for one reply: each step of a walk or of a reclaim is one call.
const maxAsks = 10_000

// An Asked identifies what the last call of [Link.Ask] may have been granted. The zero value means that it was
// certainly granted nothing.
type Asked struct {
	Type permit.Type
	ID   permit.ID
}

// Peek returns the reply that a request would get, without taking permits and without keeping the limiter alive.
func (l *Link) Peek(ctx context.Context, permits int64) (permit.Reply, error) {
	return l.look(ctx, permits, permit.Batch{DryRun: true})
}

// Look is like [Link.Peek], but keeps the limiter alive, as a call that takes permits does.
func (l *Link) Look(ctx context.Context, permits int64) (permit.Reply, error) {
	return l.LookWaiting(ctx, permits, permit.Allowance{})
}

// LookWaiting is like [Link.Look], and has Redis note who waits, as a says.
func (l *Link) LookWaiting(ctx context.Context, permits int64, a permit.Allowance) (permit.Reply, error) {
	return l.look(ctx, permits, permit.Batch{DryRun: true, Renew: true, Allowance: a})
}

// look makes the call b, which takes nothing.
func (l *Link) look(ctx context.Context, permits int64, b permit.Batch) (a permit.Reply, err error) {
	a, _, err = l.ask(ctx, one(permits), b)
	return a, err
}

// Ask asks for permits until the reply is complete. It does not wait in the queue.
func (l *Link) Ask(ctx context.Context, permits int64) (permit.Reply, Asked, error) {
	return l.ask(ctx, one(permits), permit.Batch{})
}

// AskUpTo asks for as many of the permits as there are, and returns how many it was granted. It does not wait in the queue. What may
// have been granted by a call whose reply is lost goes back, in the background.
func (l *Link) AskUpTo(ctx context.Context, permits int64) (permit.Reply, int64, error) {
	runs := upTo(permits)
	a, asked, err := l.ask(ctx, runs, permit.Batch{})
	if err != nil {
		if asked.ID != (permit.ID{}) {
			l.Background(func() { l.takeBack(context.WithoutCancel(ctx), asked, runs) })
		}
		return a, 0, err
	}
	got := a.Taken(runs)
	if got == 0 && len(runs) > 1 { // the wait is that of the first run
		a, err = l.Peek(ctx, 1)
	}
	return a, got, err
}

// granted returns what the runs of asked were granted.
func granted(asked Asked, runs []permit.Run, a permit.Reply) (grants []permit.Grant) {
	for i, n := range a.Granted {
		if n > 0 {
			grants = append(grants, permit.Grant{ID: asked.ID.Run(i), Permits: n * runs[i].Permits})
		}
	}
	return grants
}

// takeBack gives back what asked was granted, which nobody knows. A replay tells it.
func (l *Link) takeBack(ctx context.Context, asked Asked, runs []permit.Run) {
	var a permit.Reply
	again := permit.Batch{Type: asked.Type, ID: asked.ID, Runs: runs, Floor: l.Floor, Replay: true, Alone: true}
	if l.undo(ctx, func(ctx context.Context, _ bool) (err error) {
		b := again
		a, err = l.Backend.Acquire(ctx, &b)
		return err
	}) == nil {
		l.GiveBack(ctx, asked.Type, granted(asked, runs, a)...)
	}
}

// upTo returns runs of which a script that decides them one after another grants as many permits as there are: half of
// what is asked for, half of the rest, and so on, and at last single permits. Each run is looked for when its reply was
// lost, which takes a step for each of its requests.
func upTo(permits int64) (runs []permit.Run) {
	for permits > permit.MaxRequests {
		half := (permits + 1) / 2
		runs = append(runs, permit.Run{Permits: half, Count: 1})
		permits -= half
	}
	return append(runs, permit.Run{Permits: 1, Count: permits})
}

// Check repairs permits that are lost or too many, if a check is due. It is for a caller whose own calls check
// nothing.
func (l *Link) Check(ctx context.Context, permits int64) error {
	cause := l.Backend.CheckDue(permits)
	if cause == permit.Unchecked {
		return nil
	}
	_, _, err := l.ask(ctx, one(permits), permit.Batch{DryRun: true, Renew: true, Check: cause})
	return err
}

func one(permits int64) []permit.Run { return []permit.Run{{Permits: permits, Count: 1}} }

// ask makes the call b for the runs until the reply is complete. It sets the ID and the runs of b. After an error, asked is zero if
// nothing can have been granted.
func (l *Link) ask(ctx context.Context, runs []permit.Run, b permit.Batch) (a permit.Reply, asked Asked, err error) {
	b.Floor = l.Floor
	b.Runs = runs
	last := len(runs) - 1
	for range maxAsks {
		begin := time.Now()
		b.ID = l.System.Backends.NewID()
		var unsure bool
		a, unsure, err = l.askOnce(ctx, &b)
		asked = Asked{Type: b.Type, ID: b.ID.Run(0)}
		if err != nil {
			if !unsure {
				asked = Asked{}
			}
			return permit.Reply{}, asked, err
		}
		if a.Granted[last] < 0 {
			return permit.Reply{}, Asked{}, permit.Exceeds(l.Name, runs[last].Permits, l.Floor, a.Rate.Permits)
		}
		l.Queue.Learn(l, &a, begin)
		b.Cursor = permit.Cursor{}
		switch {
		case slices.Max(a.Granted) > 0:
			if a.Next == permit.Heal {
				_ = l.heal(ctx, b.Type, b.Check) // the grant stands in any case
			}
			return a, asked, nil
		case a.Next == permit.On:
			b.Cursor = a.Cursor
		case a.Next == permit.Heal && !b.Healed:
			b.Healed = true
			if err := l.heal(ctx, b.Type, b.Check); err != nil {
				return permit.Reply{}, Asked{}, err
			}
		default:
			return a, asked, nil
		}
	}
	return permit.Reply{}, Asked{}, permit.CountKeepsChanging("acquire", l.Name)
}

// askOnce makes the call b until there is a reply. With an error, unsure reports whether b may have been carried out.
func (l *Link) askOnce(ctx context.Context, b *permit.Batch) (a permit.Reply, unsure bool, err error) {
	err = l.Gated(ctx, "acquire", func(ctx context.Context, replay bool) (err error) {
		b.Replay, b.Alone = replay && !b.DryRun, replay
		a, err = l.Backend.Acquire(ctx, b)
		failure, lost := err.(*retry.Error)
		unsure = unsure || lost && failure.Outcome != retry.NotExecuted
		return err
	})
	return a, unsure, err
}

// Refund gives back what asked was granted, as if it had not been asked for.
func (l *Link) Refund(ctx context.Context, asked Asked, permits int64) {
	if asked.ID != (permit.ID{}) {
		l.GiveBack(ctx, asked.Type, permit.Grant{ID: asked.ID, Permits: permits})
	}
}

// Settle changes the grant of asked from the given number of permits to another: a smaller number gives permits back,
// a larger one takes more, even if none are left. It does nothing if the grant has expired or is no longer there, and
// it may be repeated.
func (l *Link) Settle(ctx context.Context, asked Asked, permits, actual int64) error {
	err := l.Change(ctx, "settle", func(ctx context.Context, _ bool) error {
		return l.Backend.Refund(ctx, asked.Type, permit.Grant{ID: asked.ID, Permits: permits, Keep: actual})
	})
	if actual < permits {
		l.Changed()
	}
	return err
}

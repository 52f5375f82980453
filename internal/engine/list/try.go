// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// try asks for all parts once. When ctx is done or the time of the caller is up, it returns at once, and what
// is granted afterwards goes back.
func (w *waiter) try(ctx context.Context) (reply, error) {
	for i := range w.parts {
		w.parts[i].changes, w.parts[i].waits = w.parts[i].Handle.State().Changes, w.parts[i].place.Waits()
	}
	if ctx.Done() == nil && w.deadline.IsZero() && !w.hasPolicies() {
		return w.lists.tryAll(ctx, w.parts, nil)
	}
	parts := slices.Clone(w.parts) // the caller may go on to use its own
	x := w.newWork()
	err := parts[0].Handle.Queue.Background(func() {
		ctx := context.WithoutCancel(ctx)
		a, err := w.lists.tryAll(ctx, parts, x)
		if !x.end(a, err) && err == nil && a.Granted {
			refundAll(ctx, parts)
		}
	})
	if err != nil {
		return nothing, err
	}
	return w.await(ctx, x)
}

// tryAll asks until there is a reply, and tells x, if it is not nil, what is known of it before.
func (ls *Lists) tryAll(ctx context.Context, parts []part, x *work) (reply, error) {
	if err := reconcileAll(ctx, parts); err != nil {
		return nothing, err
	}
	list := ls.together(parts)
	if !ls.engine.Config().Backends.InOneCall(list) {
		return tryInTurn(ctx, parts, x)
	}
	for i := range parts {
		// The call for all takes what is plainly free, and checks nothing.
		if err := parts[i].Handle.Check(ctx, parts[i].Permits); err != nil {
			return nothing, err
		}
	}
	for rounds := 0; ; rounds++ {
		rejected, err := ls.takeAll(ctx, parts, list)
		if err != nil {
			return nothing, err
		}
		if len(rejected) == 0 {
			return allGranted(parts), nil
		}
		bound := nothing
		for _, i := range rejected {
			if bound, err = parts[i].longest(ctx, i, bound); err != nil {
				return nothing, err
			}
			x.tell(bound)
		}
		if bound.Bound >= 0 {
			return bound, nil
		}
		// Permits were reclaimed or found in the meantime. If others are always faster, that is a rejection, too.
		if rounds == 3 {
			return rejection(rejected[0], &permit.Reply{}), nil
		}
	}
}

// together returns the parts for a call for all of them.
func (ls *Lists) together(parts []part) []permit.Part {
	list := make([]permit.Part, len(parts))
	for i, p := range parts {
		list[i] = permit.Part{Limiter: p.Handle.Backend, Permits: p.Permits, Floor: p.Handle.Floor, ID: ls.engine.Config().Backends.NewID().Run(0)}
	}
	return list
}

// rejection returns the reply that the i-th limiter rejected.
func rejection(i int, a *permit.Reply) reply {
	return reply{Outcome: Outcome{Bound: i, Wait: max(a.Wait, time.Millisecond)}, rejected: true, rate: a.Rate, at: time.Now()}
}

// now returns a with what is left of the wait.
func (a reply) now() reply {
	if a.rejected {
		passed := time.Since(a.at).Truncate(time.Millisecond)
		a.Wait, a.at = max(a.Wait-passed, time.Millisecond), a.at.Add(passed)
	}
	return a
}

// longest returns the reply that the i-th limiter, that of p, rejects, if it takes longer than bound.
func (p *part) longest(ctx context.Context, i int, bound reply) (reply, error) {
	a, err := p.Handle.LookWaiting(ctx, p.Permits, p.waits)
	if err != nil {
		return nothing, err
	}
	if a.Granted[0] == 0 && (bound.Bound < 0 || a.Wait > bound.now().Wait) {
		bound = rejection(i, &a)
	}
	return bound, nil
}

// takeAll asks for all parts at one instant, as list has them. It returns the indexes of those that reject, none if all are
// granted. After an error nothing is held: what may have been granted goes back.
func (ls *Lists) takeAll(ctx context.Context, parts []part, list []permit.Part) (rejected []int, err error) {
	touch := func() {
		for _, p := range parts[1:] { // Gated touches the first
			p.Handle.Touch()
		}
	}
	touch()
	defer touch()
	unsure := false
	err = parts[0].Handle.Gated(ctx, "acquire", func(ctx context.Context, replay bool) (err error) {
		rejected, err = ls.engine.Config().Backends.AcquireAll(ctx, list, replay)
		failure, lost := err.(*retry.Error)
		unsure = unsure || lost && failure.Outcome != retry.NotExecuted
		return err
	})
	for i := range parts {
		parts[i].asked = link.Asked{Type: list[i].Type, ID: list[i].ID}
	}
	if err != nil && unsure {
		refundSoon(ctx, parts)
	}
	return rejected, err
}

// tryInTurn asks one limiter after another, and gives back what was granted if one rejects.
func tryInTurn(ctx context.Context, parts []part, x *work) (reply, error) {
	for i := range parts {
		var a permit.Reply
		var err error
		a, parts[i].asked, err = parts[i].Handle.Ask(ctx, parts[i].Permits)
		if err == nil && a.Granted[0] == 1 {
			continue
		}
		asked, back := parts[:i], refundAll
		bound := rejection(i, &a)
		if err == nil {
			x.tell(bound)
		} else {
			asked = parts[:i+1] // it may have been granted, too
			if ctx.Err() != nil || permit.WasNotServed(err) || errors.Is(err, permit.ErrClosed) {
				back = refundSoon
			}
		}
		back(ctx, asked)
		if err != nil {
			return nothing, err
		}
		for j := i + 1; j < len(parts); j++ {
			if bound, err = parts[j].longest(ctx, j, bound); err != nil {
				return nothing, err
			}
		}
		return bound, nil
	}
	return allGranted(parts), nil
}

// refundSoon is refundAll where Redis may not reply for long, or the caller has left. Nobody waits for it.
func refundSoon(ctx context.Context, parts []part) {
	back := slices.Clone(parts)
	back[0].Handle.Background(func() { refundAll(context.WithoutCancel(ctx), back) })
}

// refundAll gives back what was granted, as if it had not been asked for.
func refundAll(ctx context.Context, parts []part) {
	for _, p := range parts {
		p.Handle.Refund(ctx, p.asked, p.Permits)
	}
}

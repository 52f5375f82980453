package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// inBackground runs f in a goroutine of its own, for which Close waits. It returns ErrClosed if the Engine is
// closed.
func (w *listWaiter) inBackground(f func()) error {
	s := w.parts[0].h.shard
	s.lock()
	defer s.unlock()
	if s.closed { // Close waits only for those counted before
		return permit.ErrClosed
	}
	w.engine.calls.Add(1)
	go func() {
		defer w.engine.calls.Done()
		f()
	}()
	return nil
}

// try asks for all parts once. When ctx is done or the time of the caller is up, it returns at once, and what
// is granted afterwards goes back.
func (w *listWaiter) try(ctx context.Context) (listReply, error) {
	for i := range w.parts {
		w.parts[i].changes = w.parts[i].h.changesSeen()
	}
	if ctx.Done() == nil && w.deadline.IsZero() && !w.hasPolicies() {
		return w.engine.tryAll(ctx, w.parts)
	}
	type result struct {
		a   listReply
		err error
	}
	var (
		mu    sync.Mutex
		left  bool
		done  = make(chan result, 1)
		parts = append([]part(nil), w.parts...) // the caller may go on to use its own
		slow  = w.engine.slowed.next()
		began = time.Now()
	)
	err := w.inBackground(func() {
		ctx := context.WithoutCancel(ctx)
		a, err := w.engine.tryAll(ctx, parts)
		mu.Lock()
		defer mu.Unlock()
		if !left {
			done <- result{a, err}
		} else if err == nil && a.Granted {
			refundAll(ctx, parts)
		}
	})
	if err != nil {
		return nothing, err
	}
	leave := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left = len(done) == 0
		return left
	}
	timeUp, stop := w.timeUp()
	defer stop()
	for {
		select {
		case r := <-done:
			return r.a, r.err
		case <-ctx.Done():
			if leave() {
				return nothing, permit.Left(names(w.parts), began, w.failure(), ctx.Err())
			}
		case <-timeUp:
			if leave() {
				return nothing, permit.Left(names(w.parts), began, w.failure(), nil)
			}
		case <-slow:
			slow = w.engine.slowed.next()
			cause := w.downBecause()
			if cause == nil {
				continue
			}
			if leave() {
				return nothing, fmt.Errorf("%w: %s: %w", permit.ErrUnavailable, names(w.parts), cause)
			}
		}
		r := <-done
		return r.a, r.err
	}
}

// hasPolicies reports whether a policy that is not closed applies to any part.
func (w *listWaiter) hasPolicies() bool {
	return slices.ContainsFunc(w.parts, func(p part) bool { return p.policy != nil })
}

// downBecause returns why the Redis of any part is down, or nil.
func (w *listWaiter) downBecause() error {
	for _, p := range w.parts {
		if _, err := p.h.Health().Since(); err != nil {
			return err
		}
	}
	return nil
}

// failure returns how the last attempt to reach the Redis of any part failed, or nil if there has been a reply since.
func (w *listWaiter) failure() error {
	for _, p := range w.parts {
		if err := p.h.Health().Failure(); err != nil {
			return err
		}
	}
	return nil
}

// tryAll asks until there is a reply.
func (e *Engine) tryAll(ctx context.Context, parts []part) (listReply, error) {
	if err := reconcileAll(ctx, parts); err != nil {
		return nothing, err
	}
	limiters := make([]any, len(parts))
	for i := range parts {
		limiters[i] = parts[i].h.backend
	}
	if !e.cfg.Backends.Joint(limiters) {
		return tryInTurn(ctx, parts)
	}
	for i := range parts {
		// The joint call takes what is plainly free, and checks nothing.
		if check, lowered := parts[i].h.takeCheck(); check {
			if _, err := parts[i].ask(ctx, permit.Batch{DryRun: true, Renew: true, Check: true, Lowered: lowered}); err != nil {
				return nothing, err
			}
		}
	}
	for i := range parts {
		parts[i].typ = parts[i].h.Type()
		parts[i].id = e.cfg.Backends.NewID().Run(0)
	}
	for rounds := 0; ; rounds++ {
		refused, err := e.takeAll(ctx, parts)
		if err != nil {
			return nothing, err
		}
		if len(refused) == 0 {
			return allGranted, nil
		}
		bound := nothing
		for _, i := range refused {
			a, err := parts[i].look(ctx)
			if err != nil {
				return nothing, err
			}
			if a.Granted[0] == 0 && (bound.Bound < 0 || a.Wait > bound.Wait) {
				bound = refusal(i, &a)
			}
		}
		if bound.Bound >= 0 {
			return bound, nil
		}
		// Permits were reclaimed or found in the meantime. If others are always faster, that is a refusal, too.
		if rounds == 3 {
			return listReply{ListOutcome: ListOutcome{Bound: refused[0], Wait: time.Millisecond}, refused: true}, nil
		}
	}
}

// refusal returns the reply that the i-th limiter refused.
func refusal(i int, a *permit.Reply) listReply {
	return listReply{ListOutcome: ListOutcome{Bound: i, Wait: max(a.Wait, time.Millisecond)}, refused: true, rate: a.Rate}
}

// takeAll asks for all parts at one instant. It returns the indexes of those that refuse, none if all are
// granted.
func (e *Engine) takeAll(ctx context.Context, parts []part) (refused []int, err error) {
	touch := func() {
		for _, p := range parts {
			p.h.Touch()
		}
	}
	touch()
	defer touch()
	first := parts[0].h
	list := make([]permit.Part, len(parts))
	for typeChanges := 0; ; typeChanges++ {
		for i, p := range parts {
			list[i] = permit.Part{Limiter: p.h.backend, Type: p.typ, ID: p.id, Permits: p.permits}
		}
		err := first.gated(ctx, "acquire", func(replay bool) (err error) {
			sent := time.Now()
			refused, err = e.cfg.Backends.AcquireAll(ctx, list, replay)
			first.noteReply(nil, sent, err)
			return err
		})
		if _, ok := err.(*permit.WrongTypeError); !ok {
			return refused, err
		}
		for i := range parts {
			if parts[i].typ != list[i].Type {
				parts[i].typ = list[i].Type
				parts[i].h.LearnType(list[i].Type)
			}
		}
		if typeChanges == permit.MaxTypeChanges*len(parts) {
			return nil, permit.TypeKeepsChanging("acquire", first.name)
		}
	}
}

// tryInTurn asks one limiter after another, and gives back what was granted if one refuses.
func tryInTurn(ctx context.Context, parts []part) (listReply, error) {
	for i := range parts {
		a, err := parts[i].take(ctx)
		if err == nil && a.Granted[0] == 1 {
			continue
		}
		if err != nil {
			i++ // it may have been granted, too, unless it has no ID
		}
		refundAll(ctx, parts[:i])
		if err != nil {
			return nothing, err
		}
		bound := refusal(i, &a)
		for j := i + 1; j < len(parts); j++ {
			a, err := parts[j].look(ctx)
			if err != nil {
				return nothing, err
			}
			if a.Granted[0] == 0 && a.Wait > bound.Wait {
				bound = refusal(j, &a)
			}
		}
		return bound, nil
	}
	return allGranted, nil
}

// refundAll gives back what was granted, as if it had not been asked for.
func refundAll(ctx context.Context, parts []part) {
	for _, p := range parts {
		if p.id != (permit.ID{}) {
			p.h.refund(ctx, p.typ, permit.Grant{ID: p.id, Permits: p.permits})
			p.h.Changed()
		}
	}
}

// maxAsks bounds the calls for one reply: each step of a walk or of a reclaim is one.
const maxAsks = 10_000

// look asks for the part alone, without taking permits, until the reply is complete. It keeps the limiter alive, as a
// call that takes permits does.
func (p *part) look(ctx context.Context) (permit.Reply, error) {
	return p.ask(ctx, permit.Batch{DryRun: true, Renew: true})
}

// take asks for the part alone until the reply is complete.
func (p *part) take(ctx context.Context) (permit.Reply, error) {
	check, lowered := p.h.takeCheck()
	return p.ask(ctx, permit.Batch{Check: check, Lowered: lowered})
}

// ask makes the call b, whose type, ID and runs it sets, until the reply is complete.
func (p *part) ask(ctx context.Context, b permit.Batch) (permit.Reply, error) {
	h := p.h
	b.Type, b.Runs = h.Type(), []permit.Run{{Permits: p.permits, Count: 1}}
	audited, typeChanges := false, 0
	for range maxAsks {
		begin := time.Now()
		b.ID = h.engine.cfg.Backends.NewID()
		p.id, p.typ = b.ID.Run(0), b.Type
		a, unsure, err := h.askOnce(ctx, &b)
		if other, ok := err.(*permit.WrongTypeError); ok {
			if typeChanges++; typeChanges > permit.MaxTypeChanges {
				return permit.Reply{}, permit.TypeKeepsChanging("acquire", h.name)
			}
			b.Type = other.Type
			h.LearnType(other.Type)
			continue
		}
		if err != nil {
			if !unsure {
				p.id = permit.ID{}
			}
			return permit.Reply{}, err
		}
		if a.Granted[0] < 0 {
			return permit.Reply{}, permit.Exceeds(h.name, p.permits, a.Rate.Permits)
		}
		h.learnRate(&a, begin)
		b.Cursor = permit.Cursor{}
		switch {
		case a.Granted[0] > 0 && a.Next == permit.Audit && b.Check:
			_ = h.backend.Audit(ctx, b.Type, b.Lowered) // the grant stands in any case
			return a, nil
		case a.Granted[0] > 0:
			return a, nil
		case a.Next == permit.Rest:
		case a.Next == permit.Walk:
			b.Cursor = a.Cursor
		case a.Next == permit.Audit && !audited:
			audited, b.Check = true, false
			if err := h.backend.Audit(ctx, b.Type, b.Lowered); err != nil {
				return permit.Reply{}, err
			}
		case a.Next == permit.Done && !b.Check && !audited && h.takeAudit(a.Rate.Interval):
			b.Check = true
		default:
			return a, nil
		}
	}
	return permit.Reply{}, permit.CountKeepsChanging("acquire", h.name)
}

// askOnce makes the call b until there is a reply. With an error unsure is true where b may have been carried out.
func (h *Handle) askOnce(ctx context.Context, b *permit.Batch) (a permit.Reply, unsure bool, err error) {
	h.Touch()
	defer h.Touch()
	err = h.gated(ctx, "acquire", func(replay bool) (err error) {
		b.Replay, b.Alone = replay && !b.DryRun, replay
		sent := time.Now()
		a, err = h.backend.Acquire(ctx, b)
		failure, lost := err.(*retry.Error)
		unsure = unsure || lost && failure.Outcome != retry.NotExecuted
		h.noteReply(nil, sent, err)
		return err
	})
	return a, unsure, err
}

// takeAudit reports whether the caller should look for lost permits now, which nobody else then does for a
// while.
func (h *Handle) takeAudit(interval time.Duration) bool {
	h.shard.lock()
	defer h.shard.unlock()
	l, now := h.shard.limiterLocked(h), time.Now()
	if now.Before(l.checks.nextAudit) {
		return false
	}
	l.checks.postpone(now.Add(auditEvery(interval)))
	return true
}

// takeCheck is [checks.take] for a list, for which each check is a call of its own. It makes the limiter known,
// so that the next check has a time.
func (h *Handle) takeCheck() (check, lowered bool) {
	h.shard.lock()
	defer h.shard.unlock()
	l, now := h.shard.limiterLocked(h), time.Now()
	check, lowered = l.checks.take(now, l.rate.Interval, 4*CheckSample)
	if l.checks.nextCheck.IsZero() {
		l.checks.nextCheck = now.Add(time.Second) // no reply has reported the interval
	}
	return check, lowered
}

func (h *Handle) learnRate(a *permit.Reply, begin time.Time) {
	h.shard.lock()
	defer h.shard.unlock()
	h.shard.limiterLocked(h).learnRateLocked(a, begin)
}

// names returns what a list asks for, for errors.
func names(parts []part) string {
	var b strings.Builder
	b.WriteString("acquire of ")
	for i, p := range parts {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", p.h.name)
	}
	return b.String()
}

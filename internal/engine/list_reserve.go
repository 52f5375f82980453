package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// This file serves a list that would otherwise starve: limiters that are wanted by many refuse it in turns, or
// a peer in another process, which stands in no line of this one, always takes what the list waits for. The
// list then reserves permits in Redis, one limiter after another, and is granted all of them when it has them.
//
// A reservation is a grant that is moved to the present instant until it is used, so the window that counts it
// is exact. Meanwhile its permits lie idle. That is bounded by maxReserved at a time, and by idleShare in the
// long run.

const (
	// maxReserved is the number of intervals of a limiter for which a list reserves its permits, from when it
	// begins to gather them. If no other process competes, they are gathered after one interval, and so are
	// those of the other limiters.
	maxReserved = 4
	// idleShare is the part of a limiter's rate that may lie idle for lists, and the part of the time for which
	// lists that fail to gather its permits may hold up its callers. After an attempt the limiter is not
	// reserved until that is made up for.
	idleShare = 0.1
	// gatherSteps is the largest number of steps, each of them a call, in which permits are gathered that come
	// back one by one within an interval. In a long interval a step takes maxGatherStep.
	gatherSteps   = 100
	maxGatherStep = 100 * time.Millisecond
)

// starves reports whether the list that a refuses has been passed over: its limiters refuse in turns, or one
// has refused it for an interval, in which every permit came back once.
func (w *listWaiter) starves(a listReply) bool {
	return a.refused && (w.rebounds >= reboundsToReserve || a.rate.Interval > 0 && time.Since(w.boundSince) > a.rate.Interval)
}

// contend is what a starving list does after the reply a, and returns the next reply. The list reserves if it
// may, and otherwise waits until it may, outside of all lines. It reports false if the time of the caller is
// up.
func (w *listWaiter) contend(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	if a.rate.Interval > 0 && a.Wait > a.rate.Interval {
		// In a cool-down nobody gets anything. The line is the place to wait for its end.
		w.engine.contenders.leave(w)
		return w.standAndTry(ctx, a)
	}
	if i := w.olderAhead(); i >= 0 {
		a.Bound, a.Wait = i, time.Until(w.parts[i].h.grantableAt())
		return w.standAndTry(ctx, a)
	}
	w.engine.contenders.enter(w)
	may, at := w.engine.contenders.mayReserve(w)
	w.endTurns()
	if may {
		// What is free by now, in the pause behind another list, needs no reservation.
		if next, err = w.try(ctx); err != nil || next.Granted {
			return next, true, err
		}
		return w.reserve(ctx, next)
	}
	// Trying now and then costs others nothing; all lists together do so at most every other millisecond.
	d := max(a.Wait, a.rate.Interval/8, 2*time.Millisecond*time.Duration(w.engine.contenders.count()))
	d = min(d, max(w.engine.cfg.Recheck, a.Wait), renewEvery(a.rate))
	if !at.IsZero() {
		d = min(d, time.Until(at))
	}
	slept, err := w.sleep(ctx, d, w.next)
	if err != nil || slept && w.isLate(0) {
		return a, false, err
	}
	if !slept || !at.IsZero() && time.Now().Before(at) || w.behindOthers() {
		return a, true, nil
	}
	next, err = w.try(ctx)
	return next, true, err
}

// reserve gathers the permits of all limiters that refuse, so that they are complete at about the same time,
// until all are granted or may not be held any longer. What has not been granted by then goes back at once.
func (w *listWaiter) reserve(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	s := &listAttempt{w: w, stop: make(chan struct{}), done: make(chan struct{}), list: make([]listPart, len(w.parts))}
	id := w.engine.cfg.Backends.NewID().Run(0) // in all of its limiters, so that it has one place among those that came at one instant
	for i, p := range w.parts {
		s.list[i].reservation = reservation{h: p.h, permits: p.permits, typ: p.h.Type(), id: id}
	}
	background, slow, began := context.WithoutCancel(ctx), w.engine.slowed.next(), time.Now()
	if err := w.inBackground(func() { s.run(background) }); err != nil {
		return a, true, err
	}
	timeUp, stop := w.timeUp()
	defer stop()
	for err == nil {
		select {
		case <-s.done:
			return s.a, true, s.err
		case <-ctx.Done():
			if err = ctx.Err(); w.failure() != nil {
				err = permit.Left(names(w.parts), began, w.failure(), err)
			}
		case <-w.engine.closed:
			err = permit.ErrClosed
		case <-timeUp:
			err = permit.Left(names(w.parts), began, w.failure(), nil)
		case <-slow:
			slow = w.engine.slowed.next()
			if cause := w.downBecause(); cause != nil {
				err = fmt.Errorf("%w: %s: %w", permit.ErrUnavailable, names(w.parts), cause)
			}
		}
	}
	s.mu.Lock()
	s.left = !s.ended
	s.mu.Unlock()
	if !s.left {
		<-s.done
		return s.a, true, s.err
	}
	close(s.stop)
	s.letGo()
	return a, true, err
}

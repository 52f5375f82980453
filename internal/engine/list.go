package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Demand asks for permits of one limiter of a list.
type Demand struct {
	Handle  *Handle
	Permits int64
	Policy  *outage.Policy // nil for FailClosed
}

// A ListOutcome is how a request for several limiters ended.
type ListOutcome struct {
	Granted  bool
	Bound    int           // the index of the limiter that refused, -1 for none; of several, the one with the longest wait
	Wait     time.Duration // how long it takes until that limiter could grant its part
	Degraded bool          // a policy decided at least one part
}

// AcquireAll decides a request for several limiters, all of it or nothing. If wait is true it waits until the
// deadline, which is zero for none. Each limiter must be in the list once, in the order of the keys.
func (e *Engine) AcquireAll(ctx context.Context, demands []Demand, wait bool, deadline time.Time) (ListOutcome, error) {
	if len(demands) == 1 {
		return demands[0].alone(ctx, wait, deadline)
	}
	w := &listWaiter{engine: e, parts: make([]part, len(demands)), deadline: deadline}
	for i, d := range demands {
		w.parts[i] = part{h: d.Handle, permits: d.Permits, policy: d.Policy}
	}
	if wait {
		return w.acquire(ctx)
	}
	if a, decided, err := w.tryLocal(ctx); decided {
		return a, err
	}
	a, err := w.try(ctx)
	if errors.Is(err, permit.ErrUnavailable) && ctx.Err() == nil {
		if a, decided, err := w.tryLocal(ctx); decided {
			return a, err
		}
	}
	return a.ListOutcome, err
}

// alone decides a list of one limiter, which is an ordinary request.
func (d *Demand) alone(ctx context.Context, wait bool, deadline time.Time) (ListOutcome, error) {
	r, err := d.Handle.Acquire(ctx, Request{Permits: d.Permits, Wait: wait, TellWait: true, Timeout: timeout(deadline), Policy: d.Policy})
	switch {
	case err != nil:
		return ListOutcome{Bound: -1}, err
	case r.Granted:
		return ListOutcome{Granted: true, Bound: -1, Degraded: r.Degraded}, nil
	}
	return ListOutcome{Wait: r.Wait, Degraded: r.Degraded}, nil
}

// A part asks for permits of one limiter of a list, on the way to the backend.
type part struct {
	h       *Handle
	permits int64
	policy  *outage.Policy
	typ     permit.Type
	id      permit.ID // of the grant; zero if there can be none
	changes int       // of the limiter, before it was asked
}

// A listReply is a ListOutcome with what the line has to know about the limiter that bound.
type listReply struct {
	ListOutcome
	refused bool
	rate    permit.Rate
}

var (
	nothing    = listReply{ListOutcome: ListOutcome{Bound: -1}}
	allGranted = listReply{ListOutcome: ListOutcome{Granted: true, Bound: -1}}
)

// A listWaiter is a caller of several limiters on its way through their lines.
type listWaiter struct {
	engine   *Engine
	parts    []part
	deadline time.Time // zero for none
	seq      uint64
	since    time.Time  // when it began to wait
	turns    []*request // the turn at the limiter that bound, if it has it
	rebounds int        // how often the limiter that bound has changed
	fails    time.Time  // since when Redis has been unavailable to it; zero if it is not

	boundSince time.Time // since when the current limiter has bound
	contends   bool      // it is among the contenders of the Engine, which may read the fields below
	wants      []string  // keys of the limiters
	next       chan struct{}
}

// reboundsToReserve is the number of moves from line to line after which a list reserves permits.
const reboundsToReserve = 2

// acquire waits until all parts are granted, or the time of the caller is up. Each turn of the loop asks once: the
// policies, if they decide; otherwise Redis, at once if no limiter is known to refuse, or else when that limiter lets w.
func (w *listWaiter) acquire(ctx context.Context) (ListOutcome, error) {
	defer w.leaveLines()
	e := w.engine
	w.seq, w.since = e.seq.Add(1), time.Now()
	a := nothing // the last reply; if a.refused is false, a.Bound is a limiter for which others wait
	a.Bound = w.busy()
	for {
		if r, decided, err := w.tryLocal(ctx); decided {
			if err != nil || r.Granted || e.cfg.RefuseEarly && w.isLate(r.Wait) {
				return r, err
			}
			w.leaveLines()
			a = nothing
			if ok, err := w.waitForLocal(ctx, r.Wait); err != nil {
				return nothing.ListOutcome, err
			} else if !ok {
				return r, nil
			}
			continue
		}
		var next listReply
		var err error
		if a.Bound < 0 {
			next, err = w.try(ctx)
		} else {
			if a.refused && (w.isLate(0) || e.cfg.RefuseEarly && w.isLate(a.Wait)) {
				return a.ListOutcome, nil
			}
			began := time.Now()
			var inTime bool
			next, inTime, err = w.waitAndTry(ctx, a)
			yields := ctx.Err() == nil && w.hasPolicies() && errors.Is(err, permit.ErrUnavailable)
			switch {
			case !inTime && err == nil:
				return w.tooLate(a, began), nil
			case !inTime && !yields:
				return nothing.ListOutcome, err
			}
		}
		switch {
		case err == nil && next.Granted:
			return next.ListOutcome, nil
		case err == nil:
			w.noteRefusal(a, next)
			a = next
		case errors.Is(err, permit.ErrUnavailable) && ctx.Err() == nil && time.Until(w.outageLimit()) > 0 && !w.isLate(0):
			w.leaveLines()
			a = nothing
			if w.decidesLocally() {
				continue
			}
			if err := w.waitOutOutage(ctx, err); err != nil {
				return nothing.ListOutcome, err
			}
		default:
			return nothing.ListOutcome, err
		}
	}
}

// waitAndTry waits until w may ask again after the reply a, and asks; if it has to go on waiting, next is a. It reports
// false if the time of the caller is up or, with an error, if the caller no longer waits.
func (w *listWaiter) waitAndTry(ctx context.Context, a listReply) (next listReply, inTime bool, err error) {
	if w.starves(a) {
		return w.contend(ctx, a)
	}
	return w.standAndTry(ctx, a)
}

// tooLate returns the outcome of a list whose time was up while it waited after the reply a, which it has done since
// began.
func (w *listWaiter) tooLate(a listReply, began time.Time) ListOutcome {
	if !a.refused { // the list could not ask at all
		a.Wait = time.Until(w.parts[a.Bound].h.grantableAt())
	}
	a.Wait = max(a.Wait-time.Since(began).Truncate(time.Millisecond), time.Millisecond)
	return a.ListOutcome
}

// noteRefusal takes in that the list is refused, where a is the reply before next.
func (w *listWaiter) noteRefusal(a, next listReply) {
	w.fails = time.Time{}
	if a.refused && next.Bound != a.Bound {
		w.rebounds++
	}
	if !a.refused || next.Bound != a.Bound {
		w.boundSince = time.Now()
	}
}

// isLate reports whether the time of the caller is up before d is over.
func (w *listWaiter) isLate(d time.Duration) bool {
	return !w.deadline.IsZero() && time.Until(w.deadline) <= d
}

// timeout returns the time left as Request.Timeout takes it, where 0 stands for no limit.
func timeout(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// waitOutOutage waits until the next probe of the outage that caused err, or until its end.
func (w *listWaiter) waitOutOutage(ctx context.Context, err error) error {
	next, over := time.Now().Add(outage.ProbePause()), (<-chan struct{})(nil)
	for _, p := range w.parts {
		if at, ch, down := p.h.Health().Next(); down {
			next, over = at, ch
			break
		}
	}
	slept, stopped := w.sleep(ctx, min(time.Until(next), time.Until(w.outageLimit())), over)
	if stopped != nil && stopped != permit.ErrClosed {
		return fmt.Errorf("%w: %w", err, stopped)
	}
	if stopped != nil {
		return stopped
	}
	if slept && (w.isLate(0) || time.Until(w.outageLimit()) <= 0) {
		return err
	}
	return nil
}

// outageLimit returns how long the caller waits for Redis, which is unavailable: the outage limit from when that is
// known, or from when the caller came.
func (w *listWaiter) outageLimit() time.Time {
	if w.fails.IsZero() {
		w.fails = time.Now()
		for _, p := range w.parts {
			if since, down := p.h.Health().Since(); down != nil && since.Before(w.fails) {
				w.fails = since
			}
		}
		if w.since.After(w.fails) {
			w.fails = w.since
		}
	}
	return w.fails.Add(w.engine.cfg.OutageLimit)
}

// sleep sleeps for d, or until the time of the caller is up or over is closed, in which case slept is false. An
// error means that the caller no longer waits.
func (w *listWaiter) sleep(ctx context.Context, d time.Duration, over <-chan struct{}) (slept bool, err error) {
	if !w.deadline.IsZero() {
		d = min(d, time.Until(w.deadline))
	}
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true, nil
	case <-over:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.engine.closed:
		return false, permit.ErrClosed
	}
}

// timeUp returns a channel that receives when the time of the caller and the grace are over, nil for a caller
// without a deadline, and a function that stops the timer.
func (w *listWaiter) timeUp() (<-chan time.Time, func() bool) {
	if w.deadline.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(time.Until(w.deadline.Add(Grace)))
	return t.C, t.Stop
}

// firstPart returns the index of the first part whose limiter the process uses and for which is reports true,
// or -1. The function is is called under the lock.
func (w *listWaiter) firstPart(is func(*limiter) bool) int {
	return slices.IndexFunc(w.parts, func(p part) bool {
		p.h.shard.lock()
		defer p.h.shard.unlock()
		l := p.h.shard.findLocked(p.h.key)
		return l != nil && is(l)
	})
}

// busy returns the index of the first limiter for which somebody waits, or -1. A list that comes later does not
// ask before those that wait.
func (w *listWaiter) busy() int {
	return w.firstPart(func(l *limiter) bool { return l.waiters.n > 0 || l.turnHolder != nil || l.heldUpFor != nil })
}

// behindOthers reports whether free permits of any limiter are kept for somebody else.
func (w *listWaiter) behindOthers() bool {
	return w.firstPart(func(l *limiter) bool {
		return l.turnHolder != nil || l.heldUpFor != nil || l.headIsStarvingLocked()
	}) >= 0
}

// olderAhead returns the index of the first limiter whose line is headed by a caller that came before w, or -1.
func (w *listWaiter) olderAhead() int {
	return w.firstPart(func(l *limiter) bool { return l.waiters.first != nil && l.waiters.first.seq < w.seq })
}

// standAndTry asks for all parts when it is the turn of w in the line of the limiter that bound. It reports
// false if the time of the caller is up.
func (w *listWaiter) standAndTry(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	if ok, err := w.stand(ctx, a); !ok || err != nil {
		return a, ok, err
	}
	next, err = w.try(ctx)
	return next, true, err
}

// stand waits in the line of the limiter that bound until it is the turn of w. The turn does not bring permits:
// no flight leaves for the line while w asks for all of its parts. It reports false if the time of the caller
// is up.
func (w *listWaiter) stand(ctx context.Context, a listReply) (bool, error) {
	var r *request // the turn that w has there
	for i := len(w.turns) - 1; i >= 0; i-- {
		if w.turns[i].index == a.Bound {
			r = w.turns[i]
			w.turns = slices.Delete(w.turns, i, i+1)
		} else {
			w.endTurn(i)
		}
	}
	r, err := w.joinLine(ctx, r, a)
	if err != nil {
		return false, err
	}
	ended, err := r.turn.await(ctx, w.parts[a.Bound].h.shard, r, timeout(w.deadline))
	if ended == nil {
		return false, err
	}
	if ended.Err != nil || !ended.Granted {
		err := ended.Err
		w.engine.recycle(ended)
		return false, err
	}
	w.turns = append(w.turns, ended)
	return true, nil
}

// joinLine puts w into the line of the limiter that bound, by the time at which it came. If r is not nil, it is
// the turn that w has there and gives up.
func (w *listWaiter) joinLine(ctx context.Context, r *request, a listReply) (*request, error) {
	p, recheck := w.parts[a.Bound], w.recheck(a)
	h, s := p.h, p.h.shard
	s.lock()
	defer s.unlock()
	if s.closed {
		return nil, permit.ErrClosed
	}
	l := s.limiterLocked(h)
	if r != nil {
		l.turnHolder = nil
	} else {
		r = w.engine.newRequest()
	}
	*r = request{ctx: ctx, permits: p.permits, blocking: true, came: w.since, deadline: w.deadline, seq: w.seq, done: r.done,
		timer: r.timer, turn: l, index: a.Bound, refused: a.refused, yields: w.hasPolicies()}
	if l.rate.Interval == 0 {
		typ := l.rate.Type
		l.rate = a.rate
		l.rate.Type, l.rate.Interval = typ, min(a.rate.Interval, maxInterval)
	}
	l.waiters.insert(r)
	l.watchLocked(r)
	if l.waiters.first == r {
		l.newHeadLocked()
		l.headSince = w.since // the time in other lines counts
		if a.refused && l.changes == p.changes {
			l.grantableAt = time.Now().Add(a.Wait)
			l.nextAskAt = time.Now().Add(min(a.Wait, recheck))
		}
	}
	l.scheduleLocked()
	l.rearmLocked()
	return r, nil
}

// recheck returns how long the list that a refuses sleeps at most before it asks again, so that none of its limiters
// expires whose rate is known.
func (w *listWaiter) recheck(a listReply) time.Duration {
	d := w.engine.recheck(a.rate)
	for _, p := range w.parts {
		d = min(d, w.engine.recheck(p.h.lastRate()))
	}
	return d
}

func (w *listWaiter) leaveLines() {
	w.endTurns()
	w.engine.contenders.leave(w)
	w.rebounds = 0
}

func (w *listWaiter) endTurns() {
	for i := len(w.turns) - 1; i >= 0; i-- {
		w.endTurn(i)
	}
}

func (w *listWaiter) endTurn(i int) {
	r := w.turns[i]
	w.turns = slices.Delete(w.turns, i, i+1)
	s := r.turn.shard
	s.lock()
	r.turn.endTurnLocked(r)
	s.unlock()
	w.engine.recycle(r)
}

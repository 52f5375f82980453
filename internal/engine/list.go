package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Demand is what is asked of one limiter of a list.
type Demand struct {
	Handle  *Handle
	Permits int64
	Policy  *outage.Policy // nil for FailClosed
}

// A ListOutcome is how a request for several limiters ended.
type ListOutcome struct {
	Granted  bool
	Bound    int           // the place of the limiter that bound; -1 for none
	Wait     time.Duration // how long until that could grant its part
	Degraded bool          // a policy has decided at least one part
}

// AcquireAll takes a request for several limiters, all of it or nothing, and waits if it is to until the deadline,
// which is zero for none. Each limiter is in the list once, in the order of the keys.
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
	if errors.Is(err, permit.ErrUnavailable) {
		if a, decided, err := w.tryLocal(ctx); decided {
			return a, err
		}
	}
	return a.ListOutcome, err
}

// alone is a list of one limiter: its own line, its own outcome.
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

// A part is what is asked of one limiter of a list.
type part struct {
	h       *Handle
	permits int64
	policy  *outage.Policy
	typ     permit.Type
	id      permit.ID // of the grant; zero where there can be none
	changes int       // the limiter's, before it was asked
}

// A listReply is a ListOutcome with what the line is to know of the limiter that bound.
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
	since    time.Time  // since when it waits
	turns    []*request // that of the limiter that bound, if it has it
	rebounds int        // how often another limiter bound

	boundSince time.Time // since when the one that bound has done so
	contends   bool      // it is among the Engine's contenders, which may read the following
	wants      []string  // keys
	next       chan struct{}
}

// reboundsToReserve is after how many moves from line to line a waiter reserves permits.
const reboundsToReserve = 2

// acquire waits until all parts are granted, or the caller's time is up.
func (w *listWaiter) acquire(ctx context.Context) (ListOutcome, error) {
	defer w.leaveLines()
	e := w.engine
	w.seq, w.since = e.seq.Add(1), time.Now()
	a := nothing
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
		if a.Bound >= 0 { // it refused, or others wait for it
			if a.refused && (w.isLate(0) || e.cfg.RefuseEarly && w.isLate(a.Wait)) {
				return a.ListOutcome, nil
			}
			asked := time.Now()
			var ok bool
			if w.starves(a) {
				next, ok, err = w.contend(ctx, a)
			} else {
				next, ok, err = w.standAndTry(ctx, a)
			}
			if !ok && err != nil {
				return nothing.ListOutcome, err
			}
			if !ok {
				if !a.refused { // its time was up before it could ask
					a.Wait = time.Until(w.parts[a.Bound].h.grantableAt())
				}
				a.Wait = max(a.Wait-time.Since(asked).Truncate(time.Millisecond), time.Millisecond)
				return a.ListOutcome, nil
			}
		} else {
			next, err = w.try(ctx)
		}
		switch {
		case err == nil && next.Granted:
			return next.ListOutcome, nil
		case err == nil:
			if a.refused && next.Bound != a.Bound {
				w.rebounds++
			}
			if !a.refused || next.Bound != a.Bound {
				w.boundSince = time.Now()
			}
			a = next
		case errors.Is(err, permit.ErrUnavailable) && time.Since(w.since) < e.cfg.OutageLimit && !w.isLate(0):
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

// isLate reports whether the caller's time is up before d is over.
func (w *listWaiter) isLate(d time.Duration) bool {
	return !w.deadline.IsZero() && time.Until(w.deadline) <= d
}

// timeout returns the time that is left, as await takes it: 0 for no end.
func timeout(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// waitOutOutage waits while Redis is away.
func (w *listWaiter) waitOutOutage(ctx context.Context, err error) error {
	next, over := time.Now().Add(outage.ProbePause()), (<-chan struct{})(nil)
	for _, p := range w.parts {
		if at, ch, down := p.h.Health().Next(); down {
			next, over = at, ch
			break
		}
	}
	slept, stopped := w.sleep(ctx, time.Until(next), over)
	if stopped != nil {
		return stopped
	}
	if slept && w.isLate(0) {
		return err
	}
	return nil
}

// sleep sleeps until d or the caller's time is up, or over is closed; slept is false then. Errors say that
// the caller waits no longer.
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

// firstPart returns the place of the first part whose limiter the process uses and is says yes to, -1 when there is
// none. is is called under the lock.
func (w *listWaiter) firstPart(is func(*limiter) bool) int {
	return slices.IndexFunc(w.parts, func(p part) bool {
		p.h.shard.lock()
		defer p.h.shard.unlock()
		l := p.h.shard.findLocked(p.h.key)
		return l != nil && is(l)
	})
}

// busy returns the place of the first limiter for which somebody waits, -1 when there is none: who comes later does
// not ask before those who wait.
func (w *listWaiter) busy() int {
	return w.firstPart(func(l *limiter) bool { return l.waiters.n > 0 || l.turnHolder != nil || l.gatherer != nil })
}

// behindOthers reports whether what is free of a limiter is being kept for somebody else.
func (w *listWaiter) behindOthers() bool {
	return w.firstPart(func(l *limiter) bool {
		return l.turnHolder != nil || l.gatherer != nil || l.headIsStarvingLocked()
	}) >= 0
}

// olderAhead returns the place of the first limiter in whose line somebody stands who came before w, or -1.
func (w *listWaiter) olderAhead() int {
	return w.firstPart(func(l *limiter) bool { return l.waiters.first != nil && l.waiters.first.seq < w.seq })
}

// standAndTry asks for all when it is w's turn in the line of the limiter that bound. ok is false when its time is up.
func (w *listWaiter) standAndTry(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	if ok, err := w.stand(ctx, a); !ok || err != nil {
		return a, ok, err
	}
	next, err = w.try(ctx)
	return next, true, err
}

// stand waits in the line of the limiter that bound until it is this caller's turn: not for permits, but that no
// flight leaves for the line while it asks for all of its permits. It reports false when the caller's time is up.
func (w *listWaiter) stand(ctx context.Context, a listReply) (bool, error) {
	var r *request // the turn that it has there
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
	ended, err := r.turn.await(ctx, r, timeout(w.deadline))
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

// joinLine puts w into the line of the limiter that bound, by the time at which it came. r is the turn that it has
// there and gives up for that, or nil.
func (w *listWaiter) joinLine(ctx context.Context, r *request, a listReply) (*request, error) {
	p := w.parts[a.Bound]
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
	*r = request{ctx: ctx, permits: p.permits, blocking: true, deadline: w.deadline, seq: w.seq, done: r.done,
		timer: r.timer, turn: l, index: a.Bound, refused: a.refused}
	if a.rate.Interval > 0 {
		l.interval = a.rate.Interval
	}
	l.waiters.insert(r)
	if l.waiters.first == r {
		l.newHeadLocked()
		l.headSince = w.since // it has been passed over wherever it stood
		if a.refused && l.changes == p.changes {
			l.grantableAt = time.Now().Add(a.Wait)
			l.nextAskAt = time.Now().Add(min(a.Wait, w.engine.cfg.Recheck))
		}
	}
	l.scheduleLocked()
	l.rearmLocked()
	return r, nil
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

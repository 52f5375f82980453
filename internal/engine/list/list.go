// SPDX-License-Identifier: Apache-2.0

// Package list decides requests for permits of several limiters, all of them or none. It is a client of package engine,
// which knows nothing of it: a request asks its limiters ([link.Link.Ask]) and stands in their queues, for its turn
// ([engine.Place]) or for its permits ([engine.Handle.Acquire]), as any caller may.
package list

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Lists decides the requests for several limiters of one Engine. It is safe for concurrent use.
type Lists struct {
	engine *engine.Engine
	line   line
	wakes  wakes
}

// New returns a Lists.
func New(e *engine.Engine) *Lists { return &Lists{engine: e} }

// A Demand asks for permits of one limiter of a list.
type Demand struct {
	Handle  *engine.Handle
	Permits int64
	Policy  *outage.Policy // nil for FailClosed
	Own     bool           // its grant is to be settled
	Floor   int64          // as in engine.Request
	Age     time.Duration  // the same
}

// An Outcome is how a request for several limiters ended.
type Outcome struct {
	Granted  bool
	Bound    int           // the index of the limiter that rejected, -1 for none; of several, the one with the longest wait
	Wait     time.Duration // how long it takes until that limiter could grant its part
	Degraded bool          // a policy decided at least one part
	Asked    []link.Asked  // the grants of the demands; nil if a policy granted them
}

// inClass returns the demands with the handles of their classes, and the longest age of a class, 0 if there is none.
func inClass(demands []Demand) (lower []Demand, age time.Duration) {
	lower = slices.Clone(demands)
	for i, d := range demands {
		if d.Floor > 0 {
			low := d.Handle.Lower(d.Floor)
			lower[i].Handle = &low
			if !low.Health().Down() {
				age = max(age, d.Age)
			}
		}
	}
	return lower, age
}

// Allow decides a request for several limiters at once. Each limiter must be in the list once, in the order of the keys.
func (ls *Lists) Allow(ctx context.Context, demands []Demand) (Outcome, error) {
	demands, _ = inClass(demands)
	if len(demands) == 1 {
		return demands[0].alone(ctx, engine.Request{})
	}
	w := ls.waiter(demands, time.Time{})
	for { // once, and again whenever a server has gone down or come back meanwhile
		w.split()
		a, decided, err := w.tryOffline()
		if decided || err != nil {
			return a, err
		}
		next, err := w.try(ctx)
		switch {
		case err == nil && next.Granted:
			if a, decided, err = w.finish(ctx, next.Asked); decided || err != nil {
				return a.of(demands), err
			}
			continue
		case errors.Is(err, permit.ErrUnavailable) && ctx.Err() == nil && w.mayYield():
			continue // policies decide more of it now
		}
		return w.outcome(next), err
	}
}

// of returns the outcome, with the grants only where they are to be settled.
func (a Outcome) of(demands []Demand) Outcome {
	if !demands[0].Own {
		a.Asked = nil
	}
	return a
}

// Wait is like Allow, but waits until the deadline, which is zero for none. All demands turn ordinary when the longest age of
// their classes is over.
func (ls *Lists) Wait(ctx context.Context, demands []Demand, deadline time.Time) (Outcome, error) {
	lower, age := inClass(demands)
	if age == 0 {
		return ls.wait(ctx, demands, deadline)
	}
	return engine.WhileYoung(ctx, age, deadline, func(ctx context.Context, young bool, deadline time.Time) (Outcome, error) {
		if young {
			return ls.wait(ctx, lower, deadline)
		}
		return ls.wait(ctx, demands, deadline)
	})
}

func (ls *Lists) wait(ctx context.Context, demands []Demand, deadline time.Time) (Outcome, error) {
	if len(demands) == 1 {
		return demands[0].alone(ctx, engine.Request{Wait: true, Timeout: engine.Timeout(deadline)})
	}
	a, err := ls.waiter(demands, deadline).acquire(ctx)
	return a.of(demands), err
}

func (ls *Lists) waiter(demands []Demand, deadline time.Time) *waiter {
	return &waiter{lists: ls, engine: ls.engine, demands: demands, parts: parts(demands), deadline: deadline}
}

func parts(demands []Demand) []part {
	list := make([]part, len(demands))
	for i, d := range demands {
		list[i] = part{Demand: d, index: i}
	}
	return list
}

// alone decides a list of one limiter, which is an ordinary request.
func (d *Demand) alone(ctx context.Context, want engine.Request) (Outcome, error) {
	want.Permits, want.TellWait, want.Policy, want.Own = d.Permits, true, d.Policy, d.Own
	r, err := d.Handle.Acquire(ctx, want)
	switch {
	case err != nil:
		return Outcome{Bound: -1, Wait: r.Wait}, err
	case r.Granted:
		return Outcome{Granted: true, Bound: -1, Degraded: r.Degraded, Asked: []link.Asked{r.Asked}}.of([]Demand{*d}), nil
	}
	return Outcome{Wait: r.Wait, Degraded: r.Degraded}, nil
}

// A part is the demand of a caller, on its way.
type part struct {
	Demand
	index   int              // among the demands of the list
	asked   link.Asked       // what it may have been granted
	changes int              // of the limiter, before it was asked
	place   *engine.Place    // in the wait queue of the limiter, or nil
	waits   permit.Allowance // who waits there, if it is the turn of place
}

// A reply is an Outcome with what the queue has to know about the limiter that bound.
type reply struct {
	Outcome
	rejected bool
	rate     permit.Rate
	at       time.Time // when the limiter that bound rejected, which Wait counts from
}

var nothing = reply{Outcome: Outcome{Bound: -1}}

// allGranted returns the reply that all parts were granted.
func allGranted(parts []part) reply {
	a := reply{Outcome: Outcome{Granted: true, Bound: -1, Asked: make([]link.Asked, len(parts))}}
	for i := range parts {
		a.Asked[i] = parts[i].asked
	}
	return a
}

// A waiter is a caller of several limiters on its way through their queues.
type waiter struct {
	lists    *Lists
	engine   *engine.Engine
	demands  []Demand
	parts    []part    // those that Redis decides
	offline  []part    // those that policies decide, because their server is down; see split
	deadline time.Time // zero for none
	since    time.Time // when it began to wait
	told     reply     // the last reply; if it is no rejection, its Bound is a limiter for which others wait, or -1 to ask at once
	fails    time.Time // since when Redis has been unavailable to it; zero if it is not
}

// acquire waits until all parts are granted, or the time of the caller is up. Each turn of the loop asks once: the
// policies of the parts whose server is down; and then Redis for the others, at once if no limiter is known to reject, or else when
// that limiter lets w.
func (w *waiter) acquire(ctx context.Context) (Outcome, error) {
	defer w.leaveQueues()
	defer w.lists.wakes.forget(w)
	w.since = time.Now()
	w.split()
	w.told = nothing
	w.told.Bound = w.busy()
	for {
		sleeps, reset := w.lists.wakes.watch(ctx, w)
		if reset {
			w.beginAnew()
		}
		r, changed, ended, err := w.passOffline(ctx)
		if ended {
			return r, err
		}
		if changed {
			w.told = nothing
		}
		var next reply
		if w.told.Bound < 0 {
			next, err = w.try(ctx)
		} else {
			if w.told = w.told.now(); w.told.rejected && w.isTooLate(w.told.Wait) {
				return w.outcome(w.told), nil
			}
			var inTime bool
			next, inTime, err = w.waitAndTry(ctx, sleeps)
			yields := ctx.Err() == nil && w.hasPolicies() && permit.WasNotServed(err)
			switch {
			case err != nil && ctx.Err() == nil && sleeps.Err() != nil:
				continue
			case !inTime && err == nil:
				return w.tooLate(), nil
			case !inTime && !yields:
				return nothing.Outcome, err
			}
		}
		switch {
		case err == nil && next.Granted:
			if r, _, err := w.finish(ctx, next.Asked); r.Granted || err != nil {
				return r, err
			}
			w.beginAnew()
		case err == nil:
			w.fails = time.Time{}
			w.told = next
		case permit.WasNotServed(err) && ctx.Err() == nil && time.Until(w.outageLimit()) > 0 && !w.isLate(0):
			w.beginAnew()
			if w.mayYield() {
				continue
			}
			if err := w.waitOutOutage(ctx, err); err != nil {
				return nothing.Outcome, err
			}
		default:
			return nothing.Outcome, err
		}
	}
}

// beginAnew leaves the queues, and has w ask without waiting for anybody.
func (w *waiter) beginAnew() {
	w.leaveQueues()
	w.told = nothing
}

// outcome returns a, which says of the parts which of them bound, as that of the demands.
func (w *waiter) outcome(a reply) Outcome {
	if a.Bound >= 0 {
		a.Bound = w.parts[a.Bound].index
	}
	return a.now().Outcome
}

// waitAndTry waits until w may ask again after the last reply, or until sleeps is done, and asks. It reports false if the time of the caller
// is up or, with an error, if the caller no longer waits.
func (w *waiter) waitAndTry(ctx, sleeps context.Context) (next reply, inTime bool, err error) {
	if w.starves() {
		next, err = w.contend(ctx, sleeps)
		return next, true, err
	}
	return w.standAndTry(ctx, sleeps)
}

// tooLate returns the outcome of a list whose time is up, by the last reply.
func (w *waiter) tooLate() Outcome {
	if !w.told.rejected { // the list could not ask at all
		w.told.Wait = max(time.Until(w.parts[w.told.Bound].Handle.State().Grant), time.Millisecond)
	}
	return w.outcome(w.told)
}

// isTooLate reports whether a rejection is final that says to wait for d: the time of the caller is up, or, with RejectEarly, before that.
func (w *waiter) isTooLate(d time.Duration) bool {
	return w.isLate(0) || w.engine.Config().RejectEarly && w.isLate(d)
}

// isLate reports whether the time of the caller is up before d is over.
func (w *waiter) isLate(d time.Duration) bool {
	return !w.deadline.IsZero() && time.Until(w.deadline) <= d
}

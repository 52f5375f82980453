// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"slices"

	"github.com/goredisson/ratelimiter/internal/engine"
)

// busy returns the index of the first limiter for which somebody waits, or -1. A list that comes later does not
// ask before those that wait.
func (w *waiter) busy() int {
	return slices.IndexFunc(w.parts, func(p part) bool { return p.Handle.State().Busy })
}

// standAndTry asks for all parts when it is the turn of w in the wait queue of the limiter that bound, and leaves the other queues. It
// reports false if the time of the caller is up, or sleeps is done before it is.
func (w *waiter) standAndTry(ctx, sleeps context.Context) (next reply, ok bool, err error) {
	a := &w.told
	for i := range w.parts {
		if i != a.Bound {
			w.leaveQueue(i)
		}
	}
	p := &w.parts[a.Bound]
	if p.place == nil {
		p.place = &engine.Place{Handle: p.Handle, Permits: p.Permits, Came: w.since, Deadline: w.deadline, Yields: w.hasPolicies()}
	}
	told := engine.Rejection{Recheck: w.engine.Recheck(a.rate), Rate: a.rate, Changes: p.changes}
	if a.rejected {
		told.Wait = max(a.Wait, 1)
	}
	for _, p := range w.parts { // so that none of them expires whose rate is known
		told.Recheck = min(told.Recheck, w.engine.Recheck(p.Handle.State().Rate))
	}
	if ok, err := p.place.Turn(sleeps, told); !ok || err != nil {
		return nothing, ok, err
	}
	next, err = w.try(ctx)
	return next, true, err
}

// leaveQueue gives up the turn at the i-th limiter, if w has it.
func (w *waiter) leaveQueue(i int) {
	if p := w.parts[i].place; p != nil {
		p.Leave()
	}
}

// leaveQueues gives up the turns that w has.
func (w *waiter) leaveQueues() {
	for i := range w.parts {
		w.leaveQueue(i)
	}
}

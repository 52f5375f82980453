// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"time"
)

// starves reports whether the list, which was rejected, has been passed over: it has waited for an interval, in which every
// permit came back once. A list of a lower class gives way for as long as it is one. In a cool-down nobody gets anything;
// the queue is the place to wait for its end.
func (w *waiter) starves() bool {
	a, interval := &w.told, w.told.rate.Interval
	return a.rejected && !w.isLower() && interval > 0 && time.Since(w.since) > interval && a.Wait <= interval
}

// contend is what a list does that would otherwise starve, because limiters that are wanted by many reject it in turns, or
// a peer in another process, which stands in no queue of this one, always takes what it waits for: it acquires its parts one
// after another. If that takes too long, it asks for all of them at once again, and begins anew.
func (w *waiter) contend(ctx, sleeps context.Context) (reply, error) {
	w.leaveQueues()
	s := newSeries(w)
	x := w.newWork()
	x.waits = true
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // if the caller has left
	err := w.parts[0].Handle.Queue.Background(func() {
		a, err := s.inLine(inner)
		if ended := x.end(a, err); !ended || !a.Granted {
			s.refund(context.WithoutCancel(inner))
		}
	})
	if err != nil {
		return nothing, err
	}
	a, err := w.await(sleeps, x)
	if err != nil || a.Granted || w.isTooLate(a.Wait) {
		return a, err
	}
	return w.try(ctx)
}

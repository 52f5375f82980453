// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/stack"
)

// A flight is one call in flight, with the requests that share it, and all that follows from its reply: further calls
// for what one call does not do, the search for lost permits, and the refund of permits that no caller waits for any
// more. It belongs to the goroutine that flies it; the lock of the shard guards its callers.
type flight struct {
	permit.Batch
	flies     func()       // fly, made once, since each would be an allocation
	callers   [][]*request // of each run; nil for a caller that left
	limiter   *limiter
	ctx       context.Context // of the first request, without its cancellation
	begin     time.Time
	asked     time.Time // before the first call under the ID; what it grants is granted later
	changes   int       // of the limiter, when the flight left
	next      step
	ledger    *outage.Ledger
	ticket    fair.Ticket    // of callers that pass the first waiter
	taken     int64          // permits that were granted to its callers
	crowd     bool           // the last reply ended several requests
	unclaimed []permit.Grant // grants, or parts of them, whose callers have left
}

// A step is what a flight does next.
type step int

const (
	asks      step = iota // it asks for the callers that it has
	heals                 // it heals the limiter, and asks for the callers that are left
	healsLast             // it heals the limiter, and has no callers left
	isLanded
)

// appendLocked adds r to the last run or to a new one. It reports false if the flight is full.
func (f *flight) appendLocked(r *request) bool {
	i := len(f.Runs) - 1
	if i < 0 || !f.fitsRunLocked(i, r) {
		i++
	}
	return f.putLocked(i, r)
}

// appendTriesLocked takes as many requests of q as fit. No caller can tell in which order they came, so equal requests
// share a run.
func (f *flight) appendTriesLocked(q *queue) {
	begin := len(f.Runs)
	for r := q.first; r != nil; r = q.first {
		i := begin
		for i < len(f.Runs) && !f.fitsRunLocked(i, r) {
			i++
		}
		if !f.putLocked(i, r) {
			return
		}
		r.unqueueLocked()
		r.state = isInFlight
	}
}

// fitsRunLocked reports whether r may be a request of the i-th run, whose grants share a member.
func (f *flight) fitsRunLocked(i int, r *request) bool {
	return f.Runs[i].Permits == r.want.Permits && !r.want.Own && !f.callers[i][0].want.Own
}

func (f *flight) putLocked(i int, r *request) bool {
	if i == permit.MaxRuns || f.Requests() == permit.MaxRequests {
		return false
	}
	if i == len(f.Runs) {
		f.Runs = append(f.Runs, permit.Run{Permits: r.want.Permits})
		if i == len(f.callers) {
			f.callers = append(f.callers, nil)
		}
		f.callers[i] = f.callers[i][:0] // reuse the slice
	}
	if f.ctx == nil {
		if f.ctx = r.ctx; r.ctx.Done() != nil {
			f.ctx = context.WithoutCancel(r.ctx)
		}
	}
	f.callers[i] = append(f.callers[i], r)
	f.Runs[i].Count++
	return true
}

// pruneLocked drops callers that have their outcome, and runs without callers. It reports whether any caller is left.
func (f *flight) pruneLocked() bool {
	kept := 0
	for i := range f.Runs {
		rest := f.callers[i][:0]
		for _, r := range f.callers[i] {
			if r != nil && r.live() {
				rest = append(rest, r)
			}
		}
		clear(f.callers[i][len(rest):])
		f.callers[i] = rest
		if len(rest) > 0 {
			f.Runs[i].Count = int64(len(rest))
			// Swap instead of copying, because two runs must not share a slice.
			f.Runs[kept], f.Runs[i] = f.Runs[i], f.Runs[kept]
			f.callers[kept], f.callers[i] = f.callers[i], f.callers[kept]
			kept++
		}
	}
	if kept == 0 {
		return false
	}
	f.Runs = f.Runs[:kept]
	return true
}

// endCallersLocked ends the requests in the flight with err, except those for which stays returns true, and reports
// whether there are any. If stays is nil, it ends all.
func (f *flight) endCallersLocked(err error, stays func(*request) bool) (stay bool) {
	f.dropLocked(func(r *request) bool {
		if stays != nil && stays(r) {
			stay = true
			return false
		}
		f.limiter.shard.failLocked(r, err)
		return true
	})
	return stay
}

// dropLocked removes the callers for which drops returns true, and those that have their outcome. After these are
// woken, their requests may be reused by others.
func (f *flight) dropLocked(drops func(*request) bool) {
	for i := range f.Runs {
		for j, r := range f.callers[i] {
			if r != nil && (!r.live() || drops(r)) {
				f.callers[i][j] = nil
			}
		}
	}
}

// dropEndedLocked removes the callers that have their outcome from all flights. Whoever ends a request that another one may have in flight
// calls it before the lock is free.
func (l *limiter) dropEndedLocked() {
	if len(l.shard.ended) > 0 {
		for _, f := range l.flights {
			f.dropLocked(func(*request) bool { return false })
		}
	}
}

// fly flies f, and then the flights that have become ready in the meantime.
func (f *flight) fly() {
	stack.Grow()
	l := f.limiter
	for f != nil {
		for f.step() {
		}
		if f.crowd {
			// The callers that have their outcomes may ask again at once. Let them, so that their requests
			// share the next flight.
			runtime.Gosched()
		}
		l.shard.Lock()
		f = l.landedLocked(f)
		l.shard.Unlock()
	}
}

// step asks once, and reports whether the flight goes on. It goes on until all of its callers have an outcome or wait
// in the queue again.
func (f *flight) step() (more bool) {
	if f.next == heals || f.next == healsLast {
		f.limiter.link.Heal(f.ctx, f.Type, f.Check)
		if f.next == healsLast {
			return false
		}
	}
	begin := time.Now()
	f.ID, f.Replay, f.asked = f.limiter.link.System.Backends.NewID(), false, begin
	f.next = isLanded
	var a struct { // one allocation for both; the callers keep the reply
		permit.Reply
		granted [1]int64
	}
	var err error
	f.Room = a.granted[:0]
	if a.Reply, err = f.attempt(begin); err != nil {
		f.fail(err)
		return false
	}
	f.land(&a.Reply, begin)
	if len(f.unclaimed) > 0 {
		f.refundUnclaimed()
	}
	return f.next != isLanded
}

// refundGrace is how long a flight waits for the replies to its refunds before it goes on. When the permits are back,
// the flight asks for the callers in the queue; a Redis that does not reply must not hold them up.
const refundGrace = 10 * time.Millisecond

// refundUnclaimed gives permits that no caller waits for any more back to Redis. If that fails, they are free again
// after one interval.
func (f *flight) refundUnclaimed() {
	var grants []permit.Grant
	for _, g := range f.unclaimed {
		if g.Permits > g.Keep {
			grants = append(grants, g)
		}
	}
	f.unclaimed = f.unclaimed[:0]
	if len(grants) == 0 {
		return
	}
	k, e, ctx, typ, done := f.limiter.link, f.limiter.shard.engine, context.WithoutCancel(f.ctx), f.Type, make(chan struct{})
	e.calls.Add(1) // Close waits for it; the flight itself is still counted
	go func() {
		defer e.calls.Done()
		k.GiveBack(ctx, typ, grants...)
		close(done)
	}()
	retry.SleepOr(refundGrace, done, nil)
}

// fail ends all requests in the flight with err.
func (f *flight) fail(err error) {
	l := f.limiter
	l.shard.Lock()
	f.endCallersLocked(err, nil)
	if f.InOrder {
		l.newHeadLocked()
	}
	l.shard.Unlock()
}

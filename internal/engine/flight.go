// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// fly flies f, and then what has come in the meantime.
func (f *flight) fly() {
	l := f.limiter
	for f != nil {
		for f.step() {
		}
		if len(f.ended) > 1 {
			// The callers that have their outcomes may ask again at once. Let them, so that their requests
			// share the next flight.
			runtime.Gosched()
		}
		l.shard.lock()
		f = l.landedLocked(f)
		l.shard.unlock()
	}
}

// flyInline flies the flight of one caller in the goroutine of that caller, for one step.
func (f *flight) flyInline() {
	l := f.limiter
	more := f.step()
	l.shard.lock()
	if !more {
		f = l.landedLocked(f)
	}
	if f != nil {
		f.inline = false
	}
	l.shard.unlock()
	if f != nil {
		go f.fly()
	}
}

// step asks once, and reports whether the flight goes on, which it does until all of its callers have an
// outcome or wait in the queue again.
func (f *flight) step() (more bool) {
	if f.next == heals || f.next == healsLast {
		_ = f.limiter.h.backend.Heal(context.WithoutCancel(f.ctx), f.Type, f.Check) // the next reply shows whether it worked
		if f.next == healsLast {
			return false
		}
	}
	begin := time.Now()
	if f.next != asksAgain {
		f.ID, f.Replay, f.asked = f.limiter.h.engine.cfg.Backends.NewID(), false, begin
	}
	f.next = isLanded
	a, err := f.attempt(begin)
	switch {
	case err == errHandOff:
		f.next = asksAgain
	case err != nil:
		f.fail(err)
	case !f.healthProbe:
		f.land(&a, begin)
		if len(f.unclaimed) > 0 {
			f.refundUnclaimed()
		}
	}
	return f.next != isLanded
}

// refundGrace is how long a flight waits for the replies to its refunds before it goes on. The callers in the queue are
// then asked for when the permits are back; a Redis that does not reply must not hold them up.
const refundGrace = 10 * time.Millisecond

// refundUnclaimed gives back to Redis the permits that nobody waits for any more. If that fails they are free
// again after one interval.
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
	h, ctx, typ, done := f.limiter.h, context.WithoutCancel(f.ctx), f.Type, make(chan struct{})
	h.engine.calls.Add(1) // Close waits for it; the flight itself is still counted
	go func() {
		defer h.engine.calls.Done()
		for _, g := range grants {
			h.refund(ctx, typ, g)
		}
		h.Changed()
		close(done)
	}()
	retry.SleepOr(refundGrace, done, nil)
}

// fail ends all requests in the flight with err.
func (f *flight) fail(err error) {
	l := f.limiter
	l.shard.lock()
	ended, _ := f.endCallersLocked(err, f.ended[:0], nil)
	if f.InOrder {
		l.newHeadLocked()
	}
	l.shard.unlock()
	wake(ended)
}

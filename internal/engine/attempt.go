package engine

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

var (
	// errAbandoned reports that nobody waits for the reply any more.
	errAbandoned = errors.New("abandoned")
	// errHandOff reports that the flight goes on, but not in the goroutine of its caller.
	errHandOff = errors.New("handed off")
)

// attempt asks until there is a reply. During an outage it ends the requests that do not wait. The error is
// errAbandoned if no caller is left.
func (f *flight) attempt() (permit.Reply, error) {
	var (
		h           = f.limiter.h
		health      = h.Health()
		tries       = retry.Attempts{Begin: time.Now()}
		typeChanges = 0
		first       = f.healthProbe // it was allowed when the flight started
	)
	for {
		if h.engine.IsClosed() {
			return permit.Reply{}, permit.ErrClosed
		}
		var (
			next = tries.Begin
			over <-chan struct{}
			err  error
		)
		if !first {
			next, over, err = health.Allow()
		}
		first = false
		if err != nil {
			if !f.failWhileDown(permit.Unavailable("acquire", h.name, err), tries.Begin) {
				return permit.Reply{}, errAbandoned
			}
			if f.inline {
				return permit.Reply{}, errHandOff // its caller may get its outcome without Redis
			}
			retry.SleepOr(time.Until(next), over, h.engine.closed)
			if !f.trim() {
				return permit.Reply{}, errAbandoned
			}
			continue
		}
		probe := !next.IsZero()
		var a permit.Reply
		if err = f.reconcile(); err == nil {
			a, err = h.backend.Acquire(f.ctx, &f.Batch)
			h.noteReply(err)
		}
		failure, ok := err.(*retry.Error)
		if !ok {
			other, ok := err.(*permit.WrongTypeError)
			if !ok {
				return a, err
			}
			if typeChanges == permit.MaxTypeChanges {
				return permit.Reply{}, permit.TypeKeepsChanging("acquire", h.name)
			}
			typeChanges++
			f.Type = other.Type
			h.LearnType(other.Type)
			continue
		}
		again := tries.Failed(failure.Outcome) && !failure.Final
		h.observePanic(failure.Err)
		if failure.Outcome == retry.Executed {
			return permit.Reply{}, permit.Failed("acquire", h.name, failure)
		}
		f.Replay = f.Replay || tries.Replay
		f.noteError(failure.Err)
		if again && !probe {
			tries.Pause(nil, h.engine.closed)
			continue
		}
		if !failure.Local {
			h.markDown(failure.Err)
		}
		if !f.failWhileDown(permit.Failed("acquire", h.name, failure), tries.Begin) {
			return permit.Reply{}, errAbandoned
		}
		if failure.Local { // the fault of this process and not of Redis, so others may go on asking
			retry.SleepOr(outage.ProbePause(), nil, h.engine.closed)
		}
	}
}

func (f *flight) noteError(err error) {
	l := f.limiter
	l.shard.lock()
	l.lastErr = err
	l.shard.unlock()
}

// trim drops the callers that have left, or were served without Redis, while the flight slept. It reports
// whether any caller is left.
func (f *flight) trim() bool {
	l := f.limiter
	l.shard.lock()
	defer l.shard.unlock()
	f.local = l.local
	if f.Replay {
		return true // a replay asks for the same again
	}
	f.Cursor = permit.Cursor{}
	return f.pruneLocked()
}

// failWhileDown lets outage policies decide the requests that have one, fails the other requests that do not
// wait, and after the outage limit fails all. It reports whether any caller in the flight goes on waiting.
func (f *flight) failWhileDown(err error, since time.Time) bool {
	l := f.limiter
	l.shard.lock()
	patient := time.Since(since) < l.h.engine.cfg.OutageLimit
	ended := f.answerLocallyLocked(f.ended[:0])
	stays := func(r *request) bool { return r.blocking && (patient || r.Degraded) }
	ended, waits := f.endCallersLocked(err, ended, stays)
	for l.tries.n > 0 {
		ended = l.tries.first.failLocked(err, ended)
	}
	for r := l.waiters.first; r != nil && !patient; {
		next := r.next
		if !r.inFlight && !stays(r) {
			ended = r.failLocked(err, ended)
		}
		r = next
	}
	l.shard.unlock()
	wake(ended)
	return waits
}

// refund works even if the Engine is closed, because nothing else gives back what its callers left behind.
func (h *Handle) refund(ctx context.Context, typ permit.Type, g permit.Grant) {
	_ = retry.Do(nil, nil, func(bool) error { return h.backend.Refund(ctx, typ, g) })
}

// gated calls call until there is a reply, as a replay if it may have been executed before. During an outage it
// makes no call except for the probe. The function call has to record its replies with noteReply. The errors of
// gated are meant for callers.
func (h *Handle) gated(ctx context.Context, op string, call func(replay bool) error) error {
	err := retry.Do(nil, h.engine.closed, func(replay bool) error {
		if err := h.engine.ready(ctx); err != nil {
			return err
		}
		next, _, err := h.Health().Allow()
		if err != nil {
			return permit.Unavailable(op, h.name, err)
		}
		err = call(replay)
		if failure, ok := err.(*retry.Error); ok && !next.IsZero() {
			failure.Final = true // it was the probe
		}
		return err
	})
	if failure, ok := err.(*retry.Error); ok {
		h.observePanic(failure.Err)
		if failure.Outcome != retry.Executed && !failure.Local {
			h.markDown(failure.Err)
		}
	}
	return permit.Failed(op, h.name, err)
}

// noteReply records that Redis is up, if err shows that a call of h got a reply.
func (h *Handle) noteReply(err error) {
	if failure, ok := err.(*retry.Error); ok && !failure.Answered {
		return
	}
	h.markUp()
}

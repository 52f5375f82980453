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
	// errAbandoned says that nobody waits for the reply any more.
	errAbandoned = errors.New("abandoned")
	// errHandOff says that the flight goes on, but not in its caller's goroutine.
	errHandOff = errors.New("handed off")
)

// attempt asks until there is a reply. While Redis is away those who do not wait are told so; the error is
// errAbandoned when nobody is left.
func (f *flight) attempt() (permit.Reply, error) {
	var (
		h           = f.limiter.h
		health      = h.Health()
		tries       = retry.Attempts{Begin: time.Now()}
		typeChanges = 0
		first       = f.healthProbe // which was allowed when the flight was started
	)
	for {
		if h.engine.isClosed() {
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
				return permit.Reply{}, errHandOff // its caller may be served without Redis
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
		again := tries.Failed(failure.Outcome)
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
		if failure.Local { // this process' fault, not Redis': no reason to keep others from asking
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

// trim drops those who have left or were answered without Redis while the flight slept. It reports whether
// somebody is left.
func (f *flight) trim() bool {
	l := f.limiter
	l.shard.lock()
	defer l.shard.unlock()
	f.local = l.local
	if f.Replay {
		return true // it asks for what it asked for
	}
	f.Cursor = permit.Cursor{}
	return f.pruneLocked()
}

// failWhileDown has those decided whom an outage policy decides, tells the others who do not wait that Redis is
// away, and after the outage limit everybody. It reports whether somebody in the flight waits on.
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

// refund is done also when the Engine is closed: nothing else returns what its callers left.
func (h *Handle) refund(ctx context.Context, typ permit.Type, g permit.Grant) {
	_ = retry.Do(nil, nil, func(bool) error { return h.backend.Refund(ctx, typ, g) })
}

// gated makes the call until there is a reply, as a replay where it may have been made before. While Redis is known
// to be away it is not made, but for the probe. call notes its replies. The errors are those for callers.
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
			failure.Final = true // that was the probe
		}
		return err
	})
	if failure, ok := err.(*retry.Error); ok && failure.Outcome != retry.Executed && !failure.Local {
		h.markDown(failure.Err)
	}
	return permit.Failed(op, h.name, err)
}

// noteReply notes that Redis is there, if a call of h that ended with err was replied to.
func (h *Handle) noteReply(err error) {
	if failure, ok := err.(*retry.Error); ok && !failure.Answered {
		return
	}
	h.markUp()
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
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
// errAbandoned if no caller is left, and errHandOff if the flight has to wait for the probe, but not in the goroutine of
// its caller.
func (f *flight) attempt(begin time.Time) (permit.Reply, error) {
	var (
		h      = f.limiter.h
		health = h.Health()
		tries  = retry.Attempts{Begin: begin}
		last   error
		probe  = f.healthProbe // it was allowed as the probe when the flight started
	)
	f.call.Owner = h
	defer health.End(&f.call)
	for first := true; ; first = false {
		if h.engine.IsClosed() {
			return permit.Reply{}, permit.ErrClosed
		}
		if !first || !probe {
			next, over, down := health.Allow(&f.call)
			if down != nil {
				if err := f.waitForProbe(next, over, withLast(down, last), tries.Begin); err != nil {
					return permit.Reply{}, err
				}
				continue
			}
			probe = !next.IsZero()
		}
		a, sent, err := f.ask(probe)
		failure, ok := err.(*retry.Error)
		if !ok {
			return a, err
		}
		again := tries.Failed(failure) && !failure.Final
		h.observePanic(failure.Err)
		if failure.Outcome == retry.Executed {
			return permit.Reply{}, permit.Failed("acquire", h.name, failure)
		}
		f.Replay = f.Replay || tries.Replay
		last = failure.Err
		f.noteError(last)
		if again && !probe {
			tries.Pause(nil, h.engine.closed)
			continue
		}
		if !failure.Local {
			h.markDown(sent, failure)
		}
		health.End(&f.call)
		if waits, _ := f.failWhileDown(permit.Failed("acquire", h.name, failure), tries.Begin); !waits {
			return permit.Reply{}, errAbandoned
		}
		if failure.Local { // the fault of this process and not of Redis, so others may go on asking
			retry.SleepOr(outage.ProbePause(), nil, h.engine.closed)
		}
	}
}

// waitForProbe ends the requests that do not wait, since Redis is down because of cause, and sleeps until the next probe
// or until over is closed. An error says that the flight does not go on here; see attempt.
func (f *flight) waitForProbe(next time.Time, over <-chan struct{}, cause error, begin time.Time) error {
	h := f.limiter.h
	h.Health().End(&f.call)
	waits, limit := f.failWhileDown(permit.Unavailable("acquire", h.name, cause), begin)
	switch {
	case !waits:
		return errAbandoned
	case f.inline:
		return errHandOff // its caller may get its outcome without Redis
	}
	retry.SleepOr(min(time.Until(next), time.Until(limit)), over, h.engine.closed)
	if !f.trim() {
		return errAbandoned
	}
	return nil
}

// ask makes one attempt at the call of f, and before it whatever has to precede it: the proof that Redis works again, if
// f is the probe, and the grants that Redis has not been told of. It returns when the last of these was sent.
func (f *flight) ask(probe bool) (a permit.Reply, sent time.Time, err error) {
	h := f.limiter.h
	if probe {
		sent = time.Now()
		if err = h.prove(f.ctx, &f.call); err != nil {
			return a, sent, err
		}
	}
	if f.local != nil {
		sent = time.Now()
		if err = h.reconcile(f.ctx, f.local); err != nil {
			return a, sent, err
		}
	}
	sent = time.Now()
	a, err = h.backend.Acquire(f.ctx, &f.Batch)
	h.noteReply(&f.call, sent, err)
	return a, sent, err
}

// withLast adds to err, why Redis is down, what the last attempt ended with, if that is something else.
func withLast(err, last error) error {
	if last == nil || errors.Is(err, last) {
		return err
	}
	return fmt.Errorf("%w; the last attempt ended with: %w", err, last)
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
	f.local = l.shard.rememberedLocked(l.h.key)
	if f.Replay {
		return true // a replay asks for the same again
	}
	f.Cursor = permit.Cursor{}
	return f.pruneLocked()
}

// failWhileDown lets outage policies decide the requests that have one, fails the other requests that do not
// wait, and those for which Redis has been unavailable for the outage limit: since it is known to be down, and
// otherwise since begin. It reports whether any caller in the flight goes on waiting, and when the limit of the next
// one is up.
func (f *flight) failWhileDown(err error, begin time.Time) (waits bool, limit time.Time) {
	l, now := f.limiter, time.Now()
	if since, down := l.h.Health().Since(); down != nil {
		begin = since
	}
	until := func(r *request) time.Time {
		if r.came.After(begin) {
			return r.came.Add(l.h.engine.cfg.OutageLimit)
		}
		return begin.Add(l.h.engine.cfg.OutageLimit)
	}
	stays := func(r *request) bool { return r.want.Wait && (r.Degraded || now.Before(until(r))) }
	l.shard.lock()
	ended := f.answerLocallyLocked(f.ended[:0])
	ended, waits = f.endCallersLocked(err, ended, stays)
	for l.tries.n > 0 {
		ended = l.tries.first.failLocked(err, ended)
	}
	limit = now.Add(time.Hour)
	closed := l.waiters.n > l.waiters.policies      // the others wait for what their policy grants
	for r := l.waiters.first; r != nil && closed; { // who comes later has a later limit
		next := r.next
		if !r.Degraded && r.state != isInFlight && !stays(r) {
			ended = r.failLocked(err, ended)
		} else if !r.Degraded && stays(r) {
			limit = until(r)
			break
		}
		r = next
	}
	l.shard.unlock()
	wake(ended)
	return waits, limit
}

// refund works even if the Engine is closed, because nothing else gives back what its callers left behind.
func (h *Handle) refund(ctx context.Context, typ permit.Type, g permit.Grant) {
	_ = retry.Do(nil, nil, func(bool) error { return h.backend.Refund(ctx, typ, g) })
}

// Gated is gated for a call that does not record its replies.
func (h *Handle) Gated(ctx context.Context, op string, call func(replay bool) error) error {
	return h.gated(ctx, op, func(replay bool) error {
		sent := time.Now()
		err := call(replay)
		h.noteReply(nil, sent, err)
		return err
	})
}

// gated calls call, which makes one attempt, until there is a reply, as a replay if it may have been executed before.
// During an outage it makes no call except for the probe, and returns at once. The function call has to record its
// replies with noteReply. The errors of gated are meant for callers: when ctx is done, that of ctx, which wraps
// ErrUnavailable as well if there has been no reply.
func (h *Handle) gated(ctx context.Context, op string, call func(replay bool) error) error {
	health, c, begin, sent := h.Health(), &outage.Call{Owner: h}, time.Now(), time.Time{}
	defer func() { health.End(c) }()
	var last error
	gaveUp := false // although another attempt might have succeeded
	err := retry.Do(ctx.Done(), h.engine.closed, func(replay bool) error {
		if err := h.engine.ready(ctx); err != nil {
			return err
		}
		next, _, err := health.Allow(c)
		if err != nil {
			return permit.Unavailable(op, h.name, withLast(err, last))
		}
		sent = time.Now()
		if !next.IsZero() {
			probe := c
			c = &outage.Call{Owner: h}
			err = h.proveBeside(ctx, probe)
		}
		if err == nil {
			err = call(replay)
		}
		failure, failed := err.(*retry.Error)
		if failed && failure.Outcome != retry.Executed && ctx.Err() == nil {
			last = failure.Err
			health.Failed(last)
		}
		gaveUp = failed && failure.Final
		if failed && !next.IsZero() {
			failure.Final = true // it was the probe
		}
		return err
	})
	failure, failed := err.(*retry.Error)
	failed = failed && failure.Outcome != retry.Executed
	if left := ctx.Err(); left != nil && (failed || err == left) {
		return permit.Left(permit.Of(op, h.name), begin, last, left)
	}
	if failed {
		h.observePanic(failure.Err)
		if !failure.Local && !gaveUp {
			h.markDown(sent, failure)
		}
	}
	return permit.Failed(op, h.name, err)
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// errAbandoned reports that nobody waits for the reply any more.
var errAbandoned = errors.New("abandoned")

// attempt asks until there is a reply. During an outage it ends the requests that do not wait. The error is
// errAbandoned if no caller is left.
func (f *flight) attempt(begin time.Time) (permit.Reply, error) {
	var (
		k     = f.limiter.link
		tries = retry.Attempts{Begin: begin}
		last  error
	)
	for {
		health := k.Health()
		if k.System.IsClosed() {
			return permit.Reply{}, permit.ErrClosed
		}
		if over, down := health.Outage(); down != nil {
			if err := f.waitForRedis(over, link.WithLast(down, last), tries.Begin); err != nil {
				return permit.Reply{}, err
			}
			continue
		}
		a, err := k.Attempt(f.ctx, f.ledger, &f.Batch)
		failure, ok := err.(*retry.Error)
		if !ok {
			return a, err
		}
		again := tries.Failed(failure) && !failure.Final
		k.ObservePanic(failure.Err)
		if failure.Outcome == retry.Executed {
			return permit.Reply{}, permit.Failed("acquire", k.Name, failure)
		}
		f.Replay = f.Replay || tries.Replay
		last = failure.Err
		f.noteError(last)
		if again {
			tries.Pause(nil, k.System.Closed)
			health.Await(nil, k.System.Closed)
			continue
		}
		health.Await(nil, k.System.Closed)
		if health.Down() {
			continue
		}
		// Redis is there, and yet the call fails, such as for lack of connections. Who can wait goes on trying.
		if waits, _ := f.failWhileDown(permit.Failed("acquire", k.Name, failure), tries.Begin); !waits {
			return permit.Reply{}, errAbandoned
		}
		retry.SleepOr(outage.ProbePause(), nil, k.System.Closed)
	}
}

// waitForRedis ends the requests that do not wait, because Redis is down for the reason cause. It sleeps until over is
// closed, or for about a second.
func (f *flight) waitForRedis(over <-chan struct{}, cause error, begin time.Time) error {
	k := f.limiter.link
	waits, limit := f.failWhileDown(permit.Unavailable("acquire", k.Name, cause), begin)
	if !waits {
		return errAbandoned
	}
	retry.SleepOr(min(outage.ProbePause(), time.Until(limit)), over, k.System.Closed) // callers may have left
	if !f.trim() {
		return errAbandoned
	}
	return nil
}

func (f *flight) noteError(err error) {
	l := f.limiter
	l.shard.Lock()
	l.lastErr = err
	l.shard.Unlock()
}

// trim drops the callers that have left, or were served without Redis, during the sleep of the flight. It reports
// whether any caller is left.
func (f *flight) trim() bool {
	l := f.limiter
	l.shard.Lock()
	defer l.shard.Unlock()
	f.ledger = l.shard.rememberedLocked(l.link.Key)
	if f.Replay {
		return true // a replay asks for the same again
	}
	f.Cursor = permit.Cursor{}
	return f.pruneLocked()
}

// failWhileDown lets outage policies decide the requests that have one. It fails the other requests that do not wait,
// and those for which Redis has been unavailable for the outage limit. The limit counts from when Redis is known to
// be down, or otherwise from begin. It reports whether any caller in the flight goes on waiting, and when the next
// limit is up.
func (f *flight) failWhileDown(err error, begin time.Time) (waits bool, limit time.Time) {
	l, now := f.limiter, time.Now()
	if since, down := l.link.Health().Since(); down != nil {
		begin = since
	}
	until := func(r *request) time.Time {
		if r.came.After(begin) {
			return r.came.Add(l.shard.engine.cfg.OutageLimit)
		}
		return begin.Add(l.shard.engine.cfg.OutageLimit)
	}
	stays := func(r *request) bool { return r.want.Wait && (r.Degraded || now.Before(until(r))) }
	l.shard.Lock()
	f.answerLocallyLocked()
	waits = f.endCallersLocked(err, stays)
	l.failTriesLocked(err)
	limit = now.Add(time.Hour)
	closed := l.waiters.n > l.waiters.policies      // the others wait for what their policy grants
	for r := l.waiters.first; r != nil && closed; { // who comes later has a later limit
		next := r.next
		if !r.Degraded && r.state != isInFlight && !stays(r) {
			l.shard.failLocked(r, err)
		} else if !r.Degraded && stays(r) {
			limit = until(r)
			break
		}
		r = next
	}
	l.shard.Unlock()
	return waits, limit
}

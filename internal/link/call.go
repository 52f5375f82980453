// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// Gated repeats call, which makes one attempt at a call that may reclaim permits, until there is a reply. An attempt
// is a replay if an earlier one may have been executed. During an outage it makes no attempt except for the probe,
// and returns at once. Its errors are meant for callers: when ctx is done, it returns the error of ctx, which wraps
// ErrUnavailable as well if there has been no reply.
func (l *Link) Gated(ctx context.Context, op string, call func(replay bool) error) error {
	l.Touch()
	defer l.Touch()
	return l.Read(ctx, op, call)
}

// Touch tells the queue that a call which does not come from it begins or has ended. Such a call may reclaim the
// queue's tripwire; then a missing tripwire does not prove that another process took part.
func (l *Link) Touch() { l.Queue.Touch(l.Key) }

// Changed wakes this process's callers that wait for the limiter, because permits may be available again.
func (l *Link) Changed() { l.Queue.Changed(l.Key) }

// Read is Gated for a call that only reads.
func (l *Link) Read(ctx context.Context, op string, call func(replay bool) error) error {
	return l.gated(ctx, op, func(replay bool) error {
		sent := time.Now()
		err := call(replay)
		l.noteReply(nil, sent, err)
		return err
	})
}

// gated is Read for a function that records its replies with noteReply.
func (l *Link) gated(ctx context.Context, op string, call func(replay bool) error) error {
	health, c, begin, sent := l.Health(), &outage.Call{Owner: l}, time.Now(), time.Time{}
	defer func() { health.End(c) }()
	var last error
	gaveUp := false // although another attempt might have succeeded
	err := retry.Do(ctx.Done(), l.System.Closed, func(replay bool) error {
		if err := l.ready(ctx); err != nil {
			return err
		}
		next, _, err := health.Allow(c)
		if err != nil {
			return permit.Unavailable(op, l.Name, WithLast(err, last))
		}
		sent = time.Now()
		if !next.IsZero() {
			probe := c
			c = &outage.Call{Owner: l}
			err = l.proveBeside(ctx, probe)
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
		return permit.Left(permit.Of(op, l.Name), begin, cmp.Or(l.Backend.Shortage(), last), left)
	}
	if failed {
		l.ObservePanic(failure.Err)
		if !failure.Local && !gaveUp {
			l.MarkDown(sent, failure)
		}
	}
	return permit.Failed(op, l.Name, err)
}

// Attempt makes one attempt at b on behalf of c, which may be nil, and records what the reply shows. First it makes the calls that have to precede it: the proof that
// Redis works again, if c is the probe, and the report of grants in ledger that Redis does not know of; ledger may be
// nil. It returns when the last of these calls was sent.
func (l *Link) Attempt(ctx context.Context, c *outage.Call, ledger *outage.Ledger, b *permit.Batch) (a permit.Reply, sent time.Time, err error) {
	if c != nil && c.Probes() {
		sent = time.Now()
		if err = l.proof(ctx, c); err != nil {
			return a, sent, err
		}
	}
	if ledger != nil {
		sent = time.Now()
		if err = l.reconcile(ctx, ledger); err != nil {
			return a, sent, err
		}
	}
	sent = time.Now()
	a, err = l.Backend.Acquire(ctx, b)
	l.noteReply(c, sent, err)
	return a, sent, err
}

// GiveBack gives back the permits of the grants that are not kept. It works even if the client is closed, because
// nothing else gives back what its callers left behind. Permits that it fails to give back are free again after one
// interval; see undo.
func (l *Link) GiveBack(ctx context.Context, typ permit.Type, grants ...permit.Grant) {
	for _, g := range grants {
		_ = l.undo(func() error { return l.Backend.Refund(ctx, typ, g) })
	}
	l.Changed()
}

const (
	// maxUndoing is for how long undo goes on after a shortage.
	maxUndoing = time.Minute
	// undoEvery is the pause until it does.
	undoEvery = time.Second
)

// undo makes a call that gives something back and may be made twice. If that fails because this process has too much
// else on its way, undo returns, and goes on in the background until there is room, the client is closed, or maxUndoing
// has passed.
func (l *Link) undo(call func() error) error {
	try := func() error { return retry.Do(nil, nil, func(bool) error { return call() }) }
	err := try()
	if permit.IsShortage(err) {
		_ = l.Queue.Background(func() {
			begin, err := time.Now(), err
			for permit.IsShortage(err) && !l.System.IsClosed() && time.Since(begin) < maxUndoing {
				retry.SleepOr(undoEvery, l.System.Closed, nil)
				err = try()
			}
			l.Changed()
		})
	}
	return err
}

// MarkDown records that Redis did not execute a call in any attempt, of which the last was sent at that instant.
func (l *Link) MarkDown(sent time.Time, failure *retry.Error) {
	if l.Health().MarkDown(sent, failure.Err, failure.ReadOnly) {
		l.observe(Event{Kind: OutageBegan, Err: failure.Err})
	}
}

// noteReply records what the reply to a call shows that was sent at the given instant on behalf of c, which may be
// nil. It does nothing if err shows that there was no reply.
func (l *Link) noteReply(c *outage.Call, sent time.Time, err error) {
	failure, failed := err.(*retry.Error)
	switch {
	case !failed || failure.Outcome == retry.Executed && failure.Answered:
		l.replied(c, sent, outage.Ran)
	case failure.Answered:
		l.replied(c, sent, outage.NotYet)
	}
}

func (l *Link) replied(c *outage.Call, sent time.Time, what outage.Reply) {
	if ended, lasted, granted := l.Health().Replied(c, sent, what); ended {
		l.observe(Event{Kind: OutageEnded, Duration: lasted, Granted: granted})
	}
}

// WithLast returns err, the reason why Redis is down, together with the error of the last attempt if that is a
// different one.
func WithLast(err, last error) error {
	if last == nil || errors.Is(err, last) {
		return err
	}
	return fmt.Errorf("%w; the last attempt ended with: %w", err, last)
}

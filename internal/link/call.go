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

// A Call makes one attempt at a call. The attempt is a replay if an earlier one may have been executed. It has to end with ctx.
type Call func(ctx context.Context, replay bool) error

// Gated repeats call, which makes one attempt at a call that may reclaim permits, until there is a reply. An attempt
// is a replay if an earlier one may have been executed. During an outage it makes no attempt, and returns at once. Its errors are meant for callers: when ctx is done, it returns the error of ctx, which wraps
// ErrUnavailable as well if there has been no reply.
func (l *Link) Gated(ctx context.Context, op string, call Call) error {
	l.Touch()
	defer l.Touch()
	return l.Read(ctx, op, call)
}

// Change is Gated for a call that must not arrive late, after others.
func (l *Link) Change(ctx context.Context, op string, call Call) error {
	l.Touch()
	defer l.Touch()
	return l.repeat(ctx, op, call, true)
}

// Touch tells the queue that a call which does not come from it begins or has ended. Such a call may reclaim the
// queue's tripwire; then a missing tripwire does not prove that another process took part.
func (l *Link) Touch() { l.Queue.Touch(l.Key) }

// Changed wakes this process's callers that wait for the limiter, because permits may be available again.
func (l *Link) Changed() { l.Queue.Changed(l.Key) }

// Read is Gated for a call that only reads.
func (l *Link) Read(ctx context.Context, op string, call Call) error {
	return l.repeat(ctx, op, call, false)
}

func (l *Link) repeat(ctx context.Context, op string, call Call, stays bool) error {
	begin := time.Now()
	var last error
	err := retry.Do(ctx.Done(), l.System.Closed, func(replay bool) error {
		health := l.Health()
		if last != nil {
			health.Await(ctx.Done(), l.System.Closed)
		}
		if err := l.ready(ctx); err != nil {
			return err
		}
		if _, down := health.Outage(); down != nil {
			return permit.Unavailable(op, l.Name, WithLast(down, last))
		}
		err := l.attempt(ctx, outage.Traits{Stays: stays || replay}, replay, call)
		failure, failed := err.(*retry.Error)
		if failed && failure.Outcome != retry.Executed && ctx.Err() == nil {
			last = failure.Err
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
	}
	return permit.Failed(op, l.Name, err)
}

// attempt makes one attempt at a call, and tells the health of Redis how it ended.
func (l *Link) attempt(ctx context.Context, t outage.Traits, replay bool, call Call) error {
	health := l.Health()
	a := health.Begin(l, t)
	bounded, end := a.Context(ctx)
	defer end()
	return health.End(ctx, a, call(bounded, replay))
}

// Attempt makes one attempt at b, and before it the report of grants in ledger that Redis does not know of; ledger may be nil.
func (l *Link) Attempt(ctx context.Context, ledger *outage.Ledger, b *permit.Batch) (a permit.Reply, err error) {
	if ledger != nil {
		if err = l.reconcile(ctx, ledger); err != nil {
			return a, err
		}
	}
	health := l.Health()
	one := health.Begin(l, outage.Traits{Stays: b.Replay, Lasts: true})
	bounded, end := one.Context(ctx)
	a, err = l.Backend.Acquire(bounded, b)
	end()
	return a, health.End(ctx, one, err)
}

// GiveBack gives back the permits of the grants that are not kept. It works even if the client is closed, because
// nothing else gives back what its callers left behind. Permits that it fails to give back are free again after one
// interval; see undo.
func (l *Link) GiveBack(ctx context.Context, typ permit.Type, grants ...permit.Grant) {
	for _, g := range grants {
		_ = l.undo(ctx, func(ctx context.Context, _ bool) error { return l.Backend.Refund(ctx, typ, g) })
	}
	l.Changed()
}

const (
	// maxUndoing is for how long undo goes on when Redis is not reached.
	maxUndoing = time.Minute
	// undoEvery is the pause until it does.
	undoEvery = time.Second
)

// undo makes a call that gives something back and may be made twice. If that fails because Redis is not reached, or this process
// has too much else on its way, undo returns, and goes on in the background until there is a reply, the client is closed, or
// maxUndoing has passed.
func (l *Link) undo(ctx context.Context, call Call) error {
	try := func() error {
		return retry.Do(nil, nil, func(replay bool) error { return l.attempt(ctx, outage.Traits{Stays: replay}, replay, call) })
	}
	err := try()
	if missed(err) {
		_ = l.Queue.Background(func() {
			begin, err := time.Now(), err
			for missed(err) && !l.System.IsClosed() && time.Since(begin) < maxUndoing {
				retry.SleepOr(undoEvery, l.System.Closed, nil)
				if !l.Health().Down() {
					err = try()
				}
			}
			l.Changed()
		})
	}
	return err
}

// missed reports whether a call that ended with err may not have been carried out, but would be if it was made again.
func missed(err error) bool {
	failure, failed := err.(*retry.Error)
	return failed && failure.Outcome != retry.Executed && !failure.Final
}

// Background calls f in a goroutine, for which Close waits unless it has begun.
func (l *Link) Background(f func()) {
	if l.Queue.Background(f) != nil {
		go f()
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

// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// Reconcile tells Redis of the pending grants in ledger, which are of this limiter, for a caller outside of its queue.
func (l *Link) Reconcile(ctx context.Context, ledger *outage.Ledger) error {
	ctx = context.WithoutCancel(ctx)
	return l.Read(ctx, "charge", func(ctx context.Context, _ bool) error { return l.reconcile(ctx, ledger) })
}

// reconcile reports the pending grants of ledger to Redis; see [outage.Ledger.Reconcile]. It needs no limiter, because an idle
// one may be evicted, and become another one, while the call is on its way.
func (l *Link) reconcile(ctx context.Context, ledger *outage.Ledger) error {
	return ledger.Reconcile(&outage.Reporter{
		Lock:   l.Queue,
		NewID:  l.System.Backends.NewID,
		Closed: l.System.Closed,
		Report: func(b permit.Batch) (permit.Reply, error, error) { return l.report(ctx, b) },
	})
}

// report makes one call. Its errors are those of [outage.Reporter].
func (l *Link) report(ctx context.Context, b permit.Batch) (a permit.Reply, rejection, err error) {
	l.Touch()
	a, err = l.Attempt(ctx, nil, &b)
	l.Touch()
	if err == nil && a.Next == permit.Heal && !b.Healed && a.Granted[0] == 0 {
		b.Healed = true
		l.Heal(ctx, b.Type, permit.Unchecked)
		return l.report(ctx, b)
	}
	if failure, ok := err.(*retry.Error); ok && failure.Outcome != retry.Executed {
		return permit.Reply{}, nil, failure
	}
	return a, err, nil
}

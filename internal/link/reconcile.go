// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// Reconcile tells Redis of the pending grants in share, which are of this limiter, for a caller outside of its queue.
func (k *Link) Reconcile(ctx context.Context, share *outage.Share) error {
	ctx = context.WithoutCancel(ctx)
	return k.gated(ctx, "charge", func(bool) error { return k.reconcile(ctx, share) })
}

// reconcile reports the pending grants of share to Redis; see [outage.Share.Reconcile]. It needs no limiter, because an idle
// one may be evicted, and become another one, while the call is on its way.
func (k *Link) reconcile(ctx context.Context, share *outage.Share) error {
	return share.Reconcile(&outage.Reporter{
		Lock:   k.Queue,
		NewID:  k.System.Backends.NewID,
		Closed: k.System.Closed,
		Report: func(b permit.Batch) (permit.Reply, error, error) { return k.report(ctx, b) },
	})
}

// report makes one call. Its errors are those of [outage.Reporter].
func (k *Link) report(ctx context.Context, b permit.Batch) (a permit.Reply, rejection, err error) {
	k.Touch()
	a, _, err = k.Attempt(ctx, nil, nil, &b)
	k.Touch()
	if err == nil && a.Next == permit.Heal && !b.Healed && a.Granted[0] == 0 {
		b.Healed = true
		k.Heal(ctx, b.Type, permit.Sick)
		return k.report(ctx, b)
	}
	if failure, ok := err.(*retry.Error); ok && failure.Outcome != retry.Executed {
		return permit.Reply{}, nil, failure
	}
	return a, err, nil
}

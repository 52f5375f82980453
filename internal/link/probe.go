// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// proveBeside makes the probe of any outage on behalf of c. It returns as soon as ctx is done, which does not end the
// probe: the contexts of callers may be too short for it.
func (l *Link) proveBeside(ctx context.Context, c *outage.Call) error {
	background := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		defer l.Health().End(c)
		return l.proof(background, c)
	}
	done := make(chan error, 1)
	err := l.Queue.Background(func() {
		err := l.proof(background, c)
		l.Health().End(c)
		done <- err
	})
	if err != nil {
		l.Health().End(c)
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &retry.Error{Err: ctx.Err(), Outcome: retry.NotExecuted}
	}
}

// proof makes a probe, on behalf of c. The error, a *[retry.Error], tells why the outage goes on. The call of c itself would not
// do: it writes only if there are permits, and may wait for a connection of a full pool for longer than a probe may take.
func (l *Link) proof(ctx context.Context, c *outage.Call) error {
	health := l.Health()
	sent := time.Now()
	// A later reply proves nothing, and waiting for it keeps others from probing.
	bounded, cancel := context.WithTimeout(ctx, outage.MaxProof)
	defer cancel()
	err := l.Backend.Probe(bounded)
	if failure, ok := err.(*retry.Error); ok && (failure.Local || bounded.Err() != nil && l.Backend.Shortage() != nil) && l.proveApart(ctx) {
		return nil
	}
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = &retry.Error{Err: fmt.Errorf("no reply to a probe within %v", outage.MaxProof), Outcome: retry.NotExecuted}
	}
	if failure, ok := err.(*retry.Error); ok && !(failure.Outcome == retry.Executed && failure.Answered) {
		l.noteReply(c, sent, err)
		return failure
	}
	l.replied(c, sent, outage.Wrote)
	if _, err := health.Since(); err != nil {
		return &retry.Error{Err: err, Outcome: retry.NotExecuted}
	}
	return nil
}

// proveApart makes a probe on a connection of its own, where the pool has none that is free, so that an outage ends when Redis
// replies even if this process cannot send its calls. It reports whether the outage is over.
func (l *Link) proveApart(ctx context.Context) bool {
	sent, ok := outage.ProbeApart(ctx, l)
	if ok {
		l.replied(nil, sent, outage.Wrote)
	}
	return ok && !l.Health().Down()
}

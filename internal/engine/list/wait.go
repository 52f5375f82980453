// SPDX-License-Identifier: Apache-2.0

package list

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// waitOutOutage waits until the end of the outage that caused err, or for a moment if there is none.
func (w *waiter) waitOutOutage(ctx context.Context, err error) error {
	pause, over := outage.ProbePause(), (<-chan struct{})(nil)
	for _, p := range w.parts {
		if ch, down := p.Handle.Health().Outage(); down != nil {
			pause, over = time.Until(w.outageLimit()), ch
			break
		}
	}
	slept, stopped := w.sleep(ctx, min(pause, time.Until(w.outageLimit())), over)
	if stopped != nil && stopped != permit.ErrClosed {
		return fmt.Errorf("%w: %w", err, stopped)
	}
	if stopped != nil {
		return stopped
	}
	if slept && (w.isLate(0) || time.Until(w.outageLimit()) <= 0) {
		return err
	}
	return nil
}

// outageLimit returns how long the caller waits for Redis, which is unavailable: the outage limit from when that is
// known, or from when the caller came.
func (w *waiter) outageLimit() time.Time {
	if w.fails.IsZero() {
		w.fails = time.Now()
		for _, p := range w.parts {
			if since, down := p.Handle.Health().Since(); down != nil && since.Before(w.fails) {
				w.fails = since
			}
		}
		if w.since.After(w.fails) {
			w.fails = w.since
		}
	}
	return w.fails.Add(w.engine.Config().OutageLimit)
}

// sleep sleeps for d, or until the time of the caller is up or over is closed, in which case slept is false. An
// error means that the caller no longer waits.
func (w *waiter) sleep(ctx context.Context, d time.Duration, over <-chan struct{}) (slept bool, err error) {
	if !w.deadline.IsZero() {
		d = min(d, time.Until(w.deadline))
	}
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true, nil
	case <-over:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.engine.Closed():
		return false, permit.ErrClosed
	}
}

// timeUp returns a channel that receives when the time of the caller and the grace are over, nil for a caller
// without a deadline, and a function that stops the timer.
func (w *waiter) timeUp() (<-chan time.Time, func() bool) {
	if w.deadline.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(time.Until(w.deadline.Add(engine.Grace)))
	return t.C, t.Stop
}

// isLower reports whether any part is of a lower class.
func (w *waiter) isLower() bool {
	return slices.ContainsFunc(w.parts, func(p part) bool { return p.Handle.Floor > 0 })
}

// hasPolicies reports whether a policy that is not closed applies to any part.
func (w *waiter) hasPolicies() bool {
	return slices.ContainsFunc(w.parts, func(p part) bool { return p.Policy != nil })
}

// downBecause returns why the Redis of any part is down, or nil.
func (w *waiter) downBecause() error {
	for _, p := range w.parts {
		if _, err := p.Handle.Health().Since(); err != nil {
			return err
		}
	}
	return nil
}

// failure returns why calls to the Redis of any part are not sent, or how the last attempt to reach it failed, or nil if there
// has been a reply since. With asks set a call is on its way.
func (w *waiter) failure(asks bool) error {
	for _, p := range w.parts {
		health := p.Handle.Health()
		err := health.Failure()
		if !health.Down() && (err != nil || asks || health.Suspected()) {
			err = cmp.Or(p.Handle.Backend.Shortage(), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names returns what a list asks for, for errors.
func (w *waiter) names() string {
	var b strings.Builder
	b.WriteString("acquire of ")
	for i, p := range w.parts {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", p.Handle.Name)
	}
	return b.String()
}

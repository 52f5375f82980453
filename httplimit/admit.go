// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter"
)

// dryRunDelay is how long a dry run waits for Redis at most.
const dryRunDelay = 100 * time.Millisecond

// admit waits until the request may be sent. Its error is an *Error.
func (c *roundTrip) admit() error {
	if len(c.plan.rules) == 0 {
		return nil
	}
	first := firstOf(c.req.Context())
	if e, ok := first.earlier(); ok && !c.t.cfg.dryRun {
		c.rejected(e)
		return e
	}
	c.countDry()
	start := time.Now()
	ctx, degraded := c.req.Context(), false
	var err error
	if c.t.cfg.dryRun {
		var cancel context.CancelFunc
		ctx, cancel = c.context(dryRunDelay)
		defer cancel()
		degraded, err = c.acquire(ctx, patience{})
	} else {
		degraded, err = c.acquire(ctx, c.patience(ctx))
	}
	if err != nil {
		c.rejected(err)
		if !c.t.cfg.dryRun {
			first.note(err)
			return err
		}
	}
	c.sent = time.Now()
	e := c.event
	e.Wait = c.sent.Sub(start)
	if degraded {
		e.Kind = EventDegraded
		c.t.emit(e)
	}
	e.Kind = EventGranted
	c.t.emit(e)
	return nil
}

// countDry spends the permits of rules with DryRun, and reports those that are missing.
func (c *roundTrip) countDry() {
	if len(c.plan.dry) == 0 {
		return
	}
	ctx, cancel := c.context(dryRunDelay)
	defer cancel()
	for _, d := range c.plan.dry {
		r, err := d.asks().Allow(ctx, d.permits)
		if err == nil && r.Granted {
			continue
		}
		rejection := &Error{Limiter: d.name, Wait: r.Wait, Reason: ReasonWait}
		if err != nil {
			rejection = c.failed(err)
			rejection.Limiter = d.name
		}
		e := c.event
		e.Kind, e.DryRun, e.Limiter, e.Wait, e.Reason, e.Err = EventRejected, true, d.name, r.Wait, rejection.Reason, rejection
		c.t.emit(e)
	}
}

// rejected emits the event of a rejection; err is an *Error.
func (c *roundTrip) rejected(err error) {
	e := c.event
	e.Kind, e.Err = EventRejected, err
	var rejection *Error
	if errors.As(err, &rejection) {
		e.Limiter, e.Wait, e.Reason = rejection.Limiter, rejection.Wait, rejection.Reason
	}
	c.t.emit(e)
}

// acquire acquires the permits of the whole plan within p. It reports whether an outage policy granted any of them.
func (c *roundTrip) acquire(ctx context.Context, p patience) (degraded bool, err error) {
	end := time.Now().Add(p.wait)
	rejection := func(name string, wait time.Duration, reason Reason) error {
		e := &Error{Limiter: name, Wait: wait, Reason: reason, MaxWait: p.wait, boundBy: p.by}
		if p.by == boundDeadline {
			e.Err = context.DeadlineExceeded
		}
		return e
	}
	for {
		if err := ctx.Err(); err != nil {
			return false, c.failed(err)
		}
		if len(c.plan.demands) == 0 {
			return false, nil
		}
		if l, wait, reason := c.held(ctx, end); l != nil {
			if c.t.cfg.rejectEarly && wait > time.Until(end) {
				return false, rejection(l.name, wait, reason)
			}
			if err := hold(ctx, wait, time.Until(end)); err != nil {
				return false, c.failed(err)
			}
			if !time.Now().Before(end) {
				return false, rejection(l.name, wait, reason)
			}
			continue
		}
		if name, wait, err := c.quotaWait(ctx); err != nil {
			e := c.failed(err)
			e.Limiter = name
			return false, e
		} else if wait > 0 {
			if wait > time.Until(end) {
				return false, rejection(name, wait, ReasonWait)
			}
			if err := hold(ctx, wait, time.Until(end)); err != nil {
				return false, c.failed(err)
			}
			continue
		}
		r, err := c.ask(ctx, max(time.Until(end), 0))
		if err == nil && !r.Degraded {
			c.answered = true
		}
		if err == nil && !r.Granted && !r.Degraded || errors.Is(err, ratelimiter.ErrPermitsExceedRate) {
			c.compareRates()
		}
		if err == nil && r.Granted && !c.mayGo(ctx, end, r.Degraded) {
			c.giveBack()
			continue
		}
		if err != nil {
			err := c.failed(err)
			err.Wait = r.Wait
			return false, err
		}
		if !r.Granted {
			name, reason := "", ReasonWait
			if r.RejectedBy != nil {
				name = r.RejectedBy.Name()
			}
			if d := c.plan.find(name); d != nil && d.banLeft() > 0 {
				reason = ReasonCoolDown
			}
			return false, rejection(name, r.Wait, reason)
		}
		if r.Degraded {
			return true, nil
		}
		if name, wait, err := c.takeQuotas(ctx); err != nil {
			c.giveBack()
			e := c.failed(err)
			e.Limiter = name
			return false, e
		} else if name != "" {
			again := c.comesBack()
			c.giveBack()
			if !again || wait > time.Until(end) {
				return false, rejection(name, wait, ReasonWait)
			}
			if err := hold(ctx, wait, time.Until(end)); err != nil {
				return false, c.failed(err)
			}
			continue
		}
		return false, nil
	}
}

// ask asks Redis, and asks a second time if a request that would wait too long is to be rejected at once. While the
// request waits, this process looks for bans that others met.
func (c *roundTrip) ask(ctx context.Context, timeout time.Duration) (ratelimiter.AllResult, error) {
	asked, settles := c.plan.asked(), c.plan.settles()
	c.grants, c.quotaGrants = nil, nil
	if len(asked) == 0 {
		return ratelimiter.AllResult{Granted: true}, nil
	}
	acquire := func(timeout time.Duration) (r ratelimiter.AllResult, err error) {
		c.grants = nil
		if settles {
			c.grants, r, err = c.t.client.TryAcquireAllGrants(ctx, timeout, asked...)
			return r, err
		}
		return c.t.client.TryAcquireAll(ctx, timeout, asked...)
	}
	if c.t.cfg.rejectEarly && timeout > 0 {
		r, err := acquire(0)
		if err != nil || r.Granted || r.Wait > timeout {
			return r, err
		}
	}
	if timeout > 0 {
		defer c.watch()()
	}
	return acquire(timeout)
}

// failed returns the *Error for an error of the limiter or of the context.
func (c *roundTrip) failed(err error) *Error {
	e := &Error{Reason: ReasonRule, Err: err}
	if len(c.plan.demands) == 1 {
		e.Limiter = c.plan.demands[0].name
	}
	switch {
	case c.req.Context().Err() != nil:
		// Not the limiter's error, which may be that of a connection the context broke.
		e.Reason, e.Err = ReasonContext, c.req.Context().Err()
	case errors.Is(err, ratelimiter.ErrNotInitialized), errors.Is(err, ratelimiter.ErrInvalidArgument),
		errors.Is(err, ratelimiter.ErrPermitsExceedRate), errors.Is(err, ratelimiter.ErrNameNotClusterSafe),
		errors.Is(err, ratelimiter.ErrMalformed):
	default:
		e.Reason = ReasonUnavailable
	}
	return e
}

// hold sleeps until the cool-down or the time left ends, but at most a second: then it asks again whether Redis is
// back.
func hold(ctx context.Context, wait, left time.Duration) error {
	timer := time.NewTimer(min(wait, left, time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

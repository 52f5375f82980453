package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
	"github.com/redis/go-redis/v9"
)

// This file is what callers of several limiters do while Redis is known to be away and no policy is
// closed. On a cluster or a ring that means all of the limiters' nodes.

// withoutRedis asks the policies for all parts at once. decided is false where they have no say: Redis is
// there, or one of them is closed. A refusal says how long it takes, if nobody else asks first: nobody
// stands in line for several shares.
func (w *allWaiter) withoutRedis(ctx context.Context) (a AllResult, decided bool, err error) {
	if !w.degradable() {
		return AllResult{}, false, nil
	}
	now := time.Now()
	for i, p := range w.parts {
		at, err := p.degrade(ctx, now, false)
		if err != nil {
			return AllResult{}, true, err
		}
		if wait := at.Sub(now); wait > 0 && (a.Limiter == nil || wait > a.Wait) {
			a = AllResult{Limiter: w.parts[i].Limiter, Wait: wait, Degraded: true}
		}
	}
	for i := 0; a.Limiter == nil && i < len(w.parts); i++ {
		at, err := w.parts[i].degrade(ctx, now, true)
		if err == nil && !at.After(now) {
			continue
		}
		// Somebody else was faster. Each lock is held for itself only: all at once would have to be taken in
		// the order of their buckets.
		for _, p := range w.parts[:i] {
			p.undegrade(now)
		}
		if err != nil {
			return AllResult{}, true, err
		}
		a = AllResult{Limiter: w.parts[i].Limiter, Wait: at.Sub(now), Degraded: true}
	}
	if a.Limiter != nil {
		return a, true, nil
	}
	w.parts[0].Limiter.outage().granted()
	return AllResult{Granted: true, Degraded: true}, true, nil
}

// degradable says that the policies decide.
func (w *allWaiter) degradable() bool {
	for _, p := range w.parts {
		if p.Limiter.policy == nil || !p.Limiter.outage().known() {
			return false
		}
	}
	return true
}

// degrade is when the part's policy can grant it; with take it does if that is now.
func (p part) degrade(ctx context.Context, now time.Time, take bool) (at time.Time, err error) {
	l := p.Limiter
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	if l.bucket.closed {
		return at, ErrClosed
	}
	o := l.outage()
	since, cause := o.begun()
	e := l.bucket.engine(l)
	m := e.remember()
	if cause != nil && e.trying < maxSlow && o.claim() {
		e.probe(ctx)
	}
	at, _, err = m.when(l.policy, p.Permits, now, since)
	if err != nil {
		return at, fmt.Errorf("%w: acquire of %q: %w: %w", ErrUnavailable, l.name, err, cause)
	}
	if l.policy.kind == localShare && e.shareLine() && !at.After(now) {
		at = now.Add(max(e.shareDue.Sub(now), time.Millisecond)) // those who stand in line come first
	}
	if take && !at.After(now) {
		m.take(l.policy, p.Permits, now)
	}
	return at, nil
}

// undegrade takes back what degrade took at now.
func (p part) undegrade(now time.Time) {
	p.Limiter.bucket.mu.Lock()
	defer p.Limiter.bucket.mu.Unlock()
	if m := p.Limiter.bucket.engine(p.Limiter).remember(); p.Limiter.policy.kind == localShare {
		m.undo(p.Permits, now)
	}
}

// undo takes permits out of the log again that were granted at that instant. Those that a call is
// charging meanwhile stay.
func (m *memory) undo(permits int64, at time.Time) {
	for i := len(m.log) - 1; i >= 0 && !m.log[i].last.Before(at); i-- {
		if g := &m.log[i]; !g.charged && g.permits >= permits && !g.first.After(at) {
			g.permits -= permits
			m.used -= permits
			return
		}
	}
}

// waitWithoutRedis sleeps until the policies may grant, a probe is due, Redis is back, or the caller's
// time is up; false then.
func (w *allWaiter) waitWithoutRedis(ctx context.Context, wait time.Duration) (bool, error) {
	next, over, _ := w.parts[0].Limiter.outage().look()
	if _, err := w.sleep(ctx, min(wait, time.Until(next)), over); err != nil {
		return false, err
	}
	return !w.late(0), nil
}

// payDebts charges what was granted of the parts without Redis, before more is asked for.
func (c *Client) payDebts(ctx context.Context, parts []part) error {
	for _, p := range parts {
		if p.Limiter.policy != nil {
			if err := p.Limiter.payDebts(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
	}
	return nil
}

// payDebts sends until Redis has answered. While Redis is known to be away it does not reach the network,
// but for the probe.
func (l *RateLimiter) payDebts(ctx context.Context) error {
	l.bucket.mu.Lock()
	m, owes := l.bucket.memories[l.keys.hash], false
	if m != nil {
		owes = m.paying != nil || m.owes(time.Now())
	}
	l.bucket.mu.Unlock()
	if !owes {
		return nil
	}
	typ := l.hint()
	for tries := (redisscript.Attempts{Begin: time.Now()}); ; tries.Pause(nil, l.client.closed) {
		if err := l.ready(ctx); err != nil {
			return err
		}
		next, _, err := l.outage().enter()
		if err != nil {
			return l.failed("charge", redisscript.Unknown, err)
		}
		if err = l.pay(ctx, m, &typ); err == nil {
			return nil
		}
		what, again := tries.Failed(err)
		if again && next.IsZero() {
			continue
		}
		if !errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted) {
			l.away(err)
		}
		return l.failed("charge", what, err)
	}
}

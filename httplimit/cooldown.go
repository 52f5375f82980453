// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"slices"
	"time"
)

// throttled begins the cool-downs that a verdict asks for, and returns when calls may go on.
func (c *roundTrip) throttled(v Verdict, status int) time.Time {
	now := time.Now()
	if !v.Until.After(now) {
		v.Until = time.Time{} // it did not say, or names an instant that is over and it throttles still
	} else if latest := now.Add(c.t.cfg.maxCoolDown); v.Until.After(latest) {
		if v.Asked.Before(v.Until) {
			v.Asked = v.Until
		}
		v.Until = latest
	}
	e := c.event
	e.Kind, e.Until, e.Asked, e.Host = EventThrottled, v.Until, v.Asked, c.host()
	e.Scope, e.Banned, e.Status, e.Reason = v.Scope, v.Banned, status, Reason(v.Reason)
	c.t.emit(e)
	end := v.Until
	for _, d := range c.plan.concerned(v.Scope) {
		e.Kind, e.Limiter, e.Until, e.Err = EventCoolDown, d.name, v.Until, nil
		if !d.whole {
			e.Kind = EventHostCoolDown
			e.Until = d.holdHost(c.plan.host, v.Until, c.sent, now, c.t.cfg)
			c.t.limiters.keep(d.limiter)
		} else if e.Until.IsZero() {
			e.Until = d.backOff(c.sent, now, c.t.cfg)
		}
		if e.Until.After(end) {
			end = e.Until
		}
		if d.whole && !c.t.cfg.dryRun {
			e.Err = c.coolDown(d, e.Until)
		}
		c.t.emit(e)
	}
	if end.IsZero() {
		end = now.Add(c.t.cfg.backOff)
	}
	return end
}

// concerned returns the demands of the scope, or all demands when none has it: a penalty of an unknown limit must not be
// met again because the wrong limiter was left open.
func (p *plan) concerned(s Scope) []*demand {
	var some, all []*demand
	for i := range p.demands {
		d := &p.demands[i]
		all = append(all, d)
		if s != "" && slices.Contains(d.scopes, s) {
			some = append(some, d)
		}
	}
	if len(some) > 0 {
		return some
	}
	return all
}

// find returns the demand of a limiter in Redis.
func (p *plan) find(name string) *demand {
	if i := p.index(name); i >= 0 {
		return &p.demands[i]
	}
	return nil
}

// index returns which demand is that of a limiter in Redis, -1 for none.
func (p *plan) index(name string) int {
	return slices.IndexFunc(p.demands, func(d demand) bool { return d.name == name && !d.alone })
}

// A backOff holds the cool-downs for which the platform named no end.
type backOff struct {
	began, until time.Time
	last         time.Duration
}

// backOff returns the end of a cool-down of the limiter that begins now: see backOff.next.
func (l *limiter) backOff(sent, now time.Time, cfg config) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.back.next(sent, now, cfg)
}

// next returns the end of a cool-down that begins now, because of a request that was sent at the given time. It is twice as
// long as the last one when that ended only recently. A request that was on its way when the last one began does not
// begin another.
func (b *backOff) next(sent, now time.Time, cfg config) time.Time {
	switch {
	case !sent.After(b.began) && now.Before(b.until):
		return b.until
	case b.last > 0 && now.Sub(b.until) < b.last:
		b.last = min(2*b.last, cfg.maxBackOff)
	default:
		b.last = cfg.backOff
	}
	b.began, b.until = now, now.Add(b.last)
	return b.until
}

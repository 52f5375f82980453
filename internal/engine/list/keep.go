// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
)

// This file has the order in which a series acquires its parts, and for how long it keeps them.

// lasts returns how long the first part is waited for.
func (s *series) lasts() time.Duration {
	slowest := s.bound.rate.Interval
	for _, x := range s.steps {
		slowest = max(slowest, x.rate.Interval)
	}
	return maxKept * slowest
}

// first returns the index of the part that comes first of those that are missing, or -1.
func (s *series) first() int {
	first := -1
	for i, x := range s.steps {
		if !x.held && (first < 0 || x.rate.Interval > s.steps[first].rate.Interval) {
			first = i
		}
	}
	return first
}

// isAhead reports whether a part that comes before the i-th is missing.
func (s *series) isAhead(i int) bool {
	first := s.first()
	if first < 0 {
		return false
	}
	slower := s.steps[first].rate.Interval - s.steps[i].rate.Interval
	return slower > 0 || slower == 0 && first < i
}

// late returns a part that is missing and takes too long, and when it may be granted: one that is known to, because of a cool-down,
// or the first if it has been waited for, or another has been kept, for as long as may be. It returns -1 if there is none.
func (s *series) late(now time.Time) (i int, until time.Time) {
	end := s.end
	for _, x := range s.steps {
		if at := x.since.Add(maxKept * x.rate.Interval); x.held && at.Before(end) {
			end = at
		}
	}
	for i, x := range s.steps {
		if !x.held && s.parts[i].Handle.State().Grant.After(end) {
			return i, s.parts[i].Handle.State().Grant
		}
	}
	if now.Before(end) {
		return -1, end
	}
	return s.first(), s.parts[s.first()].Handle.State().Grant
}

// keep moves what is held and due to the present. A part that was got ahead, and may be kept no longer, goes back instead, and is not
// asked for before s comes to it.
func (s *series) keep(ctx context.Context, now time.Time) error {
	for i, p := range s.parts {
		if x := &s.steps[i]; x.held && s.isAhead(i) && now.Sub(x.since) >= maxAhead*x.rate.Interval {
			p.Handle.Refund(context.WithoutCancel(ctx), p.asked, p.Permits)
			x.held, x.renewed, s.all = false, now, never
		}
	}
	return s.renew(ctx, func(i int) bool { return !s.steps[i].due().After(now) })
}

// due returns when there is something to do.
func (s *series) due() time.Time {
	next := s.end
	if time.Now().Before(s.all) && s.all.Before(next) {
		next = s.all
	}
	for _, x := range s.steps {
		if at := x.due(); at.Before(next) {
			next = at
		}
	}
	return next
}

// due returns when the part is to be renewed: before its permits are free again for others, and before its limiter expires. The queue
// renews a limiter in which a request stands.
func (x *step) due() time.Time {
	every := engine.RenewEvery(x.rate)
	switch {
	case x.asks:
		every = link.MaxInterval
	case x.held && x.rate.Interval > 0:
		every = min(every, x.rate.Interval/2)
	}
	return x.renewed.Add(every)
}

// renew moves the parts that are held to the present, and keeps the limiters of others alive, where which says so. A part that cannot
// be granted now, since its time is over, or because of a cool-down or of another's grant, is not held any more.
func (s *series) renew(ctx context.Context, which func(i int) bool) error {
	return s.each(func(i int) (err error) {
		p, x := s.parts[i], &s.steps[i]
		switch {
		case !which(i) || x.asks:
			return nil
		case x.held:
			x.held, err = p.Handle.Renew(ctx, p.asked, p.Permits)
		default:
			_, err = p.Handle.Look(ctx, p.Permits)
		}
		x.renewed = time.Now()
		return err
	})
}

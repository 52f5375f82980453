// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A series acquires the parts of a list one after another, each as an ordinary request that stands in the queue of its
// limiter since the list's caller came. All lists do so in the order of the keys, so no two hold what the other waits for. Before it
// waits for a part, it takes all that are missing, if they are free at that instant: then it waits for none.
// What it has lies idle until all are together, and is then moved to the present, so that no window counts less than is
// used. It belongs to one goroutine.
type series struct {
	w     *waiter
	bound reply  // what rejected the list
	parts []part // not those of w, whose caller may leave
	steps []step

	// The line reads keys, room and the permits of parts, which stay as they are.
	keys  []string // of the limiters
	room  []int64  // permits of each limiter that lists of this process may acquire together
	begun bool     // the lock of the line guards it
}

// A step is how far a series has got with one of its parts.
type step struct {
	rate    permit.Rate // as far as it is known
	held    bool        // the part was granted
	renewed time.Time   // when its limiter was last asked for it, or it was moved to the present
}

func newSeries(w *waiter, a reply) *series {
	s := &series{w: w, bound: a, parts: slices.Clone(w.parts)}
	for _, p := range s.parts {
		s.keys = append(s.keys, p.Handle.Key)
		s.steps = append(s.steps, step{rate: p.Handle.State().Rate, renewed: time.Now()})
	}
	return s
}

// learn asks for the rates that are not known: nobody in this process waits for those limiters at the moment.
func (s *series) learn(ctx context.Context) error {
	for i, p := range s.parts {
		rate := &s.steps[i].rate
		if rate.Interval == 0 {
			a, err := p.Handle.Look(ctx, p.Permits)
			if err != nil {
				return err
			}
			*rate = link.Bounded(a.Rate)
		}
		s.room = append(s.room, rate.Permits/2)
	}
	return nil
}

// A series lasts for minLasts intervals of the slowest limiter, or for lastsEach for each of its parts, if that is more. Permits of
// one limiter are kept for less than that while others are waited for.
const minLasts, lastsEach = 8, 4

// inLine acquires all parts when it is the turn of s among the lists of this process.
func (s *series) inLine(ctx context.Context) (reply, error) {
	line, waits := &s.w.lists.line, ctx
	if d := s.w.deadline; !d.IsZero() {
		var cancel context.CancelFunc
		waits, cancel = context.WithDeadline(ctx, d)
		defer cancel()
	}
	if err := s.learn(ctx); err != nil {
		return nothing, err
	}
	defer line.leave(s)
	if !line.enter(waits, s) {
		return s.bound, ctx.Err()
	}
	return s.acquire(ctx)
}

// free asks at once for all parts that are missing. If they are granted, all are held.
func (s *series) free(ctx context.Context) (reply, error) {
	var missing []int
	var parts []part
	for i, x := range s.steps {
		if !x.held {
			missing, parts = append(missing, i), append(parts, s.parts[i])
		}
	}
	a, err := s.w.lists.tryAll(ctx, parts)
	if err != nil || !a.Granted {
		return a, err
	}
	for j, i := range missing {
		s.parts[i].asked = parts[j].asked
		s.steps[i].held, s.steps[i].renewed = true, time.Now()
	}
	return allGranted(s.parts), nil
}

// acquire acquires all parts. If it does not succeed, what it holds is to be refunded.
func (s *series) acquire(ctx context.Context) (reply, error) {
	if err := reconcileAll(ctx, s.parts); err != nil {
		return nothing, err
	}
	end := time.Now().Add(time.Duration(max(minLasts, lastsEach*len(s.parts))) * s.slowest())
	if d := s.w.deadline; !d.IsZero() && d.Before(end) {
		end = d
	}
	for i := s.missing(); i >= 0; i = s.missing() {
		began := time.Now()
		if a, err := s.free(ctx); err != nil {
			return nothing, err
		} else if a.Granted { // what it had before may have lain idle
			if err := s.renew(ctx, func(j int) bool { return s.steps[j].renewed.Before(began) }); err != nil {
				return nothing, err
			}
			continue
		}
		r, err := s.wait(ctx, i, end)
		if err != nil {
			return nothing, err
		}
		if !r.Granted {
			return rejection(i, &permit.Reply{Wait: r.Wait, Rate: s.steps[i].rate}), nil
		}
		if s.missing() < 0 {
			if err := s.renew(ctx, func(j int) bool { return j != i }); err != nil {
				return nothing, err
			}
		}
	}
	return allGranted(s.parts), nil
}

// missing returns the index of the first part that is not held, or -1.
func (s *series) missing() int {
	return slices.IndexFunc(s.steps, func(x step) bool { return !x.held })
}

// slowest returns the longest interval of the limiters, as far as that is known.
func (s *series) slowest() time.Duration {
	longest := s.bound.rate.Interval
	for _, x := range s.steps {
		longest = max(longest, x.rate.Interval)
	}
	return longest
}

// wait waits for the i-th part until end, and meanwhile renews the others.
func (s *series) wait(ctx context.Context, i int, end time.Time) (r engine.Outcome, err error) {
	p := s.parts[i]
	want := engine.Request{Permits: p.Permits, Wait: true, Timeout: engine.Timeout(end), Own: true, Came: s.w.since, Yields: true}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		r, err = p.Handle.Acquire(waits, want)
		close(ended)
	}()
	late, failed := s.renewUntil(ctx, ended, i, end)
	cancel()
	<-ended
	switch {
	case err == nil && r.Granted:
		s.parts[i].asked = r.Asked
		x := &s.steps[i]
		x.held, x.renewed, x.rate.Interval = true, time.Now(), link.Bounded(r.Reply.Rate).Interval
		err = failed
	case failed != nil:
		err = failed
	case late:
		r, err = engine.Outcome{Wait: time.Until(p.Handle.State().Grant)}, nil
	}
	return r, err
}

// renewUntil renews all parts but the i-th whenever they are due, until ended is closed. It reports whether that one is known to
// be granted after end, because of a cool-down, so that nothing is to be held for it.
func (s *series) renewUntil(ctx context.Context, ended <-chan struct{}, i int, end time.Time) (late bool, err error) {
	for {
		next := time.Now().Add(link.MaxInterval)
		for j, x := range s.steps {
			if at := x.due(); j != i && at.Before(next) {
				next = at
			}
		}
		t := time.NewTimer(time.Until(next))
		select {
		case <-ended:
			t.Stop()
			return false, nil
		case now := <-t.C:
			if s.parts[i].Handle.State().Grant.After(end) {
				return true, nil
			}
			if err := s.renew(ctx, func(j int) bool { return j != i && !s.steps[j].due().After(now) }); err != nil {
				return false, err
			}
		}
	}
}

// due returns when the part is to be renewed: before its permits are free again for others, and before its limiter expires.
func (x *step) due() time.Time {
	every := engine.RenewEvery(x.rate)
	if x.held && x.rate.Interval > 0 {
		every = min(every, x.rate.Interval/2)
	}
	return x.renewed.Add(every)
}

// renew moves the parts that are held to the present, and keeps the limiters of others alive, where which says so. A part
// that cannot be granted now, since its time is over, or because of a cool-down or of another's grant, is not held any more.
func (s *series) renew(ctx context.Context, which func(i int) bool) (err error) {
	for i, p := range s.parts {
		x := &s.steps[i]
		switch {
		case !which(i):
			continue
		case x.held:
			x.held, err = p.Handle.Renew(ctx, p.asked, p.Permits)
		default:
			_, err = p.Handle.Look(ctx, p.Permits)
		}
		if err != nil {
			return err
		}
		x.renewed = time.Now()
	}
	return nil
}

// refund gives back what is held.
func (s *series) refund(ctx context.Context) {
	for i, p := range s.parts {
		if s.steps[i].held {
			p.Handle.Refund(ctx, p.asked, p.Permits)
		}
	}
}

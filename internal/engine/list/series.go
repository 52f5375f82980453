// SPDX-License-Identifier: Apache-2.0

package list

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A series acquires the parts of a list in an order that all lists share: those of slower limiters first, and by their keys where the
// interval is the same. It waits for each as an ordinary request, which stands in the queue of its limiter since the list's caller
// came. What it has lies idle until all are together, and is then moved to the present, so that no window counts less than is used.
//
// So that this does not take an interval for each part, it also asks for those that it has not come to yet, once the part that it has
// come to lets it wait for half an interval. What it gets that way it keeps for no longer than maxAhead, unless it comes to it. So no two
// series hold for long what the other waits for.
//
// A series belongs to one goroutine.
type series struct {
	w     *waiter
	bound reply  // what rejected the list
	parts []part // not those of w, whose caller may leave
	steps []step

	asking int       // requests that stand in queues
	all    time.Time // when it asks for every part that is missing, and not only for the first
	end    time.Time // until when it waits for the first

	keys  []string // of the limiters; they stay as they are, so that the line may read them
	begun bool     // it is not behind others; the lock of the line guards it
}

// A step is how far a series has got with one of its parts.
type step struct {
	rate    permit.Rate // as far as it is known
	asks    bool        // a request for the part stands in the queue
	held    bool        // the part was granted
	since   time.Time   // when that was
	renewed time.Time   // when its limiter was last asked for it, or it was moved to the present
}

func newSeries(w *waiter) *series {
	s := &series{w: w, bound: w.told, parts: slices.Clone(w.parts), all: never}
	for _, p := range s.parts {
		s.keys = append(s.keys, p.Handle.Key)
		s.steps = append(s.steps, step{rate: p.Handle.State().Rate, renewed: time.Now()})
	}
	return s
}

const (
	maxKept  = 8 // intervals of its limiter for which a part is kept, and of the slowest one for which the first is waited for
	maxAhead = 3 // intervals of its limiter for which a part is kept while one is missing that comes before it
)

// never is later than any instant at which a series does something.
var never = time.Unix(1<<40, 0)

// inLine acquires all parts when it is the turn of s among the lists of this process.
func (s *series) inLine(ctx context.Context) (reply, error) {
	line, waits := &s.w.lists.line, ctx
	if d := s.w.deadline; !d.IsZero() {
		var cancel context.CancelFunc
		waits, cancel = context.WithDeadline(ctx, d)
		defer cancel()
	}
	defer line.leave(s)
	if !line.enter(waits, s) {
		return s.bound, ctx.Err()
	}
	return s.acquire(ctx)
}

// A landed is how the request for a part ended.
type landed struct {
	part int
	engine.Outcome
	err error
}

// acquire acquires all parts. If it does not succeed, what it holds is to be refunded.
func (s *series) acquire(ctx context.Context) (reply, error) {
	if err := reconcileAll(ctx, s.parts); err != nil {
		return nothing, err
	}
	if err := s.learn(ctx); err != nil {
		return nothing, err
	}
	s.end = time.Now().Add(s.lasts())
	waits, cancel := context.WithCancel(ctx)
	replies := make(chan landed)
	defer func() {
		cancel()
		for s.asking > 0 {
			s.land(<-replies)
		}
	}()
	for s.first() >= 0 {
		s.ask(waits, replies)
		t := time.NewTimer(time.Until(s.due()))
		select {
		case x := <-replies:
			t.Stop()
			s.land(x)
			switch {
			case x.err != nil:
				return nothing, x.err
			case !x.Granted: // its time is up, or, with RejectEarly, known to be too short
				return s.rejectedBy(x.part, max(x.Wait, engine.Timeout(s.w.deadline))), nil
			}
			if s.first() >= 0 {
				continue
			}
			if err := s.renew(ctx, func(i int) bool { return i != x.part }); err != nil {
				return nothing, err
			}
		case now := <-t.C:
			if i, until := s.late(now); i >= 0 {
				return s.rejectedBy(i, time.Until(until)), nil
			}
			if err := s.keep(ctx, now); err != nil {
				return nothing, err
			}
		}
	}
	return allGranted(s.parts), nil
}

func (s *series) rejectedBy(i int, wait time.Duration) reply {
	return rejection(i, &permit.Reply{Wait: wait, Rate: s.steps[i].rate})
}

// learn asks for the rates that are not known, since nobody in this process waits for those limiters: the order depends on them.
func (s *series) learn(ctx context.Context) error {
	return s.each(func(i int) (err error) {
		if x := &s.steps[i]; x.rate.Interval == 0 {
			var a permit.Reply
			a, err = s.parts[i].Handle.Look(ctx, s.parts[i].Permits)
			x.rate = link.Bounded(a.Rate)
		}
		return err
	})
}

// each calls f for all parts at once, and returns an error of it.
func (s *series) each(f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(s.parts))
	for i := range s.parts {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// ask has a request for each part that it may ask for stand in the queue of its limiter.
func (s *series) ask(ctx context.Context, replies chan<- landed) {
	first, all := s.first(), !time.Now().Before(s.all)
	for i, p := range s.parts {
		x := &s.steps[i]
		if x.held || x.asks || i != first && !all {
			continue
		}
		x.asks = true
		s.asking++
		want := engine.Request{Permits: p.Permits, Wait: true, Timeout: engine.Timeout(s.w.deadline), Own: true, Came: s.w.since, Yields: true}
		go func() {
			r, err := p.Handle.Acquire(ctx, want)
			replies <- landed{i, r, err}
		}()
	}
}

// land records how a request ended.
func (s *series) land(x landed) {
	st := &s.steps[x.part]
	st.asks = false
	s.asking--
	if x.err != nil || !x.Granted {
		return
	}
	was := s.first()
	s.parts[x.part].asked = x.Asked
	st.rate.Interval = link.Bounded(x.Reply.Rate).Interval
	st.got()
	if x.part == was {
		s.all, s.end = st.since.Add(st.rate.Interval/2), st.since.Add(s.lasts())
	}
}

// got records that the part was granted.
func (x *step) got() {
	x.held, x.since = true, time.Now()
	x.renewed = x.since
}

// refund gives back what is held.
func (s *series) refund(ctx context.Context) {
	for i, p := range s.parts {
		if s.steps[i].held {
			p.Handle.Refund(ctx, p.asked, p.Permits)
		}
	}
}

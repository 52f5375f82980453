// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter"
)

// batch has q decided, by a call of its own or together with others.
func (s *Shared) batch(ctx context.Context, q demand) (ratelimiter.Result, error) {
	l, slow := &s.config.lines, s.config.outages.slowed()
	if s.down() {
		return s.decideLocally(ctx, q, nil)
	}
	n, err := s.inForce(ctx, q)
	if err != nil {
		return s.withoutSetting(ctx, q, err)
	}
	r, inline := l.request(ctx, q, n, s.slot), slow == nil // a caller that makes its call cannot leave when Redis is slow
	if x := l.board(s.keys[0], inline, r); x != nil && inline {
		x.flight.add(r, false)
		s.fly(ctx, x)
		s.goOn(x)
		result, err := r.result, r.err
		l.recycle(r)
		return result, err
	} else if x != nil {
		s.goOn(x)
	}
	return s.await(ctx, r, slow)
}

// An outcome is what a request comes to.
type outcome struct {
	result ratelimiter.Result
	err    error
}

// batchAll is batch for several requests.
func (s *Shared) batchAll(ctx context.Context, list []demand) []outcome {
	l, slow := &s.config.lines, s.config.outages.slowed()
	outcomes, requests := make([]outcome, len(list)), make([]*request, len(list))
	if s.down() {
		for i, q := range list {
			outcomes[i].result, outcomes[i].err = s.decideLocally(ctx, q, nil)
		}
		return outcomes
	}
	var boarded []*request
	for i, q := range list {
		n, err := s.inForce(ctx, q)
		if err != nil {
			outcomes[i].result, outcomes[i].err = s.withoutSetting(ctx, q, err)
			continue
		}
		requests[i] = l.request(ctx, q, n, s.slot)
		boarded = append(boarded, requests[i])
	}
	if len(boarded) == 0 {
		return outcomes
	}
	if x := l.board(s.keys[0], false, boarded...); x != nil {
		s.goOn(x)
	}
	for i, r := range requests {
		if r == nil {
			continue
		}
		outcomes[i].result, outcomes[i].err = s.await(ctx, r, slow)
	}
	return outcomes
}

// await blocks until r has an outcome, ctx is done, or slow is closed and Redis is down.
func (s *Shared) await(ctx context.Context, r *request, slow <-chan struct{}) (ratelimiter.Result, error) {
	for began := time.Now(); ; {
		select {
		case <-r.done:
			result, err := r.result, r.err
			s.config.lines.recycle(r)
			return result, err
		case <-ctx.Done():
			r.left.Store(true)
			return ratelimiter.Result{}, s.left(ctx.Err(), began, nil)
		case <-slow:
			if slow = s.config.outages.slowed(); s.down() && len(r.done) == 0 { // and not another part of Redis
				r.left.Store(true)
				return s.decideLocally(ctx, r.demand, nil)
			}
		}
	}
}

// settled forgets what is known from before a settlement, and lets those who wait ask again for what it has given back.
func (s *Shared) settled(x *settlement) {
	x.done = true
	s.config.known.forget(s.slot)
	if x.by < 0 {
		s.config.queues.look(s.slot)
	}
}

// fly makes the flight of x. Then its requests have outcomes, or are to be asked again.
func (s *Shared) fly(ctx context.Context, x *line) {
	f := &x.flight
	if change := f.settlement(); change != nil && change.done {
		return
	}
	err := s.reconcile(ctx)
	var reply []any
	var sent time.Time
	if err == nil {
		reply, sent, err = s.send(ctx, f)
	}
	if err == nil {
		if change := f.settlement(); change != nil {
			s.settled(change)
		} else if answer, ok := reply[2].(string); ok {
			err = s.decideAgain(f, reply, answer)
		} else {
			err = s.decide(f, reply, sent)
		}
	}
	if err == nil {
		return
	}
	for i := range f.runs {
		for _, r := range f.runs[i].calls {
			r.result, r.err, r.again = ratelimiter.Result{}, err, false
			if s.config.outages != nil && errors.Is(err, ratelimiter.ErrUnavailable) && !r.left.Load() {
				r.result, r.err = s.decideLocally(ctx, r.demand, err)
			}
		}
	}
}

// land tells the callers of x's flight their outcomes. Requests that have none go before those that wait.
func (s *Shared) land(x *line) {
	var again []*request
	f := &x.flight
	for i := range f.runs {
		for j, r := range f.runs[i].calls {
			f.runs[i].calls[j] = nil // the caller may use it again
			if r.again {
				r.again = false
				again = append(again, r)
			} else {
				r.done <- struct{}{}
			}
		}
	}
	if again != nil {
		s.config.lines.putBack(x, again)
	}
}

// fill is lines.fill, where what is known to be rejected is rejected.
func (s *Shared) fill(x *line) bool {
	c := s.config
	return c.lines.fill(x, c.now().algorithm.reserves(), func(r *request) (ok bool) {
		if r.settlement != nil {
			return false
		}
		r.result, _, ok = c.rejected(r.slot, r.demand)
		return ok
	})
}

// goOn makes the flights of those that have come in the meantime, in a goroutine if there are any.
func (s *Shared) goOn(x *line) {
	if s.fill(x) {
		go func() {
			for {
				s.fly(context.WithoutCancel(x.flight.runs[0].calls[0].ctx), x)
				n := x.flight.requests
				s.land(x)
				if n > 1 {
					// The callers that have their outcomes may ask again at once. Let them, so that their
					// requests share the next flight.
					runtime.Gosched()
				}
				if !s.fill(x) {
					return
				}
			}
		}()
	}
}

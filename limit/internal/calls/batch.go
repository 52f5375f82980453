// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/outage"
)

// batch has q decided, by a call of its own or together with others.
func (s *Shared) batch(ctx context.Context, q Demand) (ratelimiter.Result, error) {
	l, begins := &s.config.Lines, s.config.outages.begins()
	r, result, err := s.prepare(ctx, q)
	if r == nil {
		return result, err
	}
	inline := s.config.outages.policy.Kind == outage.FailClosed && ctx.Done() == nil // a caller that makes its call cannot leave
	if x := l.board(s.keys[0], inline, r); x != nil && inline {
		x.flight.Add(r, false)
		s.flyFor(ctx, x)
		return l.deliver(r)
	} else if x != nil {
		s.goOn(x)
	}
	return s.await(ctx, r, begins)
}

// An outcome is what a request comes to.
type outcome struct {
	result ratelimiter.Result
	Err    error
}

// BatchAll is batch for several requests.
func (s *Shared) BatchAll(ctx context.Context, list []Demand) []outcome {
	begins := s.config.outages.begins()
	outcomes, requests := make([]outcome, len(list)), make([]*Request, len(list))
	var boarded []*Request
	for i, q := range list {
		requests[i], outcomes[i].result, outcomes[i].Err = s.prepare(ctx, q)
		if requests[i] != nil {
			boarded = append(boarded, requests[i])
		}
	}
	if boarded != nil {
		if x := s.config.Lines.board(s.keys[0], false, boarded...); x != nil {
			s.goOn(x)
		}
	}
	for i, r := range requests {
		if r != nil {
			outcomes[i].result, outcomes[i].Err = s.await(ctx, r, begins)
		}
	}
	return outcomes
}

// prepare returns a request for q, or nil and its outcome if it has one without a call: by the policy while Redis is down, or an error
// if it is not known which setting is in force.
func (s *Shared) prepare(ctx context.Context, q Demand) (*Request, ratelimiter.Result, error) {
	if s.down() {
		r, err := s.decideLocally(q, nil)
		return nil, r, err
	}
	n, err := s.inForce(ctx, q)
	if err != nil && ctx.Err() == nil && errors.Is(err, ratelimiter.ErrUnavailable) {
		r, err := s.decideLocally(q, err)
		return nil, r, err
	}
	if err != nil {
		return nil, ratelimiter.Result{}, err
	}
	return s.config.Lines.request(ctx, q, n, s.slot), ratelimiter.Result{}, nil
}

// await blocks until r has an outcome, ctx is done, or begins is closed and Redis is down.
func (s *Shared) await(ctx context.Context, r *Request, begins <-chan struct{}) (ratelimiter.Result, error) {
	for began := time.Now(); ; {
		select {
		case <-r.done:
			return s.config.Lines.deliver(r)
		case <-ctx.Done():
			r.left.Store(true)
			return ratelimiter.Result{}, s.Left(ctx.Err(), began, s.config.Lines.failure(s.keys[0]))
		case <-begins:
			if begins = s.config.outages.begins(); s.down() && len(r.done) == 0 && r.left.CompareAndSwap(false, true) { // and not another part of Redis
				return s.decideLocally(r.asked(), nil)
			}
		}
	}
}

// settled forgets what is known from before a settlement, and lets those who wait ask again for what it has given back.
func (s *Shared) settled(x *Settlement) {
	x.done = true
	s.config.Known.forget(s.slot)
	if x.By < 0 {
		s.config.Queues.look(s.slot)
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
		reply, sent, err = s.Send(ctx, f)
	}
	if err == nil {
		if change := f.settlement(); change != nil {
			s.settled(change)
		} else if answer, ok := reply[2].(string); ok {
			err = s.DecideAgain(f, reply, answer)
		} else {
			err = s.Decide(f, reply, sent)
		}
	}
	if err != nil {
		s.fail(ctx, f, err)
	}
}

// fail makes err the outcome of the requests of f, or has the outage policy decide them.
func (s *Shared) fail(ctx context.Context, f *Flight, err error) {
	for i := range f.Runs {
		for _, r := range f.Runs[i].Calls {
			r.Result, r.err, r.Again = ratelimiter.Result{}, err, false
			if errors.Is(err, ratelimiter.ErrUnavailable) && r.left.CompareAndSwap(false, true) {
				r.Result, r.err = s.decideLocally(r.Demand, err)
			}
		}
	}
}

// land tells the callers of x's flight their outcomes. Requests that have none go before those that wait.
func (s *Shared) land(x *line) {
	var again []*Request
	f := &x.flight
	for i := range f.Runs {
		for j, r := range f.Runs[i].Calls {
			f.Runs[i].Calls[j] = nil // the caller may use it again
			if r.Again {
				r.Again = false
				again = append(again, r)
			} else {
				r.done <- struct{}{}
			}
		}
	}
	if again != nil {
		s.config.Lines.putBack(x, again)
	}
}

// fill is lines.fill, where what is known to be rejected is rejected.
func (s *Shared) fill(x *line) bool {
	c := s.config
	return c.Lines.fill(x, c.Now().Reserves, func(r *Request) (ok bool) {
		if r.settlement != nil {
			return false
		}
		r.Result, _, ok = c.Rejected(r.Slot, r.Demand)
		return ok
	})
}

// goOn makes the flights of those that have come in the meantime, in a goroutine if there are any.
func (s *Shared) goOn(x *line) {
	if s.fill(x) {
		go s.flyAll(x)
	}
}

// flyFor makes the flight of x for a caller that has it alone, and then has those of the others made.
func (s *Shared) flyFor(ctx context.Context, x *line) {
	defer s.goOn(x) // also if a hook ends the goroutine
	s.fly(ctx, x)
}

// flyAll makes the flights of x until nobody is left.
func (s *Shared) flyAll(x *line) {
	ended := false
	defer func() {
		if !ended { // a hook has ended the goroutine
			s.fail(context.Background(), &x.flight, s.unavailable(errGone))
			s.land(x)
			s.goOn(x)
		}
	}()
	for more := true; more; more = s.fill(x) {
		s.fly(context.WithoutCancel(x.flight.Runs[0].Calls[0].ctx), x)
		n := x.flight.Requests
		s.land(x)
		if n > 1 {
			// The callers that have their outcomes may ask again at once. Let them, so that their
			// requests share the next flight.
			runtime.Gosched()
		}
	}
	ended = true
}

// errGone reports that a hook has ended the goroutine of a call, as a test's hook does that calls t.FailNow.
var errGone = errors.New("a hook has ended the goroutine that made the call")

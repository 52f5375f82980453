// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
)

// Requests of one key that come while a call of it is in flight wait in a line and share the next call, which
// decides them one after another. A call keeps the line of its key until it has a reply or has failed, also when all of
// its callers have left: that a process makes one call of a key at a time is what replays rest on (see ids).

// A Request is what one caller asks for. The caller may leave while its call is in flight, so what the call writes is part of
// the request.
type Request struct {
	Demand
	Setting *Setting // by which it is decided
	Slot    string   // see Shared.slot
	ctx     context.Context
	done    chan struct{} // has an element when it has an outcome
	left    atomic.Bool   // the caller has left, or the outage policy decides
	Again   bool          // it has no outcome yet
	Outcome
	err error
}

// batch has q decided, by a call of its own or together with others.
func (s *Shared) batch(ctx context.Context, q Demand) (Outcome, error) {
	l, begins := &s.config.lines, s.config.outages.begins()
	r, o, err := s.prepare(ctx, q)
	if r == nil {
		return o, err
	}
	if x := l.board(s.keys[0], r); x != nil {
		s.goOn(x, nil)
	}
	return s.await(ctx, r, begins)
}

// batchAll is batch for several requests.
func (s *Shared) batchAll(ctx context.Context, list []Demand) ([]Outcome, []error) {
	begins := s.config.outages.begins()
	requests, outcomes, errs := make([]*Request, len(list)), make([]Outcome, len(list)), make([]error, len(list))
	var boarded []*Request
	for i, q := range list {
		requests[i], outcomes[i], errs[i] = s.prepare(ctx, q)
		if requests[i] != nil {
			boarded = append(boarded, requests[i])
		}
	}
	if boarded != nil {
		if x := s.config.lines.board(s.keys[0], boarded...); x != nil {
			s.goOn(x, nil)
		}
	}
	for i, r := range requests {
		if r != nil {
			outcomes[i], errs[i] = s.await(ctx, r, begins)
		}
	}
	return outcomes, errs
}

// prepare returns a request for q, or nil and its outcome if it has one without a call: by the policy while Redis is down, or an error
// if it is not known which setting is in force.
func (s *Shared) prepare(ctx context.Context, q Demand) (*Request, Outcome, error) {
	if s.down() {
		o, err := s.decideLocally(q, nil)
		return nil, o, err
	}
	n, err := s.inForce(ctx, q)
	if err != nil && ctx.Err() == nil && errors.Is(err, ratelimiter.ErrUnavailable) {
		o, err := s.decideLocally(q, err)
		return nil, o, err
	}
	if err != nil {
		return nil, Outcome{}, err
	}
	return s.config.lines.request(ctx, q, n, s.slot), Outcome{}, nil
}

// await blocks until r has an outcome, ctx is done, or begins is closed and Redis is down.
func (s *Shared) await(ctx context.Context, r *Request, begins <-chan struct{}) (Outcome, error) {
	for began := time.Now(); ; {
		select {
		case <-r.done:
			return s.config.lines.deliver(r)
		case <-ctx.Done():
			r.left.Store(true)
			return Outcome{}, s.Left(ctx.Err(), began, s.config.lines.failure(s.keys[0]))
		case <-begins:
			if begins = s.config.outages.begins(); s.down() && len(r.done) == 0 && r.left.CompareAndSwap(false, true) { // and not another part of Redis
				return s.decideLocally(r.Demand, nil)
			}
		}
	}
}

// A line holds the requests of one key that wait for a flight to end. There is one only as long as there is
// a flight.
type line struct {
	key     string
	waiting []*Request
	flight  Flight
	failure error // of the last attempt at the flight
}

// lines are the lines of all keys.
type lines struct {
	shards   [16]lineShard
	requests sync.Pool
	ended    sync.Pool // lines
}

type lineShard struct {
	mu    sync.Mutex
	lines map[string]*line
	_     [40]byte
}

// lock locks the shard of a key and returns it.
func (l *lines) lock(key string) *lineShard {
	s := &l.shards[hash(key)%len(l.shards)]
	s.mu.Lock()
	return s
}

var seed = maphash.MakeSeed()

func hash(key string) int { return int(maphash.String(seed, key) >> 1) }

func (l *lines) request(ctx context.Context, q Demand, n *Setting, slot string) *Request {
	r, _ := l.requests.Get().(*Request)
	if r == nil {
		r = &Request{done: make(chan struct{}, 1)}
	}
	if !n.Reserves {
		q.AtMost = 0 // so that all are equal
	}
	r.Demand, r.Setting, r.Slot, r.ctx = q, n, slot, ctx
	return r
}

// deliver returns the outcome of r, and makes r available again. Nobody else may have it.
func (l *lines) deliver(r *Request) (Outcome, error) {
	o, err := r.Outcome, r.err
	*r = Request{done: r.done}
	l.requests.Put(r)
	return o, err
}

// board adds the requests to the line of a key that has a flight, and returns nil. Otherwise it returns a new
// line with them, whose flights the caller has to make.
func (l *lines) board(key string, requests ...*Request) *line {
	s := l.lock(key)
	defer s.mu.Unlock()
	if line := s.lines[key]; line != nil {
		line.waiting = append(line.waiting, requests...)
		return nil
	}
	x, _ := l.ended.Get().(*line)
	if x == nil {
		x = &line{}
	}
	x.key = key
	if s.lines == nil {
		s.lines = map[string]*line{}
	}
	s.lines[key] = x
	x.waiting = append(x.waiting, requests...)
	return x
}

// fill fills the flight of x with the requests that are asked again, and then those that wait, except for callers that have left and what
// is known to be rejected. It reports false if that is nothing, and then the line has ended.
func (s *Shared) fill(x *line, again []*Request) bool {
	c := s.config
	shard := c.lines.lock(x.key)
	defer shard.mu.Unlock()
	x.flight.reset()
	x.failure = nil
	if len(again) > 0 {
		x.waiting = append(again, x.waiting...)
	}
	taken := 0
	for _, r := range x.waiting {
		if c.rejects(r) {
			r.done <- struct{}{}
		} else if !r.left.Load() && !x.flight.Add(r, c.Now().Reserves) {
			break
		}
		taken++
	}
	rest := copy(x.waiting, x.waiting[taken:])
	clear(x.waiting[rest:])
	x.waiting = x.waiting[:rest]
	if x.flight.Requests > 0 {
		return true
	}
	delete(shard.lines, x.key)
	if cap(x.waiting) <= maxRequests {
		c.lines.ended.Put(x)
	}
	return false
}

// rejects reports whether r is known to be rejected, and makes that its outcome.
func (c *Limiter) rejects(r *Request) (ok bool) {
	if r.settlement == nil {
		r.Result, _, ok = c.Rejected(r.Slot, r.Demand)
	}
	return ok
}

// failing records how an attempt at a call of a key has failed, for those who leave before the next one succeeds.
func (l *lines) failing(key string, err error) {
	s := l.lock(key)
	defer s.mu.Unlock()
	if x := s.lines[key]; x != nil {
		x.failure = err
	}
}

// failure returns how the last attempt at the call of a key that is in flight has failed, or nil.
func (l *lines) failure(key string) error {
	s := l.lock(key)
	defer s.mu.Unlock()
	if x := s.lines[key]; x != nil {
		return x.failure
	}
	return nil
}

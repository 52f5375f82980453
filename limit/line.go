package limit

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
)

// Requests of one key that come while a call of it is in flight wait for its reply and go as one call, which
// decides them one after another. A caller without company makes its own call.

// A request is what one caller asks for.
type request struct {
	demand
	ctx    context.Context
	done   chan struct{} // has an element when result and err are set
	left   atomic.Bool   // the caller has left
	result Result
	err    error
	again  bool // it has no outcome yet
}

// A run is a number of equal requests.
type run struct {
	n, atMost int64
	spend     bool
	calls     []*request
}

// A flight is one call of a script, with the requests that it decides.
type flight struct {
	runs     []run
	requests int
	begun    time.Time // when it was first sent
}

// maxRuns and maxRequests bound a flight, and so the time that its script takes.
const (
	maxRuns     = 64
	maxRequests = 1024
)

// add adds r to the run of its equals, and to a new one if there is none. Nobody can tell in which order requests
// came that wait for one flight, except that turns are given in that order. It reports false if f is full.
func (f *flight) add(r *request, reserves bool) bool {
	if f.requests == maxRequests || f.requests > 0 && (r.settlement != nil || f.settlement() != nil) {
		return false
	}
	i := 0
	if reserves {
		i = max(0, len(f.runs)-1)
	}
	for ; i < len(f.runs); i++ {
		if x := &f.runs[i]; x.n == r.n && x.atMost == r.atMost && x.spend == r.spend {
			break
		}
	}
	if i == maxRuns {
		return false
	}
	if i == len(f.runs) {
		if i < cap(f.runs) {
			f.runs = f.runs[:i+1] // with the slice of calls that it had
		} else {
			f.runs = append(f.runs, run{})
		}
		x := &f.runs[i]
		x.n, x.atMost, x.spend, x.calls = r.n, r.atMost, r.spend, x.calls[:0]
	}
	f.runs[i].calls = append(f.runs[i].calls, r)
	f.requests++
	return true
}

func (f *flight) reset() {
	for i := range f.runs {
		clear(f.runs[i].calls)
	}
	f.runs, f.requests = f.runs[:0], 0
}

// settlement returns the settlement that f makes, alone, or nil.
func (f *flight) settlement() *settlement { return f.runs[0].calls[0].settlement }

// single reports whether f has one request.
func (f *flight) single() bool { return f.requests == 1 }

// spends reports whether f can take permits.
func (f *flight) spends() bool {
	for i := range f.runs {
		if f.runs[i].spend {
			return true
		}
	}
	return false
}

// abandoned reports whether all callers have left.
func (f *flight) abandoned() bool {
	for i := range f.runs {
		for _, r := range f.runs[i].calls {
			if !r.left.Load() {
				return false
			}
		}
	}
	return true
}

// A line holds the requests of one key that wait for a flight to end. There is one only as long as there is
// a flight.
type line struct {
	key     string
	waiting []*request
	flight  flight
}

// lines are the lines of all keys.
type lines struct {
	shards [16]struct {
		mu    sync.Mutex
		lines map[string]*line
		_     [40]byte
	}
	requests sync.Pool
	idle     sync.Pool
}

var seed = maphash.MakeSeed()

func hash(key string) int { return int(maphash.String(seed, key) >> 1) }

func shard(key string) int { return hash(key) % 16 }

func (l *lines) request(ctx context.Context, q demand) *request {
	r, _ := l.requests.Get().(*request)
	if r == nil {
		r = &request{done: make(chan struct{}, 1)}
	}
	r.demand, r.ctx, r.err, r.again = q, ctx, nil, false
	return r
}

// recycle makes r available again. Nobody else may have it.
func (l *lines) recycle(r *request) {
	r.ctx = nil
	l.requests.Put(r)
}

// board adds the requests to the line of a key that has a flight, and returns nil. Otherwise it returns a new
// line, whose flights the caller has to make, and to which it adds the requests unless inline is set.
func (l *lines) board(key string, inline bool, requests ...*request) *line {
	s := &l.shards[shard(key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if line := s.lines[key]; line != nil {
		line.waiting = append(line.waiting, requests...)
		return nil
	}
	x, _ := l.idle.Get().(*line)
	if x == nil {
		x = &line{}
	}
	x.key = key
	if s.lines == nil {
		s.lines = map[string]*line{}
	}
	s.lines[key] = x
	if !inline {
		x.waiting = append(x.waiting, requests...)
	}
	return x
}

// fill fills the flight of x with those that wait, except for callers that have left and requests that known
// decides. It reports false if that is nothing, and then the line has ended.
func (l *lines) fill(x *line, reserves bool, known func(*request) bool) bool {
	s := &l.shards[shard(x.key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	x.flight.reset()
	taken := 0
	for _, r := range x.waiting {
		if known(r) {
			r.done <- struct{}{}
		} else if !r.left.Load() && !x.flight.add(r, reserves) {
			break
		}
		taken++
	}
	rest := copy(x.waiting, x.waiting[taken:])
	clear(x.waiting[rest:])
	x.waiting = x.waiting[:rest]
	if x.flight.requests > 0 {
		return true
	}
	delete(s.lines, x.key)
	if cap(x.waiting) <= maxRequests {
		l.idle.Put(x)
	}
	return false
}

// putBack puts requests in front of those that wait.
func (l *lines) putBack(x *line, requests []*request) {
	s := &l.shards[shard(x.key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	x.waiting = append(requests, x.waiting...)
}

// batch has q decided, by a call of its own or together with others.
func (s *Shared) batch(ctx context.Context, q demand) (Result, error) {
	l, slow := &s.config.lines, s.config.outages.slowed()
	if s.down() {
		return s.decideLocally(ctx, q, nil)
	}
	r, inline := l.request(ctx, q), slow == nil // a caller that makes its call cannot leave when Redis is slow
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
	result Result
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
	for i, q := range list {
		requests[i] = l.request(ctx, q)
	}
	if x := l.board(s.keys[0], false, requests...); x != nil {
		s.goOn(x)
	}
	for i, r := range requests {
		outcomes[i].result, outcomes[i].err = s.await(ctx, r, slow)
	}
	return outcomes
}

// await blocks until r has an outcome, ctx is done, or slow is closed and Redis is down.
func (s *Shared) await(ctx context.Context, r *request, slow <-chan struct{}) (Result, error) {
	for began := time.Now(); ; {
		select {
		case <-r.done:
			result, err := r.result, r.err
			s.config.lines.recycle(r)
			return result, err
		case <-ctx.Done():
			r.left.Store(true)
			return Result{}, s.left(ctx.Err(), began, nil)
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
	s.config.known.forget(s.keys[0])
	if x.by < 0 {
		s.config.queues.look(s.keys[0])
	}
}

// fly makes the flight of x. Then its requests have outcomes, or are to be asked again.
func (s *Shared) fly(ctx context.Context, x *line) {
	f := &x.flight
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
			r.result, r.err, r.again = Result{}, err, false
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
	return c.lines.fill(x, c.algorithm.reserves(), func(r *request) (ok bool) {
		if r.settlement != nil {
			return false
		}
		r.result, _, ok = c.known.rejected(c, x.key, r.demand)
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

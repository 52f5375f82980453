// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
)

// Requests of one key that come while a call of it is in flight wait for its reply and go as one call, which
// decides them one after another. A call keeps the line of its key until it has a reply or has failed, also when all of
// its callers have left: that a process has one call of a key in flight at a time is what replays rest on (see ids). So a
// caller makes its call itself only if it cannot leave.

// A Request is what one caller asks for. The caller may leave while its call is in flight, so what the call writes is part of
// the request, and await hands it over.
type Request struct {
	Demand             // its Taken and Mark point to permits and own
	Setting   *Setting // by which it is decided
	Slot      string   // see Shared.slot
	ctx       context.Context
	done      chan struct{} // has an element when it has an outcome
	left      atomic.Bool   // the caller has left, or the outage policy decides
	Result    ratelimiter.Result
	err       error
	permits   int64
	own       Mark
	toPermits *int64 // where the caller wants them
	toMark    *Mark
	Again     bool // it has no outcome yet
}

// A Run is a number of equal requests.
type Run struct {
	N, AtMost int64
	Spend     bool
	upTo      bool // one request that takes what there is, up to n
	Calls     []*Request
}

// A Flight is one call of a script, with the requests that it decides.
type Flight struct {
	Runs     []Run
	Requests int
	begun    time.Time // when it was first sent
	id       string    // of the call; empty if it takes nothing
}

// Epoch returns what the state has of the id of f, if the limiter begins with it.
func (f *Flight) Epoch() Epoch {
	if f.id == "" {
		return Epoch{}
	}
	return EpochOf(f.id[1:])
}

// maxRuns and maxRequests bound a flight, and so the time that its script takes.
const (
	maxRuns     = 64
	maxRequests = 1024
)

// Add adds r to the run of its equals, and to a new one if there is none. Nobody can tell in which order requests
// came that wait for one flight, except that turns are given in that order. It reports false if f is full.
func (f *Flight) Add(r *Request, reserves bool) bool {
	if f.Requests == maxRequests || f.Requests > 0 && (r.settlement != nil || f.settlement() != nil || r.Setting != f.setting()) {
		return false
	}
	i := 0
	if reserves {
		i = max(0, len(f.Runs)-1)
	}
	for ; i < len(f.Runs); i++ {
		if x := &f.Runs[i]; x.N == r.N && x.AtMost == r.AtMost && x.Spend == r.Spend && !x.upTo && r.Taken == nil {
			break
		}
	}
	if i == maxRuns {
		return false
	}
	if i == len(f.Runs) {
		if i < cap(f.Runs) {
			f.Runs = f.Runs[:i+1] // with the slice of calls that it had
		} else {
			f.Runs = append(f.Runs, Run{})
		}
		x := &f.Runs[i]
		x.N, x.AtMost, x.Spend, x.upTo, x.Calls = r.N, r.AtMost, r.Spend, r.Taken != nil, x.Calls[:0]
	}
	f.Runs[i].Calls = append(f.Runs[i].Calls, r)
	f.Requests++
	return true
}

func (f *Flight) reset() {
	for i := range f.Runs {
		clear(f.Runs[i].Calls)
	}
	f.Runs, f.Requests = f.Runs[:0], 0
}

// settlement returns the settlement that f makes, alone, or nil.
func (f *Flight) settlement() *Settlement { return f.Runs[0].Calls[0].settlement }

// setting returns by which setting all requests of f are decided.
func (f *Flight) setting() *Setting { return f.Runs[0].Calls[0].Setting }

// single reports whether f has one request, for all of its permits or none.
func (f *Flight) single() bool { return f.Requests == 1 && !f.Runs[0].upTo }

// slot returns where what is known of the key of f is kept.
func (f *Flight) slot() string { return f.Runs[0].Calls[0].Slot }

// spends reports whether f can take permits.
func (f *Flight) spends() bool {
	for i := range f.Runs {
		if f.Runs[i].Spend {
			return true
		}
	}
	return false
}

// abandoned reports whether all callers have left.
func (f *Flight) abandoned() bool {
	for i := range f.Runs {
		for _, r := range f.Runs[i].Calls {
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
	waiting []*Request
	flight  Flight
	failure error // of the last attempt at the flight
}

// lines are the lines of all keys.
type lines struct {
	Shards   [16]lineShard
	requests sync.Pool
	idle     sync.Pool
}

type lineShard struct {
	mu    sync.Mutex
	Lines map[string]*line
	_     [40]byte
}

// lock locks the shard of a key and returns it.
func (l *lines) lock(key string) *lineShard {
	s := &l.Shards[hash(key)%len(l.Shards)]
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
	r.Demand, r.Setting, r.Slot, r.ctx, r.err, r.Again = q, n, slot, ctx, nil, false
	r.toPermits, r.toMark = q.Taken, q.Mark
	if q.Taken != nil {
		r.Taken = &r.permits
	}
	if q.Mark != nil {
		r.Mark, r.own = &r.own, Mark{}
	}
	r.left.Store(false)
	return r
}

// asked returns what the caller of r asks for.
func (r *Request) asked() Demand {
	q := r.Demand
	q.Taken, q.Mark = r.toPermits, r.toMark
	return q
}

// deliver returns the outcome of r, and makes r available again. Nobody else may have it.
func (l *lines) deliver(r *Request) (ratelimiter.Result, error) {
	if r.toPermits != nil {
		*r.toPermits = r.permits
	}
	if r.toMark != nil {
		*r.toMark = r.own
	}
	result, err := r.Result, r.err
	r.ctx, r.toPermits, r.toMark = nil, nil, nil
	l.requests.Put(r)
	return result, err
}

// board adds the requests to the line of a key that has a flight, and returns nil. Otherwise it returns a new
// line, whose flights the caller has to make, and to which it adds the requests unless inline is set.
func (l *lines) board(key string, inline bool, requests ...*Request) *line {
	s := l.lock(key)
	defer s.mu.Unlock()
	if line := s.Lines[key]; line != nil {
		line.waiting = append(line.waiting, requests...)
		return nil
	}
	x, _ := l.idle.Get().(*line)
	if x == nil {
		x = &line{}
	}
	x.key = key
	if s.Lines == nil {
		s.Lines = map[string]*line{}
	}
	s.Lines[key] = x
	if !inline {
		x.waiting = append(x.waiting, requests...)
	}
	return x
}

// fill fills the flight of x with those that wait, except for callers that have left and requests that known
// decides. It reports false if that is nothing, and then the line has ended.
func (l *lines) fill(x *line, reserves bool, known func(*Request) bool) bool {
	s := l.lock(x.key)
	defer s.mu.Unlock()
	x.flight.reset()
	x.failure = nil
	taken := 0
	for _, r := range x.waiting {
		if known(r) {
			r.done <- struct{}{}
		} else if !r.left.Load() && !x.flight.Add(r, reserves) {
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
	delete(s.Lines, x.key)
	if cap(x.waiting) <= maxRequests {
		l.idle.Put(x)
	}
	return false
}

// failing records how an attempt at a call of a key has failed, for those who leave before the next one succeeds.
func (l *lines) failing(key string, err error) {
	s := l.lock(key)
	defer s.mu.Unlock()
	if x := s.Lines[key]; x != nil {
		x.failure = err
	}
}

// failure returns how the last attempt at the call of a key that is in flight has failed, or nil.
func (l *lines) failure(key string) error {
	s := l.lock(key)
	defer s.mu.Unlock()
	if x := s.Lines[key]; x != nil {
		return x.failure
	}
	return nil
}

// putBack puts requests in front of those that wait.
func (l *lines) putBack(x *line, requests []*Request) {
	s := l.lock(x.key)
	defer s.mu.Unlock()
	x.waiting = append(requests, x.waiting...)
}

// SPDX-License-Identifier: Apache-2.0

package limit

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

// A request is what one caller asks for. The caller may leave while its call is in flight, so what the call writes is part of
// the request, and await hands it over.
type request struct {
	demand             // its taken and mark point to permits and own
	setting   *setting // by which it is decided
	slot      string   // see Shared.slot
	ctx       context.Context
	done      chan struct{} // has an element when it has an outcome
	left      atomic.Bool   // the caller has left, or the outage policy decides
	result    ratelimiter.Result
	err       error
	permits   int64
	own       mark
	toPermits *int64 // where the caller wants them
	toMark    *mark
	again     bool // it has no outcome yet
}

// A run is a number of equal requests.
type run struct {
	n, atMost int64
	spend     bool
	upTo      bool // one request that takes what there is, up to n
	calls     []*request
}

// A flight is one call of a script, with the requests that it decides.
type flight struct {
	runs     []run
	requests int
	begun    time.Time // when it was first sent
	id       string    // of the call; empty if it takes nothing
}

// epoch returns what the state has of the id of f, if the limiter begins with it.
func (f *flight) epoch() epoch {
	if f.id == "" {
		return epoch{}
	}
	return epochOf(f.id[1:])
}

// maxRuns and maxRequests bound a flight, and so the time that its script takes.
const (
	maxRuns     = 64
	maxRequests = 1024
)

// add adds r to the run of its equals, and to a new one if there is none. Nobody can tell in which order requests
// came that wait for one flight, except that turns are given in that order. It reports false if f is full.
func (f *flight) add(r *request, reserves bool) bool {
	if f.requests == maxRequests || f.requests > 0 && (r.settlement != nil || f.settlement() != nil || r.setting != f.setting()) {
		return false
	}
	i := 0
	if reserves {
		i = max(0, len(f.runs)-1)
	}
	for ; i < len(f.runs); i++ {
		if x := &f.runs[i]; x.n == r.n && x.atMost == r.atMost && x.spend == r.spend && !x.upTo && r.taken == nil {
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
		x.n, x.atMost, x.spend, x.upTo, x.calls = r.n, r.atMost, r.spend, r.taken != nil, x.calls[:0]
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

// setting returns by which setting all requests of f are decided.
func (f *flight) setting() *setting { return f.runs[0].calls[0].setting }

// single reports whether f has one request, for all of its permits or none.
func (f *flight) single() bool { return f.requests == 1 && !f.runs[0].upTo }

// slot returns where what is known of the key of f is kept.
func (f *flight) slot() string { return f.runs[0].calls[0].slot }

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
	failure error // of the last attempt at the flight
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

func (l *lines) request(ctx context.Context, q demand, n *setting, slot string) *request {
	r, _ := l.requests.Get().(*request)
	if r == nil {
		r = &request{done: make(chan struct{}, 1)}
	}
	r.demand, r.setting, r.slot, r.ctx, r.err, r.again = q, n, slot, ctx, nil, false
	r.toPermits, r.toMark = q.taken, q.mark
	if q.taken != nil {
		r.taken = &r.permits
	}
	if q.mark != nil {
		r.mark, r.own = &r.own, mark{}
	}
	r.left.Store(false)
	return r
}

// asked returns what the caller of r asks for.
func (r *request) asked() demand {
	q := r.demand
	q.taken, q.mark = r.toPermits, r.toMark
	return q
}

// deliver returns the outcome of r, and makes r available again. Nobody else may have it.
func (l *lines) deliver(r *request) (ratelimiter.Result, error) {
	if r.toPermits != nil {
		*r.toPermits = r.permits
	}
	if r.toMark != nil {
		*r.toMark = r.own
	}
	result, err := r.result, r.err
	r.ctx, r.toPermits, r.toMark = nil, nil, nil
	l.requests.Put(r)
	return result, err
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
	x.failure = nil
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

// failing records how an attempt at a call of a key has failed, for those who leave before the next one succeeds.
func (l *lines) failing(key string, err error) {
	s := &l.shards[shard(key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.lines[key]; x != nil {
		x.failure = err
	}
}

// failure returns how the last attempt at the call of a key that is in flight has failed, or nil.
func (l *lines) failure(key string) error {
	s := &l.shards[shard(key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.lines[key]; x != nil {
		return x.failure
	}
	return nil
}

// putBack puts requests in front of those that wait.
func (l *lines) putBack(x *line, requests []*request) {
	s := &l.shards[shard(x.key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	x.waiting = append(requests, x.waiting...)
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Request is what a caller asks for.
type Request struct {
	Permits   int64
	Wait      bool          // wait in the queue
	Timeout   time.Duration // how long to wait; 0 for as long as it takes
	TellWait  bool          // report the wait if it is rejected
	Own       bool          // its grant is a member of its own, so that it can be settled
	CachedFor time.Duration // how old a rejection may be that decides it without a call, if it does not wait
	Policy    *outage.Policy
	Floor     int64         // permits that are to stay free, for a request of a lower class; otherwise 0
	Age       time.Duration // for how long a request of a lower class that waits is of the class
	Came      time.Time     // for a part of a list: since when its caller has waited, here and elsewhere, because it was rejected
	Yields    bool          // it fails when an outage begins
}

// ofList reports whether r is for a part of a list, whose caller has waited elsewhere, too.
func (r *Request) ofList() bool { return !r.Came.IsZero() }

// Timeout returns the time left until the deadline in the form of Request.Timeout, where 0 means no limit.
func Timeout(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// Deadline returns when a timeout that begins now ends. It is the zero Time, which means never, if timeout <= 0.
func Deadline(timeout time.Duration) time.Time {
	if timeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(timeout)
}

// An Outcome is how a request ended.
type Outcome struct {
	Granted   bool
	Degraded  bool // a policy decided it, or makes it wait for the local quota
	Available int64
	Wait      time.Duration
	Asked     link.Asked    // the grant of a request with Own; zero if a local quota granted it
	Reply     *permit.Reply // the reply to the call, shared with other requests; nil if no call was made
	Err       error
}

// A request is the request of one caller on its way through a limiter. Its caller reads its results after done; the
// lock of the shard guards the rest.
type request struct {
	want    Request
	ctx     context.Context // of the caller, for the values that hooks of the redis client look up in it
	came    time.Time       // when the caller of one that waits began to wait
	done    chan struct{}   // receives one value when the request has ended
	timer   *time.Timer     // of the caller
	place   *Place          // for whose turn it waits, and not for permits; or nil
	gathers *gathering      // takes its permits ahead, or nil

	node     // in a queue
	state    state
	rejected bool // at least once
	overdue  bool // its time is up, and it waits for the reply that is on its way
	Outcome
}

// A state is how far a request has got.
type state int

const (
	isQueued   state = iota // it stands in a queue
	isInFlight              // a flight asks for it; in the queue it keeps its place
	hasEnded                // it has its outcome
	hasLeft                 // its caller has left
)

// newRequest returns a request without an outcome.
func (e *Engine) newRequest() *request {
	if r, ok := e.requests.Get().(*request); ok {
		return r
	}
	return &request{done: make(chan struct{}, 1)}
}

// recycle keeps a request for reuse that has ended and whose caller has been woken, and returns its outcome.
func (e *Engine) recycle(r *request) Outcome {
	got := r.Outcome
	*r = request{done: r.done, timer: r.timer}
	e.requests.Put(r)
	return got
}

// hasDeadline reports whether the time of the caller ends.
func (r *request) hasDeadline() bool { return r.want.Wait && r.want.Timeout > 0 }

// deadline returns when the time of the caller ends, or zero for never.
func (r *request) deadline() time.Time {
	if !r.hasDeadline() {
		return time.Time{}
	}
	return r.came.Add(r.want.Timeout)
}

// usesCached reports whether a cached rejection decides r, and its rejection others.
func (r *request) usesCached() bool { return r.want.CachedFor > 0 && !r.want.Wait }

// rejectionLocked returns the reply of a cached rejection, if there is one that decides r, which uses them.
func (s *shard) rejectionLocked(h *Handle, r *request) (*permit.Reply, bool) {
	switch want := &r.want; {
	case h.Health().Down(): // nothing is known
		return nil, false
	case want.TellWait:
		return s.rejections.Reply(h.QueueID, want.Permits, want.CachedFor)
	default:
		return s.rejections.ReplyToSome(h.QueueID, want.Permits, want.CachedFor)
	}
}

// live reports whether a caller waits for the outcome.
func (r *request) live() bool { return r.state < hasEnded }

// usesQuota reports whether a local quota decides r during an outage.
func (r *request) usesQuota() bool {
	return r.want.Policy != nil && r.want.Policy.Kind == outage.LocalQuota
}

// permits returns how many permits r asks for, or 0 if r is nil.
func (r *request) permits() int64 {
	if r == nil {
		return 0
	}
	return r.want.Permits
}

// endLocked ends r, which has its outcome. Its caller goes on when the lock is free, and may reuse r at once.
func (s *shard) endLocked(r *request) {
	r.unqueueLocked()
	r.state = hasEnded
	s.ended = append(s.ended, r)
}

func (s *shard) failLocked(r *request, err error) {
	r.Err = err
	s.endLocked(r)
}

func (s *shard) rejectLocked(r *request, a *permit.Reply) {
	r.Degraded, r.Available, r.Wait, r.Reply = false, a.Available, a.Wait, a
	s.endLocked(r)
}

func (s *shard) grantLocked(r *request, a *permit.Reply, left int64) {
	r.Granted, r.Degraded, r.Available, r.Reply = true, false, left, a
	s.endLocked(r)
}

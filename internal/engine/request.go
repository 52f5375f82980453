package engine

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A request is the request of one caller on its way through a limiter. What its caller reads, it reads after
// done; the lock of the shard guards the rest.
type request struct {
	permits  int64
	ctx      context.Context // of the caller, for the values that hooks of the redis client look up in it
	blocking bool
	policy   *outage.Policy // nil for FailClosed
	came     time.Time      // when the caller of a blocking one began to wait
	deadline time.Time      // of a blocking one; zero for none
	done     chan struct{}  // receives one value when the request has ended
	timer    *time.Timer

	place *Place // it waits for its turn, and not for permits

	gathers *gathering // takes its permits ahead

	prev, next *request
	queue      *queue // in which it stands
	watched    int    // its place among the deadlines of the queue, counted from 1; 0 for none
	inFlight   bool
	refused    bool // at least once
	overdue    bool // its time is up, and it waits for the reply that is on its way
	ended      bool // it has its outcome
	gone       bool // its caller left

	tellWait bool // it wants to know the wait if it is refused
	known    bool // its refusal may decide others
	Outcome
}

// live reports whether somebody waits for the outcome.
func (r *request) live() bool { return !r.ended && !r.gone }

// sharesLocally reports whether a local share decides r during an outage.
func (r *request) sharesLocally() bool {
	return r.policy != nil && r.policy.Kind == outage.LocalShare
}

// waiter returns r as a share of the rate knows it; r may be nil.
func (r *request) waiter() (w fair.Waiter) {
	if r != nil {
		w = fair.Waiter{Permits: r.permits, Refused: r.refused, Deadline: r.deadline}
	}
	return w
}

// endLocked marks r, which has its outcome, as ended and appends it to ended. Its caller learns of it from
// wake, after the lock is free.
func (r *request) endLocked(ended []*request) []*request {
	r.unqueueLocked()
	r.ended, r.inFlight = true, false
	return append(ended, r)
}

func (r *request) failLocked(err error, ended []*request) []*request {
	r.Err = err
	return r.endLocked(ended)
}

func (r *request) refuseLocked(a *permit.Reply, ended []*request) []*request {
	r.Degraded, r.Available, r.Wait, r.Reply = false, a.Available, a.Wait, a
	return r.endLocked(ended)
}

func (r *request) grantLocked(a *permit.Reply, left int64, ended []*request) []*request {
	r.Granted, r.Degraded, r.Available, r.Reply = true, false, left, a
	return r.endLocked(ended)
}

// wake lets the callers of ended requests go on. They may reuse the requests at once, so nobody else may touch
// them afterwards.
func wake(ended []*request) {
	for _, r := range ended {
		r.done <- struct{}{}
	}
}

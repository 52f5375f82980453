// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// maxReports bounds the calls that report the pending grants to Redis. A grant that does not fit is
// split, and sent again if a call has to reclaim more than it may at once.
const maxReports = 16

// A Reporter reports the pending grants of a Ledger to Redis.
type Reporter struct {
	Lock   sync.Locker // guards the Ledger; it is not held during calls
	NewID  func() permit.ID
	Closed <-chan struct{} // closed when nobody is to be told any more
	// Report makes one call. A rejection is an error that Redis replied; err, a *[retry.Error], is an error on the way to Redis.
	// After any reply nothing more is granted without Redis.
	Report func(b permit.Batch) (a permit.Reply, rejection, err error)
}

// Reconcile reports the pending grants of s to Redis. It returns only errors on the way to Redis, each a
// *[retry.Error]. A reply that is an error, for instance because the limiter has no rate, is not returned,
// since Redis is up and the caller's own request gets the same reply. Grants that could not be reported
// then stay pending until they can be, or until the interval in which they count is over. As long as Redis
// has no room for them, it has none for other requests either.
func (s *Ledger) Reconcile(t *Reporter) error {
	for {
		t.Lock.Lock()
		start, busy := s.startReconciling(time.Now())
		t.Lock.Unlock()
		if start {
			break
		}
		if busy == nil {
			return nil
		}
		select {
		case <-busy:
		case <-t.Closed:
			return nil
		}
	}
	err := s.tellAll(t)
	t.Lock.Lock()
	s.endReconciling()
	t.Lock.Unlock()
	return err
}

// tellAll sends the pending grants. It first asks for the time of Redis, in order to date them back.
func (s *Ledger) tellAll(t *Reporter) error {
	begin := time.Now()
	there, rejection, err := t.Report(permit.Batch{ID: t.NewID(), Runs: []permit.Run{{Permits: 1, Count: 1}}, DryRun: true})
	if err != nil || rejection != nil {
		return err
	}
	t.Lock.Lock()
	pending := s.stage(time.Now(), t.NewID)
	t.Lock.Unlock()
	for sent := 0; err == nil && rejection == nil && len(pending) > 0 && sent < maxReports; sent++ {
		d := pending[0]
		age := begin.Sub(d.At)
		if age >= there.Rate.Interval {
			pending = pending[1:]
			continue
		}
		var a permit.Reply
		a, rejection, err = t.Report(permit.Batch{ID: d.ID, Runs: []permit.Run{{Permits: d.Permits, Count: 1}}, Replay: d.Replay,
			At: there.Now.Add(-age)})
		switch room := roomOf(&a); {
		case err != nil:
			failure, ok := err.(*retry.Error)
			pending[0].Replay = d.Replay || ok && failure.Outcome == retry.Unknown
		case rejection != nil:
		case a.Granted[0] == 1:
			pending = pending[1:]
		case a.Next == permit.On:
		case room < 1 || room >= d.Permits:
			sent = maxReports // Redis has no room now
		default:
			pending[0] = Pending{At: d.At, Permits: room, ID: t.NewID()}
			pending = append(pending, Pending{At: d.At, Permits: d.Permits - room, ID: t.NewID()})
		}
	}
	t.Lock.Lock()
	s.setPending(pending)
	t.Lock.Unlock()
	return err
}

// roomOf returns how many permits a request that was rejected could have had.
func roomOf(a *permit.Reply) int64 {
	if len(a.Granted) > 0 && a.Granted[0] < 0 {
		return a.Rate.Permits
	}
	return a.Available
}

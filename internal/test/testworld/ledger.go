// SPDX-License-Identifier: Apache-2.0

package testworld

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
)

// A Grant is what Redis granted to one run of a call.
type Grant struct {
	ID      permit.ID
	At      time.Time
	Permits int64 // without those that were returned

	told bool // it was granted without Redis and reconciled later
}

// A ledger holds every grant that was made to the processes of a test, also those whose replies were lost.
type ledger struct {
	interval time.Duration

	mu     sync.Mutex
	grants []Grant
}

// all returns the grants, oldest first.
func (l *ledger) all() []Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(l.grants), func(a, b Grant) int { return a.At.Compare(b.At) })
}

// find returns the grant of that ID if it is in use.
func (l *ledger) find(id permit.ID) *Grant {
	for i := range l.grants {
		if g := &l.grants[i]; g.ID == id && now().Before(g.At.Add(l.interval)) {
			return g
		}
	}
	return nil
}

// has reports whether the grant of that ID is in use.
func (l *ledger) has(id permit.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(id) != nil
}

// add enters g, unless it is there already.
func (l *ledger) add(g Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(x Grant) bool { return x.ID == g.ID && x.At.Equal(g.At) }
	if g.Permits > 0 && !slices.ContainsFunc(l.grants, same) {
		l.grants = append(l.grants, g)
	}
}

// hold enters that id has that many permits from now on.
func (l *ledger) hold(id permit.ID, permits int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = slices.DeleteFunc(l.grants, func(g Grant) bool { return g.ID == id })
	if permits > 0 {
		l.grants = append(l.grants, Grant{ID: id, At: now(), Permits: permits})
	}
}

// refund enters that a grant keeps only that many permits.
func (l *ledger) refund(id permit.ID, keep int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.grants {
		if l.grants[i].ID == id {
			l.grants[i].Permits = min(l.grants[i].Permits, keep)
		}
	}
}

// release enters that permits have been returned, those of the newest grants first.
func (l *ledger) release(permits int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortStableFunc(l.grants, func(a, b Grant) int { return a.At.Compare(b.At) })
	for i := len(l.grants) - 1; i >= 0 && permits > 0; i-- {
		n := min(permits, l.grants[i].Permits)
		l.grants[i].Permits, permits = l.grants[i].Permits-n, permits-n
	}
}

// A book is the key of a ledger: a limiter and, if it is PER_CLIENT, a client.
type book struct{ key, client string }

// ledger returns the ledger of a limiter, and of a client unless the limiter is Overall.
func (s *Server) ledger(key, client string) *ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, r := book{key, client}, s.rates[key]
	if r.Type == permit.Overall {
		b.client = ""
	}
	l := s.books[b]
	if l == nil {
		l = &ledger{}
		s.books[b] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interval = r.Interval
	return l
}

// Granted returns the permits that a limiter granted at from or later, and at until or before, summed over all
// processes, without those that were returned. Redis counts whole milliseconds. Zero times are no bounds.
func (s *Server) Granted(key string, from, until time.Time) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b, l := range s.books {
		if b.key != key {
			continue
		}
		for _, g := range l.all() {
			if g.At.Before(from.Truncate(time.Millisecond)) || !until.IsZero() && g.At.After(until) {
				continue
			}
			n += g.Permits
		}
	}
	return n
}

// CheckWindows returns an error if a limiter has granted more than its rate within any interval. Permits that were
// returned do not count, and reconciled grants count only if told is set.
func (s *Server) CheckWindows(told bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for b, l := range s.books {
		r := s.rates[b.key]
		var grants grantlog.Grants
		for _, g := range l.all() {
			if told || !g.told {
				grants = append(grants, grantlog.At(g.At, g.Permits))
			}
		}
		if most := grants.Most(r.Interval); most > r.Permits {
			errs = append(errs, fmt.Errorf("%q granted %d permits within an interval: %v", b.key, most, r))
		}
	}
	return errors.Join(errs...)
}

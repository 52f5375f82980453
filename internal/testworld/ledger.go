package testworld

import (
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Grant is what Redis granted to one run of a call.
type Grant struct {
	ID      permit.ID
	At      time.Time
	Permits int64 // without those that were returned

	told bool // it was granted without Redis and reconciled later
}

// Span returns when g was made, for [redistest.Fullest].
func (g Grant) Span() (begin, end time.Time, permits int64) { return g.At, g.At, g.Permits }

// A Ledger holds every grant that was made to the processes of a test, also those whose replies were lost.
type Ledger struct {
	interval time.Duration

	mu     sync.Mutex
	grants []Grant
}

// all returns the grants, oldest first.
func (l *Ledger) all() []Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(l.grants), func(a, b Grant) int { return a.At.Compare(b.At) })
}

// find returns the grant of that ID if it is in use.
func (l *Ledger) find(id permit.ID) *Grant {
	for i := range l.grants {
		if g := &l.grants[i]; g.ID == id && now().Before(g.At.Add(l.interval)) {
			return g
		}
	}
	return nil
}

// has reports whether the grant of that ID is in use.
func (l *Ledger) has(id permit.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(id) != nil
}

// add enters g, unless it is the reply to a replay of what is there already.
func (l *Ledger) add(g Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.Permits > 0 && l.find(g.ID) == nil {
		l.grants = append(l.grants, g)
	}
}

// hold enters that id has that many permits from now on.
func (l *Ledger) hold(id permit.ID, permits int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = slices.DeleteFunc(l.grants, func(g Grant) bool { return g.ID == id })
	if permits > 0 {
		l.grants = append(l.grants, Grant{ID: id, At: now(), Permits: permits})
	}
}

// refund enters that a grant keeps only that many permits.
func (l *Ledger) refund(id permit.ID, keep int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.grants {
		if l.grants[i].ID == id {
			l.grants[i].Permits = min(l.grants[i].Permits, keep)
		}
	}
}

// release enters that permits have been returned, those of the newest grants first.
func (l *Ledger) release(now time.Time, permits int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortStableFunc(l.grants, func(a, b Grant) int { return a.At.Compare(b.At) })
	for i := len(l.grants) - 1; i >= 0 && permits > 0; i-- {
		n := min(permits, l.grants[i].Permits)
		l.grants[i].Permits, permits = l.grants[i].Permits-n, permits-n
	}
}

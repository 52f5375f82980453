// SPDX-License-Identifier: Apache-2.0

package grantlog

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Told is what callers were told of their requests.
type Told struct {
	Grants
	Rejected            int
	Degraded            int            // requests granted by an outage policy, which are not among the Grants
	Unavailable, Errors map[string]int // requests that got ErrUnavailable or another error, by its text
	Longest             time.Duration  // of any request
}

// A Ledger records what the callers of one limiter are told. They may use it at once.
type Ledger struct {
	mu   sync.Mutex
	told Told
}

// Note records the result of a request that began at begin and ends now.
func (l *Ledger) Note(begin time.Time, permits int64, granted, degraded bool, err error) {
	end := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.Longest = max(l.told.Longest, end.Sub(begin))
	switch {
	case errors.Is(err, permit.ErrUnavailable):
		count(&l.told.Unavailable, err.Error(), 1)
	case err != nil:
		count(&l.told.Errors, err.Error(), 1)
	case !granted:
		l.told.Rejected++
	case degraded:
		l.told.Degraded++
	default:
		l.told.Grants = append(l.told.Grants, Grant{Begin: begin, End: end, Permits: permits})
	}
}

// Add records a grant.
func (l *Ledger) Add(g Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.Grants = append(l.told.Grants, g)
}

// Merge records what other callers were told, as that of by.
func (l *Ledger) Merge(by string, other Told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range other.Grants {
		g.By = by
		l.told.Grants = append(l.told.Grants, g)
	}
	l.told.Rejected += other.Rejected
	l.told.Degraded += other.Degraded
	l.told.Longest = max(l.told.Longest, other.Longest)
	for text, n := range other.Unavailable {
		count(&l.told.Unavailable, by+": "+text, n)
	}
	for text, n := range other.Errors {
		count(&l.told.Errors, by+": "+text, n)
	}
}

func count(in *map[string]int, text string, n int) {
	if *in == nil {
		*in = map[string]int{}
	}
	(*in)[text] += n
}

// Told returns what the callers have been told until now.
func (l *Ledger) Told() Told {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.told
	told.Grants = told.Grants[:len(told.Grants):len(told.Grants)]
	told.Unavailable, told.Errors = maps.Clone(told.Unavailable), maps.Clone(told.Errors)
	return told
}

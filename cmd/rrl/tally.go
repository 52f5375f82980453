// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/grantlog"
)

// A tally counts what the endpoint granted, from its responses alone.
//
// The instants at which responses arrive do not show how much was granted in a window: a grant whose
// response took 3 ms and the next one, exactly one interval later, whose response took 1 ms would seem
// to lie within one window. So each grant counts at the instant at which Redis recorded it, which the
// response has among the members of the permits set. A response of 200 whose permits are recorded
// nowhere is an error.
type tally struct {
	window time.Duration

	mu       sync.Mutex
	grants   map[string]grantlog.Grant // by the member's bytes; the last few windows
	newest   time.Time
	worst    int64
	answered int64 // permits in responses of 200
	recorded int64 // permits in the members that came with them
	statuses map[int]int
	failed   error
}

func newTally(length time.Duration) *tally {
	return &tally{window: length, grants: map[string]grantlog.Grant{}, statuses: map[int]int{}}
}

// add counts one response. Responses may come in any order, but not later than two windows.
func (t *tally) add(e exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statuses[e.Status]++
	switch e.Status {
	case http.StatusOK:
		t.answered += e.Answer.Num
	case http.StatusBadRequest, http.StatusTooManyRequests:
	case 0:
		t.fail(fmt.Errorf("%s got no answer: %w", e.Client, e.Err))
	default:
		t.fail(fmt.Errorf("%s got %d: %s", e.Client, e.Status, e.Answer.Error))
	}
	if e.Answer.Redis == nil {
		return
	}
	horizon := t.newest.Add(-3 * t.window)
	for _, m := range e.Answer.Redis.Permits.Members {
		if _, known := t.grants[m.Bytes]; known || m.granted().Before(horizon) {
			continue
		}
		t.grants[m.Bytes] = grantlog.At(m.granted(), int64(m.Permits))
		t.recorded += int64(m.Permits)
		if m.granted().After(t.newest) {
			t.newest = m.granted()
		}
	}
	all := make(grantlog.Grants, 0, len(t.grants))
	for id, g := range t.grants {
		if g.End.Before(t.newest.Add(-3 * t.window)) {
			delete(t.grants, id) // all windows that it lies in are counted
			continue
		}
		all = append(all, g)
	}
	t.worst = max(t.worst, all.Most(t.window))
}

func (t *tally) fail(err error) {
	if t.failed == nil {
		t.failed = err
	}
}

// A summary is the outcome of a demo.
type summary struct {
	Most     int64
	Limit    int64
	Window   time.Duration
	Granted  int64 // permits in responses of 200
	Statuses map[int]int
	Failed   error // of the first request that got neither 200, 400 nor 429
	Err      error // why the demo failed, or nil
}

func (s summary) String() string {
	return fmt.Sprintf("most in any %v window: %d (limit %d)", s.Window, s.Most, s.Limit)
}

// end returns the summary, with an error if the limit was exceeded.
func (t *tally) end(limit int64) summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := summary{Most: t.worst, Limit: limit, Window: t.window, Granted: t.answered, Statuses: t.statuses, Failed: t.failed}
	switch {
	case t.worst > limit:
		s.Err = fmt.Errorf("the limit was exceeded: %d permits in one window of %v, where %d are allowed", t.worst, t.window, limit)
	case t.answered > t.recorded:
		// It is no error if more was recorded: others may use the endpoint, too.
		s.Err = fmt.Errorf("%d permits were answered with 200, but Redis recorded %d", t.answered, t.recorded)
	}
	return s
}

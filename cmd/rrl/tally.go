package main

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A tally counts what the endpoint granted, from nothing but its answers.
//
// The instants at which answers arrive do not show how much was granted in a window: a grant whose
// answer took 3 ms and the next one, exactly one interval later, whose answer took 1 ms would look as
// if they lay within one. So each grant counts at the instant at which Redis recorded it, which the
// answer to it carries among the members of the permits set; a 200 whose permits are recorded nowhere
// is a fault of its own.
type tally struct {
	window time.Duration

	mu       sync.Mutex
	grants   map[string]grant // by the member's bytes; the last few windows
	newest   time.Time
	worst    int64
	answered int64 // permits in answers of 200
	recorded int64 // permits in the members that came with them
	statuses map[int]int
	failed   error
}

type grant struct {
	at      time.Time
	permits int64
}

func newTally(window time.Duration) *tally {
	return &tally{window: window, grants: map[string]grant{}, statuses: map[int]int{}}
}

// add counts one answer. They may come in any order, but not later than two windows.
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
		t.grants[m.Bytes] = grant{m.granted(), int64(m.Permits)}
		t.recorded += int64(m.Permits)
		if m.granted().After(t.newest) {
			t.newest = m.granted()
		}
	}
	all := make([]grant, 0, len(t.grants))
	for id, g := range t.grants {
		if g.at.Before(t.newest.Add(-3 * t.window)) {
			delete(t.grants, id) // its windows are counted
			continue
		}
		all = append(all, g)
	}
	t.worst = max(t.worst, mostIn(t.window, all))
}

func (t *tally) fail(err error) {
	if t.failed == nil {
		t.failed = err
	}
}

// mostIn is the most permits granted in any half-open window: one that begins with a grant at t ends
// before t + window, where the permits of that grant are back.
func mostIn(window time.Duration, grants []grant) int64 {
	slices.SortFunc(grants, func(a, b grant) int { return a.at.Compare(b.at) })
	var most, sum int64
	first := 0
	for _, g := range grants {
		sum += g.permits
		for !grants[first].at.Add(window).After(g.at) {
			sum -= grants[first].permits
			first++
		}
		most = max(most, sum)
	}
	return most
}

// A summary is how a demo ended.
type summary struct {
	Most     int64
	Limit    int64
	Window   time.Duration
	Granted  int64 // permits in answers of 200
	Statuses map[int]int
	Failed   error // the first request that was answered with neither 200, 400 nor 429
	Err      error // why the demo failed; nil when it did not
}

func (s summary) String() string {
	return fmt.Sprintf("most in any %v window: %d (limit %d)", s.Window, s.Most, s.Limit)
}

// end sums up against the limit.
func (t *tally) end(limit int64) summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := summary{Most: t.worst, Limit: limit, Window: t.window, Granted: t.answered, Statuses: t.statuses, Failed: t.failed}
	switch {
	case t.worst > limit:
		s.Err = fmt.Errorf("the limit was exceeded: %d permits in one window of %v, where %d are allowed", t.worst, t.window, limit)
	case t.answered > t.recorded:
		// More recorded than answered is no fault: somebody else used the endpoint too.
		s.Err = fmt.Errorf("%d permits were answered with 200, but Redis recorded %d", t.answered, t.recorded)
	}
	return s
}

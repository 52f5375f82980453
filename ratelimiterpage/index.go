// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
)

const (
	// mostLimiters is how many limiters the list keeps, each of which takes some 300 bytes and its name.
	mostLimiters = 200_000
	// indexAge is after how long the limiters are looked for again, if somebody looks at the list, and at least ten times
	// as long as that took.
	indexAge = 30 * time.Second
	// emptyAge takes the place of indexAge while there are none: somebody may wait for the first one.
	emptyAge = 2 * time.Second
	// indexIdle is after how long without a look at the list it is forgotten.
	indexIdle = 5 * time.Minute
	// firstPage is how long a first look waits for all limiters before it shows those found so far.
	firstPage = 700 * time.Millisecond
	// scanPause is between two steps of 200 keys, so that others have Redis meanwhile.
	scanPause = 200 * time.Microsecond
)

// An index is the list of all limiters, made by one goroutine at a time while somebody looks at the list.
type index struct {
	mu      sync.Mutex
	list    *listing // the last one that is complete, or nil
	next    *listing // the one that is being made, or nil
	forget  *time.Timer
	stopped bool
}

// A listing is the outcome of one search. While it is not complete, rows are added to it.
type listing struct {
	done chan struct{} // closed when the search has ended

	mu      sync.Mutex
	rows    []view.Row // in the order of the list, unless somebody asks for another, when the search has ended
	nodes   map[string]string
	looked  int64 // keys
	ended   time.Time
	took    time.Duration
	failed  error    // why there is no more
	missing []string // nodes that could not be looked at, and why
	more    bool     // there are more than mostLimiters
}

// A snapshot is what a page shows of a listing.
type snapshot struct {
	rows    []view.Row
	sorted  bool // in that order
	looking bool // the search goes on
	looked  int64
	at      time.Time
	missing []string
	more    bool
	err     error
}

func (l *listing) snapshot() snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := !l.ended.IsZero()
	return snapshot{rows: l.rows[:len(l.rows):len(l.rows)], sorted: ended, looking: !ended, looked: l.looked, at: l.ended,
		missing: l.missing, more: l.more, err: l.failed}
}

// limiters returns the limiters that are known, and begins a search if they are too old, or again is set. The first time it
// waits for the search, but not long.
func (h *Handler) limiters(ctx context.Context, again bool) snapshot {
	x := &h.index
	x.mu.Lock()
	if x.forget == nil && !x.stopped {
		x.forget = time.AfterFunc(indexIdle, x.drop)
	} else if x.forget != nil {
		x.forget.Reset(indexIdle)
	}
	age := indexAge
	if x.list != nil {
		if len(x.list.rows) == 0 {
			age = emptyAge
		}
		age = max(age, 10*x.list.took)
	}
	if x.next == nil && (x.list == nil || again || x.list.failed != nil || time.Since(x.list.ended) > age) {
		next := &listing{done: make(chan struct{}), nodes: map[string]string{}}
		if h.start(func() { h.find(next) }) {
			x.next = next
		}
	}
	list, next := x.list, x.next
	x.mu.Unlock()
	if next != nil && (list == nil || again || list.failed != nil) {
		timer := time.NewTimer(firstPage)
		defer timer.Stop()
		select {
		case <-next.done:
			list = next
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	switch {
	case list == nil && next == nil:
		return snapshot{err: context.Canceled}
	case list == nil:
		return next.snapshot()
	}
	s := list.snapshot()
	if s.err != nil && next != nil && len(s.rows) == 0 {
		return next.snapshot()
	}
	return s
}

// find searches all limiters.
func (h *Handler) find(l *listing) {
	begin, looked := time.Now(), int64(0)
	var failed error
	for lim, err := range h.survey.Find(h.ctx, survey.Query{Pause: scanPause, Looked: &looked}) {
		var node *survey.NodeError
		l.mu.Lock()
		l.looked = looked
		switch {
		case errors.As(err, &node):
			l.missing = append(l.missing, survey.OneLine(err))
			failed = node.Err
		case err != nil:
			failed = err
		case lim.Kind == survey.Told:
		case len(l.rows) == mostLimiters:
			l.more = true
		default:
			r := view.RowOf(lim)
			if _, ok := l.nodes[r.Node]; !ok {
				l.nodes[r.Node] = r.Node
			}
			r.Node = l.nodes[r.Node] // one string for all
			l.rows = append(l.rows, r)
		}
		stop := l.more
		l.mu.Unlock()
		if stop {
			break
		}
	}
	if h.ctx.Err() == nil && (failed == nil || len(l.rows) == 0) { // otherwise some nodes are there
		h.health.note(failed)
	}
	rows := slices.Clone(l.rows) // others may still read those
	view.Sort(rows, view.Orders[usualOrder])
	for i := range rows[:min(historyWorst, len(rows))] {
		if rows[i].Is(view.Limited | view.Queue) {
			h.history.add(&rows[i])
		}
	}

	x := &h.index
	x.mu.Lock()
	defer x.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows, l.looked, l.ended, l.took, l.failed = rows, looked, time.Now(), time.Since(begin), failed
	if x.next = nil; !x.stopped && (failed == nil || x.list == nil || len(l.rows) > 0 && len(l.missing) < len(l.nodes)) {
		x.list = l
	}
	close(l.done)
}

// drop forgets the list.
func (x *index) drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = nil
}

func (x *index) stop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopped = true
	if x.forget != nil {
		x.forget.Stop()
	}
}

const (
	rowsAge    = 2 * time.Second // for how long the rows of a page are not read again
	rowsCached = 16              // pages
)

// A rowCache has the rows of pages that were read a moment ago, so that those who look at the same page share a reading.
type rowCache struct {
	mu    sync.Mutex
	pages []*cachedRows // the oldest first
}

type cachedRows struct {
	names []string
	mu    sync.Mutex
	at    time.Time
	rows  []view.Row
}

// page returns the entry of a page with these rows, a new one if there is none.
func (c *rowCache) page(names []string) *cachedRows {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pages {
		if slices.Equal(p.names, names) {
			return p
		}
	}
	if len(c.pages) == rowsCached {
		c.pages = slices.Delete(c.pages, 0, 1)
	}
	p := &cachedRows{names: names}
	c.pages = append(c.pages, p)
	return p
}

// fresh reads the limiters of some rows once more. Those that are gone are marked. If Redis cannot be read, it returns the
// rows as they are.
func (h *Handler) fresh(ctx context.Context, rows []view.Row) []view.Row {
	if len(rows) == 0 {
		return rows
	}
	names := make([]string, len(rows))
	list := make([]survey.Place, len(rows))
	for i, r := range rows {
		names[i], list[i] = r.Name, survey.Place{Name: r.Name, Node: r.Node}
	}
	p := h.rows.page(names)
	p.mu.Lock() // one reading at a time
	defer p.mu.Unlock()
	if time.Since(p.at) < rowsAge {
		return p.rows
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	found, err := h.survey.Again(ctx, list)
	if !errors.Is(ctx.Err(), context.Canceled) {
		h.health.note(err)
	}
	if err != nil {
		return rows
	}
	now := map[string]view.Row{}
	for _, l := range found {
		now[l.Name] = view.RowOf(l)
	}
	p.rows = make([]view.Row, len(rows))
	for i, r := range rows {
		if again, ok := now[r.Name]; ok {
			if p.rows[i] = again; i < historyWorst && again.Is(view.Limited|view.Queue) {
				h.history.add(&again)
			}
		} else {
			r.State |= view.Gone
			p.rows[i] = r
		}
	}
	p.at = time.Now()
	return p.rows
}

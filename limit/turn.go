// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Permits that were granted in advance are a turn, and their caller waits for it. When the key is deleted or lost, or the
// clock of Redis is put forward, the limiter has forgotten the turn, and others may have theirs before it. So while
// somebody waits for a turn that is more than a second away, the process looks once a second at when a call would be
// granted at once. That is after all turns that the limiter has given. If it is before the first turn that the process
// knows of, all of them are asked for anew, in their order.

// A turn is that of one caller.
type turn struct {
	n       int64
	at      time.Time
	changed chan struct{} // has an element when at has changed, or the turn has become the first
}

// A turnList has the turns of one key, the first one first.
type turnList struct {
	turns   []*turn
	looked  time.Time
	looking bool
}

// turns are the turns of all keys of a limiter.
type turns struct {
	mu    sync.Mutex
	lists map[string]*turnList
}

// any reports whether anybody waits for a turn of the key.
func (ts *turns) any(key string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.lists[key] != nil
}

func (t *turn) tell() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func (ts *turns) add(key string, t *turn) *turnList {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.lists[key]
	if l == nil {
		if ts.lists == nil {
			ts.lists = map[string]*turnList{}
		}
		l = &turnList{looked: time.Now()}
		ts.lists[key] = l
	}
	i, _ := slices.BinarySearchFunc(l.turns, t.at, func(x *turn, at time.Time) int {
		if x.at.After(at) {
			return 1
		}
		return -1 // those of one instant in the order in which they came
	})
	l.turns = slices.Insert(l.turns, i, t)
	return l
}

func (ts *turns) remove(key string, t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.lists[key]
	i := slices.Index(l.turns, t)
	l.turns = slices.Delete(l.turns, i, i+1)
	if len(l.turns) == 0 {
		delete(ts.lists, key)
	} else if i == 0 {
		l.turns[0].tell()
	}
}

// awaitTurn blocks until the turn of n permits that were granted with that wait, or an earlier one if there is.
func (s *Shared) awaitTurn(ctx context.Context, n int64, wait time.Duration) error {
	if wait <= lookEvery {
		return sleep(ctx, wait)
	}
	ts, key := &s.config.turns, s.keys[0]
	t := &turn{n: n, at: time.Now().Add(wait), changed: make(chan struct{}, 1)}
	l := ts.add(key, t)
	defer ts.remove(key, t)
	for {
		now := time.Now()
		ts.mu.Lock()
		pause := t.at.Sub(now)
		if next := l.looked.Add(lookEvery); l.turns[0] == t && !l.looking && next.Add(lookSlack).Before(t.at) {
			if next.After(now) {
				pause = next.Sub(now)
			} else {
				l.looking, l.looked = true, now
				go s.lookForTurns(context.WithoutCancel(ctx), l, t.n, pause)
			}
		}
		ts.mu.Unlock()
		if pause <= 0 {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// lookForTurns asks for the turns of l anew if the first of them, of n permits and in that time, has been forgotten.
func (s *Shared) lookForTurns(ctx context.Context, l *turnList, n int64, left time.Duration) {
	ts := &s.config.turns
	r, err := s.peek(ctx, n)
	if err == nil && !r.Degraded && (r.Granted || r.Wait < left-lookSlack) {
		s.turnAnew(ctx, l)
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l.looking = false
	if len(l.turns) > 0 {
		l.turns[0].tell()
	}
}

// turnAnew asks for the turns of l anew. Those that would not come earlier stay as they are.
func (s *Shared) turnAnew(ctx context.Context, l *turnList) {
	ts, now := &s.config.turns, time.Now()
	var demands []demand
	ts.mu.Lock()
	list := slices.Clone(l.turns)
	for _, t := range list {
		atMost := atMostMicros(t.at.Sub(now) - lookSlack) // otherwise it keeps the turn that it has
		demands = append(demands, demand{n: t.n, atMost: atMost, spend: true})
	}
	ts.mu.Unlock()
	if len(demands) == 0 {
		return
	}
	outcomes := s.batchAll(ctx, demands)

	now = time.Now()
	ts.mu.Lock()
	for i, t := range list {
		if r := outcomes[i]; r.err == nil && r.result.Granted {
			t.at = now.Add(r.result.Wait)
			t.tell()
		}
	}
	slices.SortStableFunc(l.turns, func(a, b *turn) int { return a.at.Compare(b.at) })
	ts.mu.Unlock()
	s.config.queues.again(s.keys[0])
}

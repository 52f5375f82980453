// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"slices"
	"sync"
)

// The wakes of a process wake the lists that wait, when a limiter is deleted or gets another rate: a list stands in the queue of one
// of its limiters, and would not notice it of the others.
type wakes struct {
	mu    sync.Mutex
	sleep map[*waiter]sleep
}

// A sleep is what a list does between two of its calls.
type sleep struct {
	ctx context.Context
	end context.CancelFunc
}

// watch returns a context for what w does until it asks again, which ends with ctx, or when a limiter of w is reset. It reports whether
// one has been since the last call of watch.
func (k *wakes) watch(ctx context.Context, w *waiter) (sleeps context.Context, reset bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.sleep[w]
	reset = ok && s.ctx.Err() != nil && ctx.Err() == nil
	if !ok || reset {
		if k.sleep == nil {
			k.sleep = map[*waiter]sleep{}
		}
		s.ctx, s.end = context.WithCancel(ctx)
		k.sleep[w] = s
	}
	return s.ctx, reset
}

// forget ends the watch of w.
func (k *wakes) forget(w *waiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sleep[w].end()
	delete(k.sleep, w)
}

// Reset wakes the lists that wait and have the limiter with that key, because it was deleted or has another rate.
func (ls *Lists) Reset(key string) {
	ls.wakes.mu.Lock()
	defer ls.wakes.mu.Unlock()
	for w, s := range ls.wakes.sleep {
		if slices.ContainsFunc(w.demands, func(d Demand) bool { return d.Handle.Key == key }) {
			s.end()
		}
	}
}

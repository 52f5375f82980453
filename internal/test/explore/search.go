// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"crypto/sha1"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Result is what was found.
type Result struct {
	States, Transitions int64
	Calls               int64 // of scripts
	Depth               int   // how many steps have been looked at in every order
	Took                time.Duration
	Alone, Turns        time.Duration // how long a process took at most that went on alone, and one that reserved
	Broken              error         // the promise that is not kept, nil if all are
	Way                 []string
}

func (r *Result) String() string {
	s := fmt.Sprintf("%d steps: %d states, %d transitions, %d calls of scripts in %v, %.0f transitions/s; served within %v alone, %v in turns",
		r.Depth, r.States, r.Transitions, r.Calls, r.Took.Round(time.Millisecond), float64(r.Transitions)/r.Took.Seconds(), r.Alone, r.Turns)
	if r.Broken != nil {
		s = fmt.Sprintf("%v\n  %s\n%s", r.Broken, strings.Join(r.Way, "\n  "), s)
	}
	return s
}

// A node is a state with the way to it. Only those that have not been left yet hold their state.
type node struct {
	*state
	from *node
	did  string
}

func (n *node) way() (list []string) {
	for ; n.from != nil; n = n.from {
		list = append([]string{n.did}, list...)
	}
	return list
}

// A search is a breadth-first one, so that the first way to a broken promise is a shortest.
type search struct {
	mu     sync.Mutex
	seen   map[[sha1.Size]byte]struct{}
	result Result
	broken *node
}

// first reports whether b has not been seen before.
func (s *search) first(b []byte) bool {
	h := sha1.Sum(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[h]; ok {
		return false
	}
	s.seen[h] = struct{}{}
	return true
}

// Explore makes every order of the steps of cfg, and returns the first promise that is broken.
func Explore(cfg Config) (*Result, error) {
	mutate := cfg.Mutate
	if mutate == nil {
		mutate = func(_, text string) string { return text }
	}
	scripts := newScripts(mutate)
	worlds := make([]*world, runtime.GOMAXPROCS(0))
	for i := range worlds {
		w, err := newWorld(cfg, scripts)
		if err != nil {
			return nil, err
		}
		defer w.store.close()
		worlds[i] = w
	}
	begin, err := worlds[0].begin()
	if err != nil {
		return nil, err
	}
	s, start := &search{seen: map[[sha1.Size]byte]struct{}{}}, time.Now()
	level := []*node{{state: begin}}
	for s.result.Depth = 0; s.result.Depth < cfg.Depth && len(level) > 0 && s.broken == nil; s.result.Depth++ {
		level = s.expand(worlds, level, s.result.Depth+1 == cfg.Depth)
	}
	if s.broken != nil {
		s.result.Way = s.broken.way()
	}
	for _, w := range worlds {
		s.result.Calls += int64(w.store.calls)
		s.result.Alone = max(s.result.Alone, ms(w.slowest.alone))
		s.result.Turns = max(s.result.Turns, ms(w.slowest.turns))
	}
	s.result.Took = time.Since(start)
	return &s.result, nil
}

// expand makes each step in each state of a level, and returns the new states. The last ones are judged and not kept.
func (s *search) expand(worlds []*world, level []*node, last bool) (next []*node) {
	var at atomic.Int64
	var wg sync.WaitGroup
	for _, w := range worlds {
		wg.Go(func() {
			for i := at.Add(1) - 1; i < int64(len(level)); i = at.Add(1) - 1 {
				found := s.leave(w, level[i], last)
				level[i].state = nil
				s.mu.Lock()
				next = append(next, found...)
				stop := s.broken != nil
				s.mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wg.Wait()
	return next
}

// leave makes each step in the state of n, and returns the states that nobody has seen before.
func (s *search) leave(w *world, n *node, last bool) (found []*node) {
	var buf []byte
	for _, step := range w.steps() {
		c := n.state.clone()
		w.load(c)
		ok, err := step.make(w, c)
		if !ok && err == nil {
			continue
		}
		w.save(c)
		to := &node{from: n, did: c.did}
		if err == nil {
			err = w.judge(c)
		}
		buf = c.encode(buf[:0])
		fresh := s.first(buf)
		if err == nil && fresh {
			buf = c.encodeRedis(append(buf[:0], "redis "...))
			if s.first(buf) {
				err = w.judgeRedis(c)
			}
		}
		s.mu.Lock()
		s.result.Transitions++
		if fresh {
			s.result.States++
		}
		if err != nil && s.broken == nil {
			s.broken, s.result.Broken = to, err
		}
		s.mu.Unlock()
		if err != nil {
			return nil
		}
		if fresh && !last {
			to.state = c
			found = append(found, to)
		}
	}
	return found
}

// SPDX-License-Identifier: Apache-2.0

// Package explore looks at every state that two processes of this package and one Redisson can bring a limiter into with
// a few steps, and at whether it keeps what is promised. The scripts are the real ones. Redis is miniredis, whose clock
// stands still between two steps.
package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

const (
	interval = 900 // of every limiter, in ms; a third of it is whole
	epoch    = 1_700_000_000_000
)

// A Config says what is explored.
type Config struct {
	Type     permit.Type
	Rate     int64
	Limiters int
	Begun    [][2]int                       // grants of the first limiter to begin with, 1 ms apart: the process, and permits
	Steps    []string                       // the groups of steps
	Depth    int                            // how many steps
	Mutate   func(name, text string) string // changes scripts; may be nil
	Rename   func(key string) string        // changes keys of commands; may be nil
	Redisson Redisson                       // nil for the model of it
}

// A Redisson tries to take permits in the way of Redisson, whose script eval runs. It reports whether it got them.
type Redisson func(eval func(text string, keys, args []string) (any, error), limiter, client string, permits, now int64, random string) (bool, error)

// A world is a store with the limiters of each process, in which a step is made. It belongs to one goroutine.
type world struct {
	Config
	store    *store
	ctx      context.Context
	limiters [parties][]*redisson.Limiter
	names    []string // of all keys
	slowest  struct{ alone, turns int64 }
}

func newWorld(cfg Config, scripts *redisson.Scripts) (*world, error) {
	s, err := newStore(cfg.Rename)
	if err != nil {
		return nil, err
	}
	w := &world{Config: cfg, store: s, ctx: with(s)}
	if w.Redisson == nil {
		w.Redisson = model
	}
	conn := redisson.NewConn(client{}, redisson.Config{Scripts: scripts, SharedClock: true})
	for l := range cfg.Limiters {
		name := fmt.Sprint("L", l)
		for p := range w.limiters {
			keys := redisson.NewKeys(name, clientID(p))
			w.limiters[p] = append(w.limiters[p], &redisson.Limiter{Conn: conn, Name: name, Keys: keys})
			w.names = append(append(w.names, keys.Of(cfg.Type)...), keys.Ahead(cfg.Type))
		}
	}
	slices.Sort(w.names)
	w.names = slices.Compact(w.names)
	if cfg.Rename != nil {
		for _, name := range w.names {
			if to := cfg.Rename(name); !slices.Contains(w.names, to) {
				w.names = append(w.names, to)
			}
		}
	}
	return w, nil
}

// begin returns the state in which each limiter has a rate, and the first one the grants to begin with.
func (w *world) begin() (*state, error) {
	w.store.restore(nil, epoch)
	for _, l := range w.limiters[0] {
		if _, err := l.SetRate(w.rate(w.Rate), false, false).Run(w.ctx); err != nil {
			return nil, err
		}
	}
	s := &state{now: epoch, keys: w.store.dump(w.names)}
	for i := range s.procs {
		s.procs[i].reserved = make([]reservation, w.Limiters)
	}
	for _, g := range w.Begun {
		s.now++
		w.store.setTime(s.now)
		if _, err := w.ask(s, g[0], 0, int64(g[1]), false); err != nil {
			return nil, err
		}
		s.procs[g[0]].acted = true
	}
	s.keys = w.store.dump(w.names)
	return s, nil
}

func (w *world) rate(permits int64) permit.Rate {
	return permit.Rate{Type: w.Type, Permits: permits, Interval: interval * time.Millisecond}
}

// A book is whose permits count together: those of a limiter, or of one of its clients.
func (w *world) book(limiter, owner int) int {
	if w.Type == permit.Overall {
		return limiter * parties
	}
	return limiter*parties + owner
}

// load makes Redis hold s.
func (w *world) load(s *state) { w.store.restore(s.keys, s.now) }

// save takes what Redis holds into s, and forgets grants that have expired. In a cool-down, members become blocks.
func (w *world) save(s *state) {
	s.keys = w.store.dump(w.names)
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return g.at <= s.now-interval || g.permits+g.veils == 0 })
	for i := range s.grants {
		if g := &s.grants[i]; w.coolsUntil(s, g.limiter) > 0 {
			_, _, set, _ := w.keysOf(s, g.owner, g.limiter)
			_, ok := set.memberOf(id(g.owner, g.seq))
			g.veiled = g.veiled || !ok
		}
	}
}

// reply is what an acquire call comes to in the end.
type reply struct {
	granted bool
	wait    time.Duration
	unset   bool // there is no limiter, or the permits exceed its rate
}

// acquire asks for permits as the engine does, which goes on as each reply says. The id of the first call counts.
func (w *world) acquire(p, l int, b permit.Batch) (reply, error) {
	limiter := w.limiters[p][l]
	b.Type = w.Type
	for range 9 {
		a, err := limiter.Acquire(w.ctx, &b)
		switch {
		case errors.Is(err, permit.ErrNotInitialized):
			return reply{unset: true}, nil
		case err != nil:
			return reply{}, err
		case a.Granted[0] < 0:
			return reply{unset: true}, nil
		}
		healed := b.Healed
		if a.Next == permit.Heal && !healed {
			if _, err := limiter.Heal(w.Type, b.Check).Run(w.ctx); err != nil {
				return reply{}, err
			}
			b.Check, b.Healed = permit.Unchecked, true
		}
		if a.Granted[0] > 0 || a.Next == permit.Done || healed && a.Next == permit.Heal {
			return reply{granted: a.Granted[0] > 0, wait: a.Wait}, nil
		}
		b.Cursor = permit.Cursor{}
		if a.Next == permit.On {
			b.Cursor = a.Cursor
		}
	}
	return reply{}, errors.New("nine replies ask for another call")
}

func one(p int, seq byte, permits int64) permit.Batch {
	return permit.Batch{ID: id(p, seq), Runs: []permit.Run{{Permits: permits, Count: 1}}}
}

// reserve runs reserve.lua for v, which stays as it is if it is whole.
func (w *world) reserve(p, l int, v reservation, want int64) (permit.Reserved, error) {
	return w.limiters[p][l].Reserve(w.ctx, permit.Reservation{Type: w.Type, ID: id(p, v.seq), Want: want, Held: v.held,
		Unsure: v.unsure, Ahead: !v.whole})
}

// keysOf returns the keys of a party in a limiter.
func (w *world) keysOf(s *state, p, l int) (hash, value, set, ahead key) {
	k := w.limiters[p][l].Keys
	names := append(k.Of(w.Type), k.Ahead(w.Type))
	if w.Rename != nil {
		for i := range names {
			names[i] = w.Rename(names[i])
		}
	}
	return s.key(names[0]), s.key(names[1]), s.key(names[2]), s.key(names[3])
}

func clientID(party int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", party) }

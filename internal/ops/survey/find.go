// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

const (
	// scanStep is how many keys a SCAN looks at, which takes Redis a fifth of a millisecond.
	scanStep = 200
	// batch is how many limiters are read together.
	batch = 100
	// oldest is how many members of each are read, from the oldest on.
	oldest = 8
)

// A Query says which limiters to find.
type Query struct {
	Match   string        // a pattern of SCAN that their names match; empty for all
	Remains bool          // also permits whose hash is gone or not that of a limiter, after all limiters
	Broken  bool          // also hashes that show a limiter and lack its rate, its interval or its type, as Remains
	MaxKeys int64         // how many keys to look at before giving up with ErrBudget; 0 for all
	Pause   time.Duration // between two steps of 200 keys
	Nodes   []Node        // the nodes to look at; nil for all
	// Looked is how many keys have been looked at so far. A key is counted twice if Remains is set.
	Looked *int64
}

// ErrBudget reports that a search looked at Query.MaxKeys keys and has not seen all of them.
var ErrBudget = errors.New("the search was given up")

// Find returns an iterator over the limiters that q describes, in the order in which Redis has them, each once. It
// looks at the keys of one node after another with SCAN, in steps of 200, and reads what it finds, so that the first
// limiters come before all keys have been looked at.
//
// A pair may be a nil *Limiter with an error. After a [NodeError] the iterator goes on with the next node. After
// every other error it ends: ctx.Err(), or one that wraps ErrBudget.
func (s *Survey) Find(ctx context.Context, q Query) iter.Seq2[*Limiter, error] {
	return func(yield func(*Limiter, error) bool) {
		nodes, err := s.nodesOf(ctx, q)
		if err != nil && (ctx.Err() != nil || len(nodes) == 0) {
			yield(nil, err)
			return
		}
		if err != nil && !yield(nil, &NodeError{"some nodes", err}) {
			return
		}
		if q.Looked == nil {
			q.Looked = new(int64)
		}
		f := &finder{Survey: s, q: q, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, yield: yield}
		passes := []func(context.Context, Node) error{f.hashes}
		if q.Remains {
			passes = append(passes, f.remains)
		}
		away := map[string]bool{} // nodes that are asked no more
		for _, pass := range passes {
			for _, node := range nodes {
				if away[node.Addr] {
					continue
				}
				err := pass(ctx, node)
				switch {
				case f.done:
					return
				case ctx.Err() != nil || errors.Is(err, ErrBudget):
					yield(nil, cmp.Or(err, ctx.Err()))
					return
				case err != nil:
					away[node.Addr] = true
				default:
					err = f.rejected.err()
				}
				f.rejected = rejected{}
				if err != nil && !yield(nil, &NodeError{node.Addr, err}) {
					return
				}
			}
		}
	}
}

// nodesOf returns the nodes that q is about.
func (s *Survey) nodesOf(ctx context.Context, q Query) ([]Node, error) {
	if q.Nodes != nil {
		return q.Nodes, nil
	}
	return s.Nodes(ctx)
}

// rejected counts the limiters that Redis does not let us read, such as those that the ACL does not name.
type rejected struct {
	n     int
	first error
}

func (r *rejected) add(name string, err error) {
	if r.n++; r.n == 1 {
		r.first = fmt.Errorf("%q: %w", name, err)
	}
}

// err returns nil if there are none.
func (r *rejected) err() error {
	if r.n < 2 {
		return r.first
	}
	return fmt.Errorf("cannot read %s; the first is %w", permit.Counted(r.n, "name"), r.first)
}

// A finder is one run of Find.
type finder struct {
	*Survey
	q     Query
	seed  maphash.Seed
	seen  map[uint64]struct{} // hashes of the names that were yielded; SCAN may return a key twice
	yield func(*Limiter, error) bool
	done  bool // yield has returned false

	rejected rejected // on the node that is looked at
}

// hashes yields the limiters of a node.
func (f *finder) hashes(ctx context.Context, node Node) error {
	return f.scan(ctx, node, f.q.Match, "hash", func(keys []string) error {
		for len(keys) > 0 && !f.done {
			part := keys[:min(batch, len(keys))]
			keys = keys[len(part):]
			if err := f.emit(ctx, node, part); err != nil {
				return err
			}
		}
		return nil
	})
}

// remains yields the limiters of a node whose hash is gone, or is not that of a limiter.
func (f *finder) remains(ctx context.Context, node Node) error {
	return f.scan(ctx, node, statePattern(f.q.Match, "permits*"), KeyTypes[2], func(keys []string) error {
		var list []holder
		for _, key := range keys {
			name, client, ok := suffixOf(key)
			if !ok || f.has(name) || !strings.Contains(name, "{") && f.has("{"+name+"}") || !f.first(name+"\x00"+client) {
				continue
			}
			list = append(list, holder{name, client})
		}
		for part := range slices.Chunk(list, batch) {
			found, err := f.evident(ctx, node.Client, part, f.rejected.add)
			if err != nil || f.done {
				return err
			}
			var names []string
			for _, h := range found.those {
				if f.first(h.name) {
					names = append(names, h.name)
				}
			}
			if err := f.emitRemains(ctx, node, names); err != nil {
				return err
			}
		}
		return nil
	})
}

// statePattern returns the pattern of the keys with a suffix that belong to names which match. If the pattern of the names
// has no brace, names that have one are left out.
func statePattern(match, suffix string) string {
	switch {
	case match == "" || match == "*":
		return "*:" + suffix
	case strings.Contains(match, "{"):
		return match + ":" + suffix
	}
	return "{" + match + "}:" + suffix
}

// A step is the outcome of one SCAN.
type step struct {
	keys []string
	next uint64
	err  error
}

// scan calls found with the keys of a node that match and have that type, a step at a time. The next step is on its way meanwhile.
func (f *finder) scan(ctx context.Context, node Node, pattern, typ string, found func([]string) error) error {
	s := &scanner{node: node, pattern: pattern, typ: typ, byType: typ != ""}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := func(cursor uint64, pause time.Duration) chan step {
		at := make(chan step, 1)
		go func() {
			if pause > 0 && retry.Sleep(ctx, pause) != nil {
				at <- step{err: ctx.Err()}
				return
			}
			at <- s.step(ctx, cursor)
		}()
		return at
	}
	for at := chan step(nil); ; {
		if f.q.MaxKeys > 0 && *f.q.Looked >= f.q.MaxKeys {
			return fmt.Errorf("%w after %d keys", ErrBudget, *f.q.Looked)
		}
		if at == nil {
			at = begin(0, 0)
		}
		done := <-at
		if done.err != nil {
			return done.err
		}
		*f.q.Looked += scanStep
		if done.next != 0 {
			at = begin(done.next, f.q.Pause)
		}
		if err := found(done.keys); err != nil || f.done || done.next == 0 {
			return err
		}
	}
}

// A scanner looks through the keys of a node.
type scanner struct {
	node         Node
	pattern, typ string
	byType       bool // Redis before 6 cannot
}

func (s *scanner) step(ctx context.Context, cursor uint64) (done step) {
	args := []any{"scan", cursor, "count", scanStep}
	if s.pattern != "" && s.pattern != "*" {
		args = append(args, "match", s.pattern)
	}
	if s.byType {
		args = append(args, "type", s.typ)
	}
	p := s.node.Client.Pipeline()
	cmd := redis.NewScanCmd(ctx, nil, args...)
	_ = p.Process(ctx, cmd)
	if _, done.err = send(ctx, p); done.err != nil {
		return done
	}
	done.keys, done.next, done.err = cmd.Result()
	if done.err != nil && s.byType && strings.Contains(strings.ToLower(done.err.Error()), "syntax error") {
		s.byType = false
		return s.step(ctx, cursor)
	}
	if done.err == nil && s.typ != "" && !s.byType {
		done.keys, done.err = ofType(ctx, s.node, done.keys, s.typ)
	}
	return done
}

// ofType returns those of keys that have that type.
func ofType(ctx context.Context, node Node, keys []string, typ string) ([]string, error) {
	p := node.Client.Pipeline()
	cmds := make([]*redis.StatusCmd, len(keys))
	for i, key := range keys {
		cmds[i] = p.Type(ctx, key)
	}
	if _, err := send(ctx, p); err != nil {
		return nil, err
	}
	var of []string
	for i, key := range keys {
		if err := cmds[i].Err(); err != nil {
			return nil, err
		}
		if cmds[i].Val() == typ {
			of = append(of, key)
		}
	}
	return of, nil
}

// first reports whether name has not been seen before.
func (f *finder) first(name string) bool {
	h := maphash.String(f.seed, name)
	_, seen := f.seen[h]
	f.seen[h] = struct{}{}
	return !seen
}

// has reports whether name has been seen.
func (f *finder) has(name string) bool {
	_, seen := f.seen[maphash.String(f.seed, name)]
	return seen
}

// emit yields those of the hashes of those names that are limiters.
func (f *finder) emit(ctx context.Context, node Node, names []string) error {
	list, err := f.read(ctx, node, names, f.q.Broken)
	if err != nil {
		return err
	}
	f.show(slices.DeleteFunc(list, func(l *Limiter) bool { return !f.first(l.Name) }))
	return nil
}

// show yields limiters that have been read.
func (f *finder) show(list []*Limiter) {
	for _, l := range list {
		switch {
		case l.unread != nil:
			f.rejected.add(l.Name, l.unread)
		case !f.yield(l, nil):
			f.done = true
			return
		}
	}
}

// emitRemains yields those of the names that have no hash of a limiter. Their keys of state may be those of the name in
// braces too.
func (f *finder) emitRemains(ctx context.Context, node Node, names []string) error {
	both := slices.Clone(names)
	for _, name := range names {
		if !strings.Contains(name, "{") {
			both = append(both, "{"+name+"}")
		}
	}
	p := node.Client.Pipeline()
	now, types, hashes, sizes := p.Time(ctx), map[string]*redis.StatusCmd{}, map[string]*redis.SliceCmd{}, map[string]*redis.IntCmd{}
	for _, name := range both {
		types[name], hashes[name], sizes[name] = p.Type(ctx, name), p.HMGet(ctx, name, fields...), p.HLen(ctx, name)
	}
	if err := f.exec(ctx, p); err != nil {
		return err
	}
	var list, hashed []*Limiter
	for _, name := range names {
		l := &Limiter{Kind: Remains, State: &State{Name: name, Node: node.Addr, Time: now.Val(), TTLs: [3]time.Duration{-2}, Problem: permit.ErrNotInitialized}}
		live, err := false, now.Err()
		for _, name := range []string{name, "{" + name + "}"} {
			typ, values := types[name], hashes[name]
			if typ == nil {
				continue
			}
			if typ.Err() != nil {
				err = typ.Err()
				continue
			}
			switch typ.Val() {
			case "none":
				continue
			case KeyTypes[0]:
				of := fieldsOf(values.Val())
				if rate, problem := redisson.ParseRate(of); !errors.Is(problem, permit.ErrNotInitialized) {
					l.Kind, l.Fields, l.Rate, l.Problem = Live, of, rate, problem
					live = live || hashShows(of, hasOthers(name, sizes[name].Val(), of)) // it was found by its hash
				}
			default:
				l.Problem = wrongTypeError(name, typ.Val(), KeyTypes[0])
			}
			l.Name = name
		}
		switch {
		case live:
		case err != nil:
			f.rejected.add(name, err)
		case l.Kind == Live:
			hashed = append(hashed, l)
			fallthrough
		default:
			list = append(list, l)
		}
	}
	if err := f.details(ctx, node.Client, hashed); err != nil {
		return err
	}
	f.show(list)
	return nil
}

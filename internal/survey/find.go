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
	return fmt.Errorf("%d names cannot be read; the first is %w", r.n, r.first)
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
			if err := f.emit(ctx, node, part, Live); err != nil {
				return err
			}
		}
		return nil
	})
}

// remains yields the limiters of a node whose hash is gone.
func (f *finder) remains(ctx context.Context, node Node) error {
	return f.scan(ctx, node, remainsPattern(f.q.Match), "", func(keys []string) error {
		var names []string
		for _, key := range keys {
			name, _, ok := suffixOf(key)
			if !ok || !f.first(name) {
				continue
			}
			names = append(names, name)
		}
		for len(names) > 0 && !f.done {
			part := names[:min(batch, len(names))]
			names = names[len(part):]
			if err := f.emitRemains(ctx, node, part); err != nil {
				return err
			}
		}
		return nil
	})
}

// remainsPattern returns the pattern of the keys of state that belong to names which match. If the pattern of the names
// has no brace, names that have one are left out.
func remainsPattern(match string) string {
	switch {
	case match == "" || match == "*":
		return "*:[pv]*"
	case strings.Contains(match, "{"):
		return match + ":[pv]*"
	}
	return "{" + match + "}:[pv]*"
}

// scan calls found with the keys of a node that match and have that type, a step at a time.
func (f *finder) scan(ctx context.Context, node Node, pattern, typ string, found func([]string) error) error {
	byType := typ != "" // Redis before 6 cannot
	for cursor := uint64(0); ; {
		if f.q.MaxKeys > 0 && *f.q.Looked >= f.q.MaxKeys {
			return fmt.Errorf("%w after %d keys", ErrBudget, *f.q.Looked)
		}
		args := []any{"scan", cursor, "count", scanStep}
		if pattern != "" && pattern != "*" {
			args = append(args, "match", pattern)
		}
		if byType {
			args = append(args, "type", typ)
		}
		p := node.Client.Pipeline()
		cmd := redis.NewScanCmd(ctx, nil, args...)
		_ = p.Process(ctx, cmd)
		if err := exec(ctx, p); err != nil {
			return err
		}
		keys, next, err := cmd.Result()
		if err != nil && byType && strings.Contains(strings.ToLower(err.Error()), "syntax error") {
			byType = false
			continue
		}
		if err != nil {
			return err
		}
		*f.q.Looked += scanStep
		if typ != "" && !byType {
			if keys, err = ofType(ctx, node, keys, typ); err != nil {
				return err
			}
		}
		if err := found(keys); err != nil || f.done {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		if f.q.Pause > 0 && retry.Sleep(ctx, f.q.Pause) != nil {
			return ctx.Err()
		}
	}
}

// ofType returns those of keys that have that type.
func ofType(ctx context.Context, node Node, keys []string, typ string) ([]string, error) {
	p := node.Client.Pipeline()
	cmds := make([]*redis.StatusCmd, len(keys))
	for i, key := range keys {
		cmds[i] = p.Type(ctx, key)
	}
	if err := exec(ctx, p); err != nil {
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

// emit yields those of the hashes that are limiters.
func (f *finder) emit(ctx context.Context, node Node, names []string, kind Kind) error {
	list, err := f.read(ctx, node, names)
	if err != nil {
		return err
	}
	for _, l := range list {
		if !f.first(l.Name) {
			continue
		}
		if l.unread != nil {
			f.rejected.add(l.Name, l.unread)
			continue
		}
		if !f.yield(l, nil) {
			f.done = true
			return nil
		}
	}
	return nil
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
	now, types, hashes := p.Time(ctx), map[string]*redis.StatusCmd{}, map[string]*redis.SliceCmd{}
	for _, name := range both {
		types[name], hashes[name] = p.Type(ctx, name), p.HMGet(ctx, name, fields...)
	}
	if err := exec(ctx, p); err != nil {
		return err
	}
	for _, name := range names {
		l := &Limiter{Name: name, Kind: Remains, Node: node.Addr, Time: now.Val(), TTL: -2, Problem: permit.ErrNotInitialized}
		live, err := false, now.Err()
		for _, name := range []string{name, "{" + name + "}"} {
			typ, values := types[name], hashes[name]
			if typ == nil {
				continue
			}
			if moved(typ.Err()) {
				typ, values = f.rdb.Type(ctx, name), f.rdb.HMGet(ctx, name, fields...)
			}
			if typ.Err() != nil {
				err = typ.Err()
				continue
			}
			switch typ.Val() {
			case "none":
				continue
			case KeyTypes[0]:
				_, problem := redisson.ParseRate(fieldsOf(values.Val()))
				live = live || values.Err() == nil && !errors.Is(problem, permit.ErrNotInitialized)
			default:
				l.Problem = wrongTypeError(name, typ.Val(), KeyTypes[0])
			}
			l.Name = name
		}
		switch {
		case live:
		case err != nil:
			f.rejected.add(name, err)
		case !f.yield(l, nil):
			f.done = true
			return nil
		}
	}
	return nil
}

// fieldsOf returns the fields of a hash that a reply to HMGET has.
func fieldsOf(values []any) map[string]string {
	of := map[string]string{}
	for i, v := range values {
		if v, ok := text(v); ok {
			of[fields[i]] = v
		}
	}
	return of
}

// read reads the limiters with these names. It leaves out what is no limiter. Those that Redis does not let it read have
// unread set; they need not be limiters.
func (s *Survey) read(ctx context.Context, node Node, names []string) ([]*Limiter, error) {
	p := node.Client.Pipeline()
	now, hashes := p.Time(ctx), make([]*redis.SliceCmd, len(names))
	for i, name := range names {
		hashes[i] = p.HMGet(ctx, name, fields...)
	}
	if err := exec(ctx, p); err != nil {
		return nil, err
	}
	if err := now.Err(); err != nil {
		return nil, err
	}
	var list, away []*Limiter
	for i, name := range names {
		l := &Limiter{Name: name, Node: node.Addr, Time: now.Val(), Fields: map[string]string{}}
		values, err := hashes[i].Result()
		if moved(err) {
			values, err = s.rdb.HMGet(ctx, name, fields...).Result()
			away = append(away, l)
		}
		if err != nil {
			var reply redis.Error
			if !errors.As(err, &reply) {
				return nil, err
			}
			if l.unread = err; !strings.HasPrefix(err.Error(), "WRONGTYPE") { // otherwise it is no hash any more
				list = append(list, l)
			}
			continue
		}
		l.Fields = fieldsOf(values)
		if l.parse(); !errors.Is(l.Problem, permit.ErrNotInitialized) {
			list = append(list, l)
		}
	}
	here := make([]*Limiter, 0, len(list))
	var there []*Limiter
	for _, l := range list {
		switch {
		case l.unread != nil:
		case slices.Contains(away, l):
			there = append(there, l)
		default:
			here = append(here, l)
		}
	}
	if err := details(ctx, node.Client, here); err != nil {
		return nil, err
	}
	return list, details(ctx, s.rdb, there)
}

// details reads what a list shows of each limiter beside its hash. Of those for which that does not tell what a caller
// would be told, it reads more members.
func details(ctx context.Context, rdb redis.UniversalClient, list []*Limiter) error {
	more, err := detailsOf(ctx, rdb, list, oldest, 1)
	if err == nil && len(more) > 0 {
		_, err = detailsOf(ctx, rdb, more, part, part)
	}
	return err
}

// detailsOf reads the details of limiters with so many of the oldest and the newest members. It returns those limiters of
// which that is not enough.
func detailsOf(ctx context.Context, rdb redis.UniversalClient, list []*Limiter, first, last int64) (more []*Limiter, err error) {
	type cmds struct {
		ttl            *redis.Cmd
		value          *redis.StringCmd
		count, expired *redis.IntCmd
		oldest, newest *redis.ZSliceCmd
	}
	p, all := rdb.Pipeline(), make([]cmds, len(list))
	for i, l := range list {
		c := cmds{ttl: p.Do(ctx, "pttl", l.Name)}
		if l.Problem == nil && l.Kind == Live && l.Rate.Type == permit.Overall {
			k := keysOf(l.Name, "")
			c.value = p.Get(ctx, k[1])
			c.count = p.ZCard(ctx, k[2])
			c.expired = p.ZCount(ctx, k[2], "-inf", expiredBefore(l.Time, l.Rate.Interval))
			c.oldest = p.ZRangeWithScores(ctx, k[2], 0, first-1)
			c.newest = p.ZRevRangeWithScores(ctx, k[2], 0, last-1)
		}
		all[i] = c
	}
	if err := exec(ctx, p); err != nil {
		return nil, err
	}
	for i, l := range list {
		c := all[i]
		ttl, err := c.ttl.Int64()
		l.TTL, l.unread = redisson.PTTL(ttl), err
		if c.value == nil {
			l.ask(window{})
			continue
		}
		for j, err := range []error{c.value.Err(), c.count.Err()} {
			switch {
			case err == nil || errors.Is(err, redis.Nil):
			case strings.HasPrefix(err.Error(), "WRONGTYPE"):
				l.Broken = fmt.Errorf("%w: %q is not a %s", ErrWrongType, keysOf(l.Name, "")[j+1], KeyTypes[j+1])
			default:
				l.unread = err
			}
		}
		l.Value, err = c.value.Result()
		l.HasValue = err == nil
		l.Members, l.Expired = c.count.Val(), c.expired.Val()
		head, tail := membersOf(c.oldest.Val()), membersOf(c.newest.Val())
		slices.Reverse(tail)
		l.Oldest, l.Newest = slices.Clone(head[:min(oldest, len(head))]), nil
		if n := len(tail); n > 0 {
			m := tail[n-1]
			l.Newest = &m
		}
		w := window{members: head, newest: tail, whole: l.Members <= int64(len(head))}
		if both := l.Members - int64(len(head)); both > 0 && both <= int64(len(tail)) {
			w.members, w.newest, w.whole = append(head, tail[int64(len(tail))-both:]...), nil, true
		}
		if !l.ask(w) || !w.whole && !l.told.Granted() {
			more = append(more, l)
		}
	}
	return more, nil
}

// Again reads limiters that Find has found once more. Those that have gone since are left out.
func (s *Survey) Again(ctx context.Context, list []*Limiter) ([]*Limiter, error) {
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for _, l := range list {
		names[l.Node] = append(names[l.Node], l.Name)
	}
	var again []*Limiter
	for _, node := range nodes {
		for part := range slices.Chunk(names[node.Addr], batch) {
			found, err := s.read(ctx, node, part)
			for _, l := range found {
				if l.unread != nil {
					err = l.unread
				}
			}
			if err != nil {
				return nil, &NodeError{node.Addr, err}
			}
			again = append(again, found...)
		}
	}
	return again, nil
}

// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

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

// read reads the limiters with these names. It leaves out what shows nothing of a limiter and, unless broken is set, what lacks a
// rate, an interval or a type. Those that Redis does not let it read have unread set; they need not be limiters.
func (s *Survey) read(ctx context.Context, node Node, names []string, broken bool) (list []*Limiter, err error) {
	p := node.Client.Pipeline()
	now, hashes, sizes := p.Time(ctx), make([]*redis.SliceCmd, len(names)), make([]*redis.IntCmd, len(names))
	for i, name := range names {
		hashes[i], sizes[i] = p.HMGet(ctx, name, fields...), p.HLen(ctx, name)
	}
	if err := s.exec(ctx, p); err != nil {
		return nil, err
	}
	if err := now.Err(); err != nil {
		return nil, err
	}
	for i, name := range names {
		l := &Limiter{State: &State{Name: name, Node: node.Addr, Time: now.Val(), Fields: map[string]string{}, Whole: true}}
		values, err := hashes[i].Result()
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
		l.Unsure = !hashShows(l.Fields, hasOthers(name, sizes[i].Val(), l.Fields))
		switch l.parse(); {
		case !errors.Is(l.Problem, permit.ErrNotInitialized):
			list = append(list, l)
		case broken && !l.Unsure && l.Kind == Live:
			l.Kind = Remains
			list = append(list, l)
		}
	}
	if list, err = s.evidentOf(ctx, node, list); err != nil {
		return nil, err
	}
	readable := slices.DeleteFunc(slices.Clone(list), func(l *Limiter) bool { return l.unread != nil })
	return list, s.details(ctx, node.Client, readable)
}

// evidentOf leaves out the limiters of which neither the hash nor the permits show that they are some.
func (s *Survey) evidentOf(ctx context.Context, node Node, list []*Limiter) ([]*Limiter, error) {
	var unsure []holder
	for _, l := range list {
		if l.Unsure {
			unsure = append(unsure, holder{l.Name, ""})
		}
	}
	if len(unsure) == 0 {
		return list, nil
	}
	unread := map[string]error{}
	found, err := s.evident(ctx, node.Client, unsure, func(name string, err error) { unread[name] = err })
	return slices.DeleteFunc(list, func(l *Limiter) bool {
		if !l.Unsure {
			return false
		}
		l.unread = unread[l.Name]
		return l.unread == nil && !slices.Contains(found.those, holder{l.Name, ""})
	}), err
}

// details reads what a list shows of each limiter beside its hash. Of those for which that does not tell what a caller
// would be told, it reads more members.
func (s *Survey) details(ctx context.Context, rdb redis.UniversalClient, list []*Limiter) error {
	more, err := s.detailsOf(ctx, rdb, list, oldest, 1)
	if err == nil && len(more) > 0 {
		_, err = s.detailsOf(ctx, rdb, more, part, part)
	}
	return err
}

// detailsOf reads the details of limiters with so many of the oldest and the newest members. It returns those limiters of
// which that is not enough.
func (s *Survey) detailsOf(ctx context.Context, rdb redis.UniversalClient, list []*Limiter, first, last int64) (more []*Limiter, err error) {
	type cmds struct {
		ttl            *redis.Cmd
		value          *redis.StringCmd
		count, expired *redis.IntCmd
		oldest, newest *redis.ZSliceCmd
	}
	p, all := fromMasters(ctx, rdb), make([]cmds, len(list))
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
	if err := s.exec(ctx, p); err != nil {
		return nil, err
	}
	for i, l := range list {
		c := all[i]
		ttl, err := c.ttl.Int64()
		l.TTLs[0], l.unread = redisson.PTTL(ttl), err
		if c.value == nil {
			l.ask()
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
		l.Count, l.Expired = c.count.Val(), c.expired.Val()
		tail := membersOf(c.newest.Val())
		slices.Reverse(tail)
		l.take(membersOf(c.oldest.Val()), tail)
		if !l.ask() || !l.Whole && !l.told.Granted() {
			more = append(more, l)
		}
	}
	return more, nil
}

// A Place is where a limiter was found.
type Place struct{ Name, Node string }

// Again reads limiters that Find has found once more. Those that have gone since are left out, and those that the ACL hides are Hidden.
func (s *Survey) Again(ctx context.Context, list []Place) ([]*Limiter, error) {
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for _, at := range list {
		names[at.Node] = append(names[at.Node], at.Name)
	}
	var again []*Limiter
	for _, node := range nodes {
		for part := range slices.Chunk(names[node.Addr], batch) {
			found, err := s.read(ctx, node, part, false)
			for _, l := range found {
				switch {
				case l.unread == nil:
				case strings.HasPrefix(l.unread.Error(), "NOPERM"):
					l.Kind, l.Problem = Hidden, l.unread
				default:
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

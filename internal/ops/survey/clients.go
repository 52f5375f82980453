// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

// Clients returns an iterator over the ids of the clients that have permits of a limiter in Redis. It is that of
// ratelimiter.Admin.Clients, for a limiter of any type.
func (s *Survey) Clients(ctx context.Context, name string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rdb, err := s.node(ctx, name)
		if err != nil {
			yield("", err)
			return
		}
		k := redisson.NewKeys(name, "")
		f := &finder{Survey: s, q: Query{Looked: new(int64)}}
		seen := map[string]bool{}
		err = f.scan(ctx, Node{Client: rdb}, k.ClientsPattern(), "", func(keys []string) error {
			for _, key := range keys {
				id, ok := k.ClientOf(key)
				if !ok || seen[id] {
					continue
				}
				seen[id] = true
				if !yield(id, nil) {
					f.done = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !f.done {
			yield("", err)
		}
	}
}

// ClientIDs returns ids of clients that have permits in Redis, by the names of their limiters: at most each of every
// limiter, and of most limiters at most. It reads all keys once. Names without a hash of a limiter, whose keys show nothing of
// one, are left out.
func (s *Survey) ClientIDs(ctx context.Context, q Query, each, most int) (map[string][]string, error) {
	nodes, err := s.nodesOf(ctx, q)
	if len(nodes) == 0 {
		return nil, err
	}
	ids := map[string][]string{}
	for _, node := range nodes {
		f := &finder{Survey: s, q: Query{Looked: new(int64), Pause: q.Pause, MaxKeys: q.MaxKeys}}
		if serr := f.scan(ctx, node, statePattern(q.Match, "[pv]*"), "", func(keys []string) error {
			var list []holder
			for _, key := range keys {
				name, id, ok := suffixOf(key)
				if ok && id != "" && len(ids[name]) < each && !slices.Contains(ids[name], id) && !slices.Contains(list, holder{name, id}) {
					list = append(list, holder{name, id})
				}
			}
			list, err := s.ofLimiters(ctx, node, list)
			for _, h := range list {
				if of := ids[h.name]; len(of) < each && (len(of) > 0 || len(ids) < most) {
					ids[h.name] = append(of, h.client)
				}
			}
			return err
		}); serr != nil && err == nil {
			err = &NodeError{node.Addr, serr}
		}
	}
	return ids, err
}

// ofLimiters returns those of the clients whose limiter has a rate, or whose permits show that they are a limiter's. Those
// that Redis does not let us look at are kept: who reads them says why.
func (s *Survey) ofLimiters(ctx context.Context, node Node, list []holder) ([]holder, error) {
	if len(list) == 0 {
		return nil, nil
	}
	p, hashes := node.Client.Pipeline(), make([][2]*redis.SliceCmd, len(list))
	for i, h := range list {
		hashes[i][0] = p.HMGet(ctx, h.name, fields...)
		if hashes[i][1] = hashes[i][0]; !strings.Contains(h.name, "{") {
			hashes[i][1] = p.HMGet(ctx, "{"+h.name+"}", fields...)
		}
	}
	if err := s.exec(ctx, p); err != nil {
		return nil, err
	}
	var those, unsure []holder
	for i, h := range list {
		rated := false
		for _, hash := range hashes[i] {
			_, problem := redisson.ParseRate(fieldsOf(hash.Val()))
			rated = rated || hash.Err() != nil && !strings.HasPrefix(hash.Err().Error(), "WRONGTYPE") || problem == nil
		}
		if rated {
			those = append(those, h)
		} else {
			unsure = append(unsure, h)
		}
	}
	evident, err := s.evident(ctx, node.Client, unsure, func(string, error) {})
	return append(those, evident...), err
}

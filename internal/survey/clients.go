// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"iter"
	"slices"

	"github.com/goredisson/ratelimiter/internal/redisson"
)

// Clients returns an iterator over the ids of the clients that have permits of a limiter in Redis. It is that of
// ratelimiter.RateLimiter.Clients, for a limiter of any type.
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
// limiter, and of most limiters at most. It reads all keys once.
func (s *Survey) ClientIDs(ctx context.Context, q Query, each, most int) (map[string][]string, error) {
	nodes, err := s.nodesOf(ctx, q)
	if len(nodes) == 0 {
		return nil, err
	}
	ids := map[string][]string{}
	for _, node := range nodes {
		f := &finder{Survey: s, q: Query{Looked: new(int64), Pause: q.Pause, MaxKeys: q.MaxKeys}}
		if serr := f.scan(ctx, node, remainsPattern(q.Match), "", func(keys []string) error {
			for _, key := range keys {
				name, id, ok := suffixOf(key)
				list := ids[name]
				if !ok || id == "" || len(list) >= each || len(list) == 0 && len(ids) >= most || slices.Contains(list, id) {
					continue
				}
				ids[name] = append(list, id)
			}
			return nil
		}); serr != nil && err == nil {
			err = &NodeError{node.Addr, serr}
		}
	}
	return ids, err
}

// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"hash/maphash"
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

// Clients are the ids of clients that have keys in Redis, by the limiters whose they are.
type Clients struct {
	ids    map[string][]string
	seed   maphash.Seed
	unsure map[uint64]struct{} // hashes of the names that may have other clients
	lost   bool                // some keys were not looked at
}

// Of returns those of a limiter. It reports whether others may have grants, though nothing shows that their keys are a limiter's; that
// is not told of a limiter whose hash has a rate.
func (c *Clients) Of(name string) (ids []string, unsure bool) {
	name, _, _ = suffixOf(ValueKey(name)) // with braces or without, it has the same keys
	_, unsure = c.unsure[maphash.String(c.seed, name)]
	return c.ids[name], unsure || c.lost
}

func (c *Clients) add(list []holder, each, most int) {
	for _, h := range list {
		switch of := c.ids[h.name]; {
		case len(of) < each && (len(of) > 0 || len(c.ids) < most):
			c.ids[h.name] = append(of, h.client)
		case len(of) == 0:
			c.doubt([]holder{h})
		}
	}
}

func (c *Clients) doubt(list []holder) {
	for _, h := range list {
		c.unsure[maphash.String(c.seed, h.name)] = struct{}{}
	}
}

// ClientIDs returns clients that have permits in Redis: at most each of every limiter, and of most limiters at most. It reads all keys
// once. The ids of names without a hash of a limiter, whose keys show nothing of one, are left out. With an error, it returns those
// that were found.
func (s *Survey) ClientIDs(ctx context.Context, q Query, each, most int) (*Clients, error) {
	found := &Clients{ids: map[string][]string{}, seed: maphash.MakeSeed(), unsure: map[uint64]struct{}{}}
	nodes, err := s.nodesOf(ctx, q)
	for _, node := range nodes {
		f := &finder{Survey: s, q: Query{Looked: new(int64), Pause: q.Pause, MaxKeys: q.MaxKeys}}
		if serr := f.scan(ctx, node, statePattern(q.Match, "[pv]*"), "", func(keys []string) error {
			var list []holder
			for _, key := range keys {
				name, id, ok := suffixOf(key)
				if of := found.ids[name]; ok && id != "" && len(of) < each && !slices.Contains(of, id) && !slices.Contains(list, holder{name, id}) {
					list = append(list, holder{name, id})
				}
			}
			those, shown, err := s.ofLimiters(ctx, node, list)
			found.add(those, each, most)
			found.add(shown.those, each, most)
			found.add(shown.grants, each, most)
			found.doubt(shown.unsure)
			return err
		}); serr != nil && err == nil {
			err = &NodeError{node.Addr, serr}
		}
	}
	found.lost = err != nil
	return found, err
}

// ofLimiters returns those of the clients whose limiter has a rate, and what the others show. Those that Redis does not let us look at
// are kept: who reads them says why.
func (s *Survey) ofLimiters(ctx context.Context, node Node, list []holder) (those []holder, others evidence, err error) {
	if len(list) == 0 {
		return nil, evidence{}, nil
	}
	var unsure []holder
	p, hashes := node.Client.Pipeline(), make([][2]*redis.SliceCmd, len(list))
	for i, h := range list {
		hashes[i][0] = p.HMGet(ctx, h.name, fields...)
		if hashes[i][1] = hashes[i][0]; !strings.Contains(h.name, "{") {
			hashes[i][1] = p.HMGet(ctx, "{"+h.name+"}", fields...)
		}
	}
	if err := s.exec(ctx, p); err != nil {
		return nil, evidence{}, err
	}
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
	others, err = s.evident(ctx, node.Client, unsure, func(string, error) {})
	return those, others, err
}

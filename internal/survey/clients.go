package survey

import (
	"context"
	"iter"
	"strings"

	"github.com/goredisson/ratelimiter/internal/permit"
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
		value, permits := k.Value[permit.Overall]+":", k.Permits[permit.Overall]+":"
		f := &finder{Survey: s, q: Query{Looked: new(int64)}}
		seen := map[string]bool{}
		err = f.scan(ctx, Node{Client: rdb}, redisson.EscapePattern(strings.TrimSuffix(value, "value:"))+"[pv]*", "", func(keys []string) error {
			for _, key := range keys {
				id, ok := strings.CutPrefix(key, value)
				if !ok {
					id, ok = strings.CutPrefix(key, permits)
				}
				if !ok || id == "" || seen[id] {
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

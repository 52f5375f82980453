// SPDX-License-Identifier: Apache-2.0

package metricname

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Cached returns a function that computes the value of each key once, with make, and keeps it. It never forgets a key, so use
// it for a few keys. It is safe for concurrent use, and reads known values without a lock.
func Cached[K comparable, V any](make func(K) V) func(key K) V {
	c := &cache[K, V]{make: make}
	c.all.Store(&map[K]V{})
	return c.of
}

type cache[K comparable, V any] struct {
	make func(K) V
	mu   sync.Mutex
	all  atomic.Pointer[map[K]V] // replaced as a whole
}

func (c *cache[K, V]) of(key K) V {
	if v, ok := (*c.all.Load())[key]; ok {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := *c.all.Load()
	if v, ok := before[key]; ok {
		return v
	}
	all := maps.Clone(before)
	all[key] = c.make(key)
	c.all.Store(&all)
	return all[key]
}

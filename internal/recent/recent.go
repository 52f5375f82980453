// SPDX-License-Identifier: Apache-2.0

// Package recent remembers what was used recently, for a lookup that allocates nothing.
package recent

import (
	"hash/maphash"
	"sync"
)

// Size is about how many values a Cache has at most.
const Size = shards * perShard

const shards, perShard = 16, 256

var seed = maphash.MakeSeed()

// A Cache has values that can be made again at any time. A part of it that is full is forgotten as a whole, which costs a
// program with few keys nothing, and one with many a value for each call. The zero value is empty. It is safe for
// concurrent use.
type Cache[K comparable, V any] struct {
	shards [shards]struct {
		mu     sync.RWMutex
		values map[K]V
		_      [32]byte // so that they are on cache lines of their own
	}
}

// Get returns the value of a key, and whether there is one.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	s := &c.shards[maphash.Comparable(seed, key)%shards]
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.values[key]
	return v, ok
}

// Add adds a value, unless there is one of that key, and returns the one that is there.
func (c *Cache[K, V]) Add(key K, v V) V {
	s := &c.shards[maphash.Comparable(seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if is, ok := s.values[key]; ok {
		return is
	}
	if s.values == nil || len(s.values) >= perShard {
		s.values = map[K]V{}
	}
	s.values[key] = v
	return v
}

// Len returns how many values there are.
func (c *Cache[K, V]) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.values)
		s.mu.RUnlock()
	}
	return n
}

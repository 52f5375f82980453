// SPDX-License-Identifier: Apache-2.0

package metricname

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A value is made once, however many ask for it together.
func TestCache(t *testing.T) {
	var mu sync.Mutex
	made := map[int]int{}
	c := NewCache(func(key int) int {
		mu.Lock()
		defer mu.Unlock()
		made[key]++
		return -key
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				if c.Of(i%100) != -(i % 100) {
					panic("another key's value")
				}
			}
		})
	}
	all.Wait()
	require.Len(t, made, 100)
	for _, times := range made {
		require.Equal(t, 1, times)
	}
}

// SPDX-License-Identifier: Apache-2.0

package recent

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	type key struct {
		name string
		of   *int
	}
	var c Cache[key, *int]
	of, one, two := new(int), new(int), new(int)
	_, ok := c.Get(key{"a", nil})
	require.False(t, ok)
	require.Same(t, one, c.Add(key{"a", nil}, one))
	require.Same(t, one, c.Add(key{"a", nil}, two), "the first one stays")
	require.Same(t, two, c.Add(key{"a", of}, two))
	got, ok := c.Get(key{"a", of})
	require.True(t, ok)
	require.Same(t, two, got)
	require.Zero(t, testing.AllocsPerRun(100, func() { c.Get(key{"a", of}) }))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 3 * Size {
				c.Add(key{fmt.Sprint(j, i), nil}, one)
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, c.Len(), Size)
	require.Greater(t, c.Len(), Size/4)
}

// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFields checks that a reply counts as read only if each element was of the type asked for and none is left over.
func TestFields(t *testing.T) {
	for name, c := range map[string]struct {
		raw   any
		n     int64
		s     string
		whole bool
	}{
		"as asked":          {[]any{int64(7), "a"}, 7, "a", true},
		"one too many":      {[]any{int64(7), "a", "b"}, 7, "a", false},
		"one is missing":    {[]any{int64(7)}, 7, "", false},
		"empty":             {[]any{}, 0, "", false},
		"the first is none": {[]any{"7", "a"}, 0, "", false},
		"the last is none":  {[]any{int64(7), int64(8)}, 7, "", false},
		"nil":               {[]any{int64(7), nil}, 7, "", false},
		"no list":           {int64(7), 0, "", false},
	} {
		f := readerOf(c.raw)
		require.Equal(t, c.n, f.number(), name)
		require.Equal(t, c.s, f.text(), name)
		require.Equal(t, c.whole, f.whole(), name)
	}
	f := readerOf([]any{int64(1), int64(2)})
	require.Equal(t, []int64{1, 2}, f.numbers())
	require.True(t, f.whole())
}

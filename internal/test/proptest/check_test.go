// SPDX-License-Identifier: Apache-2.0

package proptest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestASeedDrawsTheSameCases checks that a seed that is set repeats all draws, that further calls of Until draw other cases,
// and that no set seed stays behind.
func TestASeedDrawsTheSameCases(t *testing.T) {
	old := seed()
	defer setSeed(old)
	draw := func(s uint64) (drawn []uint64) {
		setSeed(s)
		var calls int
		Until(t, func() bool { calls++; return calls > 3 }, func(rt *rapid.T) { drawn = append(drawn, rapid.Uint64().Draw(rt, "n")) })
		require.Equal(t, s, seed())
		return append(drawn, Rand(t).Uint64())
	}
	require.Equal(t, draw(7), draw(7))
	for _, s := range []uint64{7, 0} {
		drawn := draw(s)
		n := (len(drawn) - 1) / 3
		require.NotZero(t, n)
		require.NotEqual(t, drawn[:n], drawn[n:2*n], "seed %d", s)
		require.NotEqual(t, drawn, draw(8))
	}
}

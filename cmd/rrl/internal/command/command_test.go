// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDistance checks the words that differ in one place.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ab", 0}, {"ab", "ba", 1}, {"abc", "ac", 1}, {"abc", "ADC", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3}} {
		require.Equal(t, c.want, Distance(c.a, c.b), "%q %q", c.a, c.b)
		require.Equal(t, c.want, Distance(c.b, c.a), "%q %q", c.b, c.a)
	}
}

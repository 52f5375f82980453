// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"testing"

	"github.com/goredisson/ratelimiter/httplimit/rulefile"
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

// TestLines: each mistake of a rule file has a line of its own, and any other error is one line.
func TestLines(t *testing.T) {
	_, err := rulefile.Parse([]byte("rules:\n  - {nam: a}\n  - {limit: b}\n"))
	require.Regexp(t, `^rulefile: line 2: rules\[0\]\.nam: [^\n]*\n  line 3: rules\[1\]\.limit: [^\n]*$`, lines(err))
	require.Equal(t, "one two", lines(errors.New("one\n two")))
}

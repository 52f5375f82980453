// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"testing"

	"github.com/goredisson/ratelimiter/httplimit/rulefile"
	"github.com/stretchr/testify/require"
)

// TestLines: each mistake of a rule file has a line of its own, and any other error is one line.
func TestLines(t *testing.T) {
	_, err := rulefile.Parse([]byte("rules:\n  - {nam: a}\n  - {limit: b}\n"))
	require.Regexp(t, `^rulefile: line 2: rules\[0\]\.nam: [^\n]*\n  line 3: rules\[1\]\.limit: [^\n]*$`, lines(err))
	require.Equal(t, "one two", lines(errors.New("one\n two")))
}

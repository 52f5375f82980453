// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestImportersGetLittleCanFail checks that the check of TestImportersGetLittle, applied to this command, finds what
// the root package must not link.
func TestImportersGetLittleCanFail(t *testing.T) {
	found := strings.Join(redistest.Strangers(t, ".", redistest.Core...), "\n")
	for _, want := range []string{"urfave/cli", "miniredis", "/internal/embedredis"} {
		require.Contains(t, found, want)
	}
}

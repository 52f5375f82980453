// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"slices"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestImportersGetLittle tests that importers link what those of the root package do, and no more.
func TestImportersGetLittle(t *testing.T) {
	ours := append(slices.Clone(redistest.Core), "limit")
	require.Empty(t, redistest.Strangers(t, ".", ours...))
	require.NotEmpty(t, redistest.Strangers(t, "../internal/limittest", ours...), "the look finds what is there")
}

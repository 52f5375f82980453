package limit_test

import (
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestImportersGetLittle tests that importers link what those of the root package do, and no more.
func TestImportersGetLittle(t *testing.T) {
	ours := []string{"", "internal/redisscript", "limit"}
	require.Empty(t, redistest.Strangers(t, ".", ours...))
	require.NotEmpty(t, redistest.Strangers(t, "./limittest", ours...), "the look finds what is there")
}

package ratelimiter

import (
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestImportersGetLittle: the CLI library, miniredis, testify and our other internal packages stay out
// of the programs that import the root package.
func TestImportersGetLittle(t *testing.T) {
	require.Empty(t, redistest.Strangers(t, ".", "", "internal/redisscript"))
}

// TestImportersGetLittleCanFail: the same look at the command finds what the root must not link.
func TestImportersGetLittleCanFail(t *testing.T) {
	found := strings.Join(redistest.Strangers(t, "./cmd/rrl", "", "internal/redisscript"), "\n")
	for _, want := range []string{"urfave/cli", "miniredis", "/internal/embedredis"} {
		require.Contains(t, found, want)
	}
}

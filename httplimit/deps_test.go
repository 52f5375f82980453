package httplimit

import (
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestImportersGetLittle: the YAML parser comes with package rulefile alone.
func TestImportersGetLittle(t *testing.T) {
	ours := []string{"", "internal/redisscript", "httplimit",
		"httplimit/internal/keyname", "httplimit/internal/muxpattern", "httplimit/internal/rates"}
	require.Empty(t, redistest.Strangers(t, ".", ours...))
	for _, p := range redistest.Strangers(t, "./rulefile", append(ours, "httplimit/rulefile")...) {
		require.Contains(t, p, " of go.yaml.in/yaml/v3")
	}
	require.NotEmpty(t, redistest.Strangers(t, "./rulefile", append(ours, "httplimit/rulefile")...), "the look finds what is there")
}

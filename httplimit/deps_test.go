package httplimit

import (
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/goredisson/ratelimiter"

// linked is the modules that an importer of httplimit gets besides the standard library: those of the root
// package, and no other.
var linked = map[string]bool{
	"github.com/redis/go-redis/v9": true,
	"github.com/cespare/xxhash/v2": true, // go-redis
	"go.uber.org/atomic":           true, // go-redis
	"golang.org/x/sys":             true, // go-redis
	"github.com/google/uuid":       true,
	modulePath:                     true,
}

// TestImportersGetLittle: the YAML parser comes with package rulefile alone.
func TestImportersGetLittle(t *testing.T) {
	for p, m := range redistest.Linked(t, ".") {
		require.True(t, linked[m], "httplimit links %s", m)
		require.NotContains(t, p, modulePath+"/httplimit/", "httplimit links a package that belongs to it")
		require.NotContains(t, p, "/internal/redistest")
		require.NotContains(t, p, "/internal/embedredis")
	}
	parsed := false
	for _, m := range redistest.Linked(t, "./rulefile") {
		parsed = parsed || m == "go.yaml.in/yaml/v3"
		require.True(t, linked[m] || m == "go.yaml.in/yaml/v3", "rulefile links %s", m)
	}
	require.True(t, parsed, "the look finds what is there")
}

package ratelimiter

import (
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/goredisson/ratelimiter"

// linked is what an importer of the root package gets besides the standard library: go-redis and what
// it brings, uuid, and of ours the sender of scripts. A new line here is a cost that every importer pays.
var linked = map[string]bool{
	"github.com/redis/go-redis/v9":      true,
	"github.com/cespare/xxhash/v2":      true, // go-redis
	"go.uber.org/atomic":                true, // go-redis
	"golang.org/x/sys":                  true, // go-redis
	"github.com/google/uuid":            true,
	"github.com/goredisson/ratelimiter": true, // ours alone; see strangers
}

var ours = map[string]bool{
	modulePath:                           true,
	modulePath + "/internal/redisscript": true,
}

// TestImportersGetLittle: the CLI library, miniredis, testify and our other internal packages stay out
// of the programs that import the root package.
func TestImportersGetLittle(t *testing.T) {
	require.Empty(t, strangers(t, "."))
}

// TestImportersGetLittleCanFail: the same look at the command finds what the root must not link.
func TestImportersGetLittleCanFail(t *testing.T) {
	found := strings.Join(strangers(t, "./cmd/rrl"), "\n")
	for _, want := range []string{"urfave/cli", "miniredis", modulePath + "/internal/embedredis"} {
		require.Contains(t, found, want)
	}
}

// strangers are the packages that pkg links and linked does not allow.
func strangers(t *testing.T, pkg string) []string {
	t.Helper()
	var list []string
	for path, module := range redistest.Linked(t, pkg) {
		if !linked[module] || module == modulePath && !ours[path] {
			list = append(list, path+" of "+module)
		}
	}
	return list
}

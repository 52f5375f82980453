package ratelimiter

import (
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestRoomsKnowOnlyWhatTheyMay checks the imports of the internal packages, each of which is listed with the
// others that it may link. The package that waits knows no Redis, and the package that knows Redis does not
// know the one that waits; only dispatch and redisson link go-redis.
func TestRoomsKnowOnlyWhatTheyMay(t *testing.T) {
	for room, may := range map[string]struct {
		rooms []string
		redis bool
	}{
		"internal/retry":       {},
		"internal/permit":      {rooms: []string{"internal/retry"}},
		"wire":                 {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/outage":      {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/engine":      {rooms: []string{"internal/engine/fair", "internal/outage", "internal/permit", "internal/retry"}},
		"internal/engine/list": {rooms: []string{"internal/engine", "internal/engine/fair", "internal/outage", "internal/permit", "internal/retry"}},
		"internal/engine/fair": {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/dispatch":    {rooms: []string{"internal/retry"}, redis: true},
		"internal/redisson":    {rooms: []string{"internal/dispatch", "internal/permit", "internal/retry"}, redis: true},
	} {
		ours, redis := redistest.Rooms(t, "./"+room)
		require.ElementsMatch(t, append(may.rooms, room), ours, room)
		require.Equal(t, may.redis, redis, "%s and go-redis", room)
	}
}

// TestOutagesTestsKnowNoRedis checks that the tests of outages do not link go-redis. Those of redisson do, which shows
// that the look would find it.
func TestOutagesTestsKnowNoRedis(t *testing.T) {
	for room, want := range map[string]bool{"internal/outage": false, "internal/redisson": true} {
		ours, redis := redistest.Rooms(t, "-test", "./"+room)
		require.Contains(t, ours, room)
		require.Equal(t, want, redis, room)
	}
}

// TestImportersGetLittle checks that programs which import the root package do not link the CLI library,
// miniredis, testify or our other internal packages.
func TestImportersGetLittle(t *testing.T) {
	require.Empty(t, redistest.Strangers(t, ".", redistest.Core...))
}

// TestImportersGetLittleCanFail applies the same check to an internal package, and finds what the root must not
// link. The test of this name in cmd/rrl checks the command.
func TestImportersGetLittleCanFail(t *testing.T) {
	found := strings.Join(redistest.Strangers(t, "./internal/embedredis", redistest.Core...), "\n")
	for _, want := range []string{"miniredis", "/internal/embedredis"} {
		require.Contains(t, found, want)
	}
}

// TestImportersModuleGraph checks the module graph of an importer: the modules of which a program that imports
// the root package needs a version, whether or not it links them. Each list below is headed by the reason for
// its modules; a new module is a cost for every importer.
func TestImportersModuleGraph(t *testing.T) {
	want := slices.Concat(
		[]string{"importer", "github.com/goredisson/ratelimiter"},
		// What the library needs.
		[]string{"github.com/redis/go-redis/v9", "github.com/google/uuid"},
		// What go-redis links.
		[]string{"github.com/cespare/xxhash/v2", "go.uber.org/atomic"},
		// What httplimit/rulefile needs to read files.
		[]string{"go.yaml.in/yaml/v3"},
		// What our tests need, because they belong to the module.
		[]string{"github.com/alicebob/miniredis/v2", "github.com/yuin/gopher-lua",
			"github.com/stretchr/testify", "pgregory.net/rapid"},
	)
	require.Len(t, want, 11)
	require.ElementsMatch(t, want, redistest.ImportersModules(t), "of one that imports no package yet")

	// As soon as a package is imported, go-redis is in the go.mod of the importer itself, and everything that
	// go-redis requires counts, including what its tests need. Only an older go-redis has less.
	want = append(want, "github.com/bsm/ginkgo/v2", "github.com/bsm/gomega",
		"github.com/klauspost/cpuid/v2", "github.com/zeebo/xxh3", "golang.org/x/sys")
	require.ElementsMatch(t, want, redistest.ImportersModules(t, "github.com/goredisson/ratelimiter"))
}

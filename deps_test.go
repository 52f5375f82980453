package ratelimiter

import (
	"slices"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestRoomsKnowOnlyWhatTheyMay holds the borders: who waits does not know Redis, and what lies in Redis does not know who
// waits. Each room is listed with the rooms that it may link; go-redis may be linked by dispatch and redisson alone.
func TestRoomsKnowOnlyWhatTheyMay(t *testing.T) {
	for room, may := range map[string]struct {
		rooms []string
		redis bool
	}{
		"internal/retry":             {},
		"internal/permit":            {rooms: []string{"internal/retry"}},
		"internal/outage":            {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/engine":            {rooms: []string{"internal/outage", "internal/permit", "internal/retry"}},
		"internal/engine/enginetest": {rooms: []string{"internal/permit", "internal/retry"}},
		"internal/dispatch":          {rooms: []string{"internal/retry"}, redis: true},
		"internal/redisson":          {rooms: []string{"internal/dispatch", "internal/permit", "internal/retry"}, redis: true},
	} {
		ours, redis := redistest.Rooms(t, "./"+room)
		require.ElementsMatch(t, append(may.rooms, room), ours, room)
		require.Equal(t, may.redis, redis, "%s and go-redis", room)
	}
}

// TestEnginesTestsKnowNoRedis: the tests of those who wait and of outages, and what the former ask in place of Redis, link
// no go-redis. Those of a room that does show that the look finds it.
func TestEnginesTestsKnowNoRedis(t *testing.T) {
	for room, want := range map[string]bool{"internal/engine": false, "internal/engine/enginetest": false, "internal/outage": false, "internal/redisson": true} {
		ours, redis := redistest.Rooms(t, "-test", "./"+room)
		require.Contains(t, ours, room)
		require.Equal(t, want, redis, room)
	}
}

// TestImportersGetLittle: the CLI library, miniredis, testify and our other internal packages stay out
// of the programs that import the root package.
func TestImportersGetLittle(t *testing.T) {
	require.Empty(t, redistest.Strangers(t, ".", redistest.Core...))
}

// TestImportersGetLittleCanFail: the same look at an internal package finds what the root must not link. The
// test of this name in cmd/rrl looks at the command.
func TestImportersGetLittleCanFail(t *testing.T) {
	found := strings.Join(redistest.Strangers(t, "./internal/embedredis", redistest.Core...), "\n")
	for _, want := range []string{"miniredis", "/internal/embedredis"} {
		require.Contains(t, found, want)
	}
}

// TestImportersModuleGraph holds the modules that an importer's go.mod is concerned with: those of which a
// program that imports the root package depends on a version, linked or not. Each is here for the reason
// that heads its list; a new one is a cost that every importer pays.
func TestImportersModuleGraph(t *testing.T) {
	want := slices.Concat(
		[]string{"importer", "github.com/goredisson/ratelimiter"},
		// What the library is made of.
		[]string{"github.com/redis/go-redis/v9", "github.com/google/uuid"},
		// What go-redis links.
		[]string{"github.com/cespare/xxhash/v2", "go.uber.org/atomic"},
		// What httplimit/rulefile reads files with.
		[]string{"go.yaml.in/yaml/v3"},
		// What our tests are made of: a module's tests are in its go.mod.
		[]string{"github.com/alicebob/miniredis/v2", "github.com/yuin/gopher-lua",
			"github.com/stretchr/testify", "pgregory.net/rapid"},
	)
	require.Len(t, want, 11)
	require.ElementsMatch(t, want, redistest.ImportersModules(t), "of one that imports no package yet")

	// As soon as a package is imported, go-redis stands in the importer's own go.mod, and all that go-redis
	// requires counts, what its tests need too. Only an older go-redis has less.
	want = append(want, "github.com/bsm/ginkgo/v2", "github.com/bsm/gomega",
		"github.com/klauspost/cpuid/v2", "github.com/zeebo/xxh3", "golang.org/x/sys")
	require.ElementsMatch(t, want, redistest.ImportersModules(t, "github.com/goredisson/ratelimiter"))
}

// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

const (
	// twinOperations is the number of operations that a run compares, unless RATELIMITER_COMPAT_OPS is set.
	twinOperations = 25_000
	worldLength    = 100
	maxFurther     = 20 // runs of a fifth for rows that were not met
)

// A twinSeed is the start of a run, from RATELIMITER_COMPAT_SEED: "run", or "run:world" for a single world.
type twinSeed struct {
	run   uint64
	world int // -1 for all
}

func newTwinSeed(t testing.TB) twinSeed {
	t.Helper()
	text := os.Getenv("RATELIMITER_COMPAT_SEED")
	if text == "" {
		return twinSeed{rand.Uint64N(1_000_000_000), -1}
	}
	run, world, one := strings.Cut(text, ":")
	seed := twinSeed{world: -1}
	var err error
	seed.run, err = strconv.ParseUint(run, 10, 64)
	require.NoError(t, err, "RATELIMITER_COMPAT_SEED")
	if one {
		seed.world, err = strconv.Atoi(world)
		require.NoError(t, err, "RATELIMITER_COMPAT_SEED")
	}
	return seed
}

// comparedOperations returns the number of operations that a run compares: RATELIMITER_COMPAT_OPS if it is set, and
// standard otherwise.
func comparedOperations(t testing.TB, standard int) int {
	t.Helper()
	text := os.Getenv("RATELIMITER_COMPAT_OPS")
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "RATELIMITER_COMPAT_OPS")
	return n
}

// TestDifferential runs random operations at chosen instants, through the scripts that the jar sent and through our
// library, on twin limiters and interleaved on one. After each operation it compares the reply, the permits left and
// in use, the hash and the TTLs. Only the differences of twinRows are allowed, in the states that they name, and
// every one of them must be met. Redis orders members of one score by their random bytes, which no seed repeats.
func TestDifferential(t *testing.T) {
	t.Parallel()
	seed, operations := newTwinSeed(t), comparedOperations(t, twinOperations)
	t.Logf("RATELIMITER_COMPAT_SEED=%d", seed.run)
	began, met, done := time.Now(), map[string]int{}, 0
	var versions []string
	for _, v := range twinVersions() {
		share := operations / 5
		if v.name == newestListed().name {
			share = operations * 4 / 5
		}
		versions = append(versions, v.name)
		t.Run(v.name, func(t *testing.T) {
			n, by := runTwins(t, v, seed, share)
			done += n
			for id, times := range by {
				met[id] += times
			}
			t.Logf("%d operations against Redisson %s, differences by row: %v", n, v, by)
		})
	}
	if t.Failed() || seed.world >= 0 {
		return
	}
	t.Logf("%d operations against Redisson %s in %v, seed %d; differences outside the closed list: 0; in it, by row: %s",
		done, strings.Join(versions, ", "), time.Since(began).Round(time.Millisecond), seed.run, inOrder(met))
	unmet := func(row twinRow) bool { return met[row.id] == 0 }
	for further := uint64(1); further <= maxFurther && slices.ContainsFunc(twinRows, unmet); further++ { // some are rare
		_, by := runTwins(t, newestListed(), twinSeed{seed.run + further, -1}, operations/5)
		for id, times := range by {
			met[id] += times
		}
	}
	for _, row := range twinRows {
		require.NotZero(t, met[row.id], "no operation met row %s: %s", row.id, row.title)
	}
}

// twinVersions returns the newest version, which has every operation, and the article's version.
func twinVersions() (out []version) {
	for _, v := range allVersions {
		if oldestAndNewest(v) {
			out = append(out, v)
		}
	}
	return out
}

// runTwins plays worlds of one version.
func runTwins(t *testing.T, v version, seed twinSeed, operations int) (done int, met map[string]int) {
	onVersion(t, v, func(tb testing.TB, v version) {
		j := newJar(tb, v)
		var err error
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			require.NoError(t, j.load(context.Background(), rdb))
			done, met, err = playTwins(rdb, j, seed, redistest.Key(t), operations)
		})
		require.NoError(tb, err)
	})
	return done, met
}

// playTwins plays worlds until they have compared the given number of operations, or one has found a difference.
func playTwins(rdb *redis.Client, j *jar, seed twinSeed, prefix string, operations int) (done int, met map[string]int, err error) {
	met = map[string]int{}
	for world := max(0, seed.world); done < operations && err == nil; world++ {
		w := newTwinWorld(rand.New(rand.NewPCG(seed.run, uint64(world))), rdb, j, fmt.Sprintf("%s%d", prefix, world))
		length := worldLength
		if w.big {
			length /= 4
		}
		if err = w.play(context.Background(), length); err != nil {
			err = fmt.Errorf("%w\nreplay: RATELIMITER_COMPAT_SEED=%d:%d", err, seed.run, world)
		}
		done += w.operations
		for id, n := range w.met {
			met[id] += n
		}
		if seed.world >= 0 {
			break
		}
	}
	return done, met, err
}

// TestDifferentialNamesRows checks that each entry of the closed list is a row of docs/compatibility.md.
func TestDifferentialNamesRows(t *testing.T) {
	text := redistest.Must(os.ReadFile("../docs/compatibility.md"))(t)
	for _, row := range twinRows {
		ids, _, _ := strings.Cut(row.id, " (")
		for id := range strings.SplitSeq(ids, ", ") {
			require.Contains(t, string(text), "\n| "+id+" | ", "row %s: %s", row.id, row.title)
		}
	}
}

// inOrder returns the counts in the order of the closed list.
func inOrder(met map[string]int) string {
	var out []string
	for _, row := range twinRows {
		out = append(out, fmt.Sprintf("%s: %d", row.id, met[row.id]))
	}
	return strings.Join(out, ", ")
}

// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func TestRunTimeAndTTLsFollowTheBubble(t *testing.T) {
	if !TTLsAreVirtual() {
		t.Skip("a real server keeps real time")
	}
	Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx, name := t.Context(), Key(t)
		assert.Equal(t, time.Now().UnixMilli(), rdb.Time(ctx).Val().UnixMilli())
		require.NoError(t, rdb.Set(ctx, name, 1, 10*time.Second).Err())
		time.Sleep(9999 * time.Millisecond)
		assert.Equal(t, time.Millisecond, rdb.PTTL(ctx, name).Val())
		script := redis.NewScript(`return redis.call('EXISTS', KEYS[1])`)
		assert.Equal(t, int64(1), script.Run(ctx, rdb, []string{name}).Val())
		time.Sleep(time.Millisecond)
		assert.Equal(t, int64(0), script.Run(ctx, rdb, []string{name}).Val())
		assert.Equal(t, time.Now().UnixMilli(), rdb.Time(ctx).Val().UnixMilli())
	})
}

func TestKeysAreUniqueAndDeleted(t *testing.T) {
	ctx, rdb := t.Context(), Client(t)
	mine, other := Key(t), Key(t)
	require.NotEqual(t, mine, other)
	require.NoError(t, rdb.Set(ctx, other, 1, 0).Err())
	var inner string
	t.Run("inner {braces}", func(t *testing.T) {
		inner = Key(t)
		assert.Regexp(t, regexp.MustCompile(`^[-._A-Za-z0-9]+$`), inner)
		require.NoError(t, rdb.Set(ctx, inner, 1, 0).Err())
		require.NoError(t, rdb.Set(ctx, "{"+inner+"}:value", 1, 0).Err())
	})
	if Lane() != miniLane {
		assert.Equal(t, int64(0), rdb.Exists(ctx, inner, "{"+inner+"}:value").Val())
	}
	assert.Equal(t, int64(1), rdb.Exists(ctx, other).Val())
}

// TestLanesOfATest checks that a test is skipped in the lanes that are not its own and nowhere else, and in a long
// run nowhere at all.
func TestLanesOfATest(t *testing.T) {
	skipped := func(of func(t testing.TB)) (is bool) {
		t.Run("of", func(t *testing.T) {
			defer func() { is = t.Skipped() }()
			of(t)
		})
		return is
	}
	noRace := func(t testing.TB) { NoRace(t, "a test of this") }
	t.Setenv("RATELIMITER_LONG", "")
	assert.Equal(t, 3, Cases(3, 50))
	assert.Equal(t, UnderRace || testing.Short() && Lane() == miniLane, skipped(noRace))
	brief := Lane() == valkeyLane || testing.Short()
	assert.Equal(t, brief || Lane() != miniLane && !UnderRace, skipped(NoServer))
	assert.Equal(t, brief, skipped(Repeats))
	t.Setenv("RATELIMITER_LONG", "1")
	assert.Equal(t, 50, Cases(3, 50))
	assert.False(t, skipped(noRace))
	assert.False(t, skipped(NoServer))
	assert.False(t, skipped(Repeats))
}

package ratelimiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBatchedRequestsBeyondOneMember checks batched requests whose sum does not fit into one member. Redisson
// allows rates that large.
func TestBatchedRequestsBeyondOneMember(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", 1_000_000_000_000).Err())
		for _, r := range batched(w.ctx, w.l, []int64{3e9, 3e9, 1, 3e9}) {
			require.NoError(t, r.Err)
			require.True(t, r.Granted)
		}
		used, members := w.used()
		require.EqualValues(t, 9e9+1, used)
		require.Equal(t, 4, members)
		require.EqualValues(t, 1_000_000_000_000-9e9-1, w.value())
	})
}

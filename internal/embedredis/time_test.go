// SPDX-License-Identifier: Apache-2.0

package embedredis_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestSetTime checks that TIME is the time that was set and that keys expire by it, whatever the time of the process.
func TestSetTime(t *testing.T) {
	s, rdb := start(t)
	ctx := t.Context()
	at := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	s.SetTime(at)
	now := redistest.Must(rdb.Time(ctx).Result())(t)
	require.True(t, at.Equal(now), "%v", now)
	require.NoError(t, rdb.Set(ctx, "k", "v", time.Hour).Err())
	for _, step := range []struct {
		after time.Duration
		left  time.Duration // -2 when the key is gone
	}{
		{0, time.Hour},
		{30 * time.Minute, 30 * time.Minute},
		{20 * time.Minute, 30 * time.Minute}, // the clock is set back
		{50*time.Minute - time.Millisecond, time.Millisecond},
		{50 * time.Minute, -2},
	} {
		s.SetTime(at.Add(step.after))
		require.Equal(t, step.left, rdb.PTTL(ctx, "k").Val(), "after %v", step.after)
	}
}

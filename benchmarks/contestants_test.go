// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestContestantsGrantAndReject checks that each contestant grants the permits that there are and rejects further
// ones, and that Redis holds what was granted.
func TestContestantsGrantAndReject(t *testing.T) {
	b := testBench(t)
	for _, c := range b.contestants {
		a := c.about()
		t.Run(a.key, func(t *testing.T) {
			require.NotEqual(t, "unknown", a.version)
			for _, permits := range []int64{1, 5} {
				j := job{prefix: fmt.Sprintf("%s.%d.", a.key, permits), limiters: 1, permits: permits, interval: time.Hour}
				s := redistest.Must(c.open(t.Context(), j))(t)
				redistest.Must(resetUsage(t.Context(), b.rdb))(t)
				permits = a.held(j)
				j.callers, j.calls = 1, permits
				granted := redistest.Must(s.load(t.Context(), j))(t)
				require.Zero(t, granted.Failed, granted.Error)
				require.Zero(t, granted.Rejected)
				require.GreaterOrEqual(t, granted.Granted, permits)
				require.Equal(t, granted.Granted, redistest.Must(s.spent(t.Context()))(t))
				for _, key := range s.keys() {
					require.EqualValues(t, 1, b.rdb.Exists(t.Context(), key).Val(), key)
				}
				if a.unlimited {
					continue
				}
				j.calls = 3
				rejected := redistest.Must(s.load(t.Context(), j))(t)
				require.Equal(t, []int64{0, 3, 0}, []int64{rejected.Granted, rejected.Rejected, rejected.Failed})
				require.Equal(t, permits, redistest.Must(s.spent(t.Context()))(t))
			}
		})
	}
}

// TestIdleContestantsAreSilent checks that a contestant sends nothing when others have their turn: it would be in their
// figures, and among the PINGs that are counted.
func TestIdleContestantsAreSilent(t *testing.T) {
	b := testBench(t)
	for _, c := range b.contestants {
		j := job{prefix: c.about().key, limiters: 1, permits: 5, interval: time.Hour, callers: 1, calls: 1}
		s := redistest.Must(c.open(t.Context(), j))(t)
		redistest.Must(s.load(t.Context(), j))(t)
	}
	redistest.Must(resetUsage(t.Context(), b.rdb))(t)
	time.Sleep(2500 * time.Millisecond) // longer than rueidis needs to find a connection idle
	u := redistest.Must(readUsage(t.Context(), b.rdb))(t)
	require.Zero(t, u.scriptCalls)
	require.Zero(t, u.ran(), "%v", u.commands)
}

// TestManyLimiters checks that the permits spent are added up over all limiters.
func TestManyLimiters(t *testing.T) {
	b := testBench(t)
	for _, c := range b.contestants {
		if c.about().unlimited {
			continue
		}
		j := job{prefix: c.about().key, limiters: 20, permits: plenty, interval: time.Hour, callers: 2, calls: 50}
		s := redistest.Must(c.open(t.Context(), j))(t)
		got := redistest.Must(s.load(t.Context(), j))(t)
		require.Equal(t, int64(100), got.Granted+got.Failed, got.Error)
		require.Equal(t, got.Granted, redistest.Must(s.spent(t.Context()))(t), c.about().key)
	}
}

// TestLayout checks that a script whose KEYS or ARGV have another order is not run.
func TestLayout(t *testing.T) {
	keys := []string{"n", "{n}:value", "{n}:value:id", "{n}:permits", "{n}:permits:id"}
	args := []string{"3", "1700000000000", "0123456789abcdef"}
	require.NoError(t, checkLayout("n", 3, keys, args))
	require.Error(t, checkLayout("n", 4, keys, args))
	require.Error(t, checkLayout("m", 3, keys, args))
	require.Error(t, checkLayout("n", 3, keys[:4], args))
	require.Error(t, checkLayout("n", 3, keys, []string{"3", args[2], args[1]}))
}

// TestRecorder checks that the recorded script is the one that ran on the limiter, whether its text came with EVAL or
// was loaded before.
func TestRecorder(t *testing.T) {
	for name, commands := range map[string][][]string{
		"eval": {{"EVAL", "other", "1", "x"}, {"EVAL", "text", "1", "n", "arg"}},
		"evalsha": {{"EVALSHA", "372ea08cab33e71c02c651dbc83a474d32c676ea", "1", "n", "arg"}, {"SCRIPT", "LOAD", "text"},
			{"EVALSHA", "372ea08cab33e71c02c651dbc83a474d32c676ea", "1", "n", "arg"}},
	} {
		text, keys, args, err := (&recorder{commands: commands}).script("n")
		require.NoError(t, err, name)
		require.Equal(t, []string{"text", "n", "arg"}, []string{text, keys[0], args[0]}, name)
	}
	_, _, _, err := (&recorder{}).script("n")
	require.ErrorContains(t, err, "no script")
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestScripts checks that the scripts which rrl prints are those that Redis gets, under the SHA-1 that it knows them by.
func TestScripts(t *testing.T) {
	none := &live{T: t}
	list := none.ok("scripts")
	shas := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(list), "\n")[1:] {
		words := strings.Fields(line)
		require.Len(t, words, 4, line)
		shas[words[0]] = words[1]
		text := none.ok("scripts", words[0])
		sum := sha1.Sum([]byte(text))
		require.Equal(t, words[1], hex.EncodeToString(sum[:]), words[0])
		require.NotContains(t, text, "--#use", words[0])
	}
	require.Contains(t, shas, "gcra")

	rdb := redistest.Client(t)
	c := clienttest.New(t, rdb)
	defer func() { _ = c.Close() }()
	l := c.RateLimiter(redistest.Key(t))
	require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 1, Interval: time.Minute}))
	require.NoError(t, l.Acquire(t.Context(), 1))
	exist := redistest.Must(rdb.ScriptExists(t.Context(), shas["acquire"], shas["set_rate"]).Result())(t)
	require.Equal(t, []bool{true, true}, exist)
}

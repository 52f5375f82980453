// SPDX-License-Identifier: Apache-2.0

// Package clienttest makes the Clients of tests.
package clienttest

import (
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// New returns a Client that uses rdb, and fails the test if there is none. The caller closes it.
func New(tb testing.TB, rdb redis.UniversalClient, opts ...ratelimiter.Option) *ratelimiter.Client {
	tb.Helper()
	c, err := ratelimiter.New(rdb, opts...)
	require.NoError(tb, err)
	return c
}

// InBubble returns a Client in the bubble of redistest.Run, that is closed when the test ends. It goes by the bubble's time where
// the server's is another.
func InBubble(tb testing.TB, rdb redis.UniversalClient, opts ...ratelimiter.Option) *ratelimiter.Client {
	tb.Helper()
	if !redistest.TTLsAreVirtual() {
		opts = append(opts, ratelimiter.WithClientClock())
	}
	c := New(tb, rdb, opts...)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c
}

// Unused returns a Client of a test that sends nothing.
func Unused(tb testing.TB) *ratelimiter.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	tb.Cleanup(func() { _ = rdb.Close() })
	return New(tb, rdb)
}

// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// TestEveryVersionStarts checks that each version of the matrix runs, and which release added which operation.
func TestEveryVersionStarts(t *testing.T) {
	require.GreaterOrEqual(t, len(allVersions), 8)
	brought := []struct{ since, operations string }{
		{"3.13.4", "acquire acquireAsync availablePermits clearExpire delete expire expireAt getConfig getName isExists " +
			"remainTimeToLive setRate tryAcquire tryAcquireAsync trySetRate"},
		{"3.20.1", "expireAtIfGreater expireAtIfLess expireAtIfNotSet expireAtIfSet expireIfGreater expireIfLess " +
			"expireIfNotSet expireIfSet getExpireTime"},
		{"3.52.0", "keepAliveTime release tryAcquireDuration"},
		{"4.7.0", "setRateArgs updateRate"},
	}
	eachVersion(t, func(t testing.TB, v version) {
		p := fleet.peer(t, v)
		require.Len(t, p.id, 36)
		require.Equal(t, p.id, p.must(t, "id"))
		var want []string
		for _, b := range brought {
			if v.since(b.since) {
				want = append(want, strings.Fields(b.operations)...)
			}
		}
		require.ElementsMatch(t, want, strings.Fields(p.must(t, "operations")))
	})
}

// TestPeer tests the protocol of the peer, not Redisson.
func TestPeer(t *testing.T) {
	v := allVersions[len(allVersions)-1]
	p := fleet.peer(t, v)

	t.Run("words", func(t *testing.T) {
		for _, name := range []string{"a b", "100%", "\t\n\r", "%20", "限流", "é{x}", "=!", " "} {
			got := redistest.Must(p.call("getName", name))(t)
			assert.Equal(t, name, got)
		}
	})

	t.Run("unknown", func(t *testing.T) {
		_, err := p.call("fly", "x")
		assert.True(t, unsupported(err), "%v", err)
		_, err = p.call("fly")
		assert.True(t, unsupported(err), "%v", err)
	})

	t.Run("a blocked acquire holds up nothing, and can be cancelled", func(t *testing.T) {
		name := redistest.Key(t)
		require.True(t, p.truth(t, "trySetRate", name, "OVERALL", 1, time.Hour))
		require.True(t, p.truth(t, "tryAcquire", name, 1))
		blocking := []*pending{p.begin("acquire", name, 1), p.begin("acquireAsync", name, 1)}
		require.Zero(t, p.number(t, "availablePermits", name))
		for _, call := range blocking {
			require.True(t, call.running())
			// A cancel that comes before the operation's thread has begun counts as well.
			require.True(t, redistest.Must(call.cancel())(t))
			_, err := call.wait(callLimit)
			require.Error(t, err)
		}
		require.False(t, redistest.Must(blocking[0].cancel())(t), "it had ended")
	})

	t.Run("hammer counts", func(t *testing.T) {
		name := redistest.Key(t)
		require.True(t, p.truth(t, "trySetRate", name, "OVERALL", 4, time.Hour))
		l := redistest.Must(p.begin("hammer", name, 2, 200*time.Millisecond, "1,8", "try", 5).load(callLimit))(t)
		require.EqualValues(t, 4, l.permits())
		require.Len(t, l.Grants, 4)
		require.True(t, slices.IsSortedFunc(l.Grants, func(a, b javaGrant) int { return a.at().Compare(b.at()) }))
		require.NotZero(t, l.Rejected)
		require.Len(t, l.Errors, 1, "8 permits exceed the rate")
	})

	t.Run("stops with its stdin", func(t *testing.T) {
		server := redistest.Start(t)
		own := redistest.Must(newPeer(v, server.Addr()))(t)
		name := redistest.Key(t)
		require.True(t, own.truth(t, "trySetRate", name, "OVERALL", 1, time.Hour))
		require.True(t, own.truth(t, "tryAcquire", name, 1))
		blocked := own.begin("acquire", name, 1)
		require.NoError(t, own.stop())
		_, err := blocked.wait(callLimit)
		require.Error(t, err)
	})

	t.Run("says why it cannot start", func(t *testing.T) {
		l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		addr := l.Addr().String()
		require.NoError(t, l.Close())
		_, err := newPeer(allVersions[0], addr) // newer versions try for six seconds
		require.ErrorContains(t, err, "RedisConnectionException")
	})
}

// oldestAndNewest saves JVM starts where the versions between them do not differ.
func oldestAndNewest(v version) bool {
	return v.name == "3.15.5" || v.name == "4.7.0" || v.newest
}

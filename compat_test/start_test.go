// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

func TestEveryVersionStarts(t *testing.T) {
	require.GreaterOrEqual(t, len(allVersions), 8)
	eachVersion(t, func(t testing.TB, v version) {
		p := fleet.peer(t, v)
		require.Len(t, p.id, 36)
		require.Equal(t, p.id, p.must(t, "id"))
		name := redistest.Key(t)
		require.Equal(t, name, p.must(t, "getName", name))
		now := p.number(t, "currentTimeMillis")
		require.InDelta(t, time.Now().UnixMilli(), now, 10_000)
	})
}

// TestOperations checks which release added which operation.
func TestOperations(t *testing.T) {
	brought := []struct{ since, operations string }{
		{"3.13.4", "acquire acquireAsync availablePermits clearExpire delete expire expireAt getConfig getName isExists " +
			"remainTimeToLive setRate tryAcquire tryAcquireAsync trySetRate"},
		{"3.20.1", "expireAtIfGreater expireAtIfLess expireAtIfNotSet expireAtIfSet expireIfGreater expireIfLess " +
			"expireIfNotSet expireIfSet getExpireTime"},
		{"3.52.0", "keepAliveTime release tryAcquireDuration"},
		{"4.7.0", "setRateArgs updateRate"},
	}
	eachVersion(t, func(t testing.TB, v version) {
		var want []string
		for _, b := range brought {
			if v.since(b.since) {
				want = append(want, strings.Fields(b.operations)...)
			}
		}
		got := strings.Fields(fleet.peer(t, v).must(t, "operations"))
		require.ElementsMatch(t, want, got)
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

	t.Run("burst and hammer count", func(t *testing.T) {
		name := redistest.Key(t)
		require.True(t, p.truth(t, "trySetRate", name, "OVERALL", 7, time.Hour))
		l := p.load(t, callLimit, "burst", name, 4, 5, 1)
		require.Equal(t, []int64{7, 7, 13, 0}, []int64{l.granted, l.permits, l.rejected, l.errors})
		l = p.load(t, callLimit, "hammer", name, 2, 200*time.Millisecond, "1,8", "try", 5)
		require.Zero(t, l.granted)
		require.NotZero(t, l.rejected)
		require.NotZero(t, l.errors, "8 permits exceed the rate")
		require.NotEmpty(t, l.kinds)
		require.GreaterOrEqual(t, l.elapsed.Milliseconds(), int64(200))

		name = redistest.Key(t)
		require.True(t, p.truth(t, "trySetRate", name, "OVERALL", 4, 100*time.Millisecond))
		l = p.load(t, callLimit, "hammer", name, 3, 500*time.Millisecond, "1,2", "wait:100")
		require.Zero(t, l.errors, "%v", l.kinds)
		require.Len(t, l.grants, int(l.granted))
		sum := int64(0)
		for i, g := range l.grants {
			sum += g.permits
			require.False(t, i > 0 && g.at.Before(l.grants[i-1].at), "in order of time")
		}
		require.Equal(t, l.permits, sum)
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

// TestNameMapper checks that Redisson maps the name once and appends the suffixes to the result.
func TestNameMapper(t *testing.T) {
	eachVersion(t, func(t testing.TB, v version) {
		rdb := redistest.Client(t)
		prefix := redistest.Key(t)
		p := startPeer(t, v, rdb.Options().Addr, "--name-prefix", prefix)
		require.True(t, p.truth(t, "trySetRate", "n", "OVERALL", 2, time.Hour))
		require.True(t, p.truth(t, "tryAcquire", "n", 1))
		require.Equal(t, "n", p.must(t, "getName", "n"))
		keys := redistest.Must(rdb.Keys(t.Context(), "*"+prefix+"*").Result())(t)
		require.ElementsMatch(t, []string{prefix + "n", "{" + prefix + "n}:value", "{" + prefix + "n}:permits"}, keys)
	}, from("3.15.4"), oldestAndNewest)
}

// oldestAndNewest saves JVM starts where the versions between them do not differ.
func oldestAndNewest(v version) bool {
	return v.name == "3.15.5" || v.name == "4.7.0" || v.newest
}

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	eachVersion(t, func(t testing.TB, v version) {
		p := startPeer(t, v, cluster.Nodes()[0].Addr(), "--cluster")
		for i := range 8 { // names that spread over all nodes
			name := redistest.Key(t) + strconv.Itoa(i)
			require.True(t, p.truth(t, "trySetRate", name, "OVERALL", 1, time.Hour))
			require.True(t, p.truth(t, "tryAcquire", name, 1))
			require.False(t, p.truth(t, "tryAcquire", name, 1))
			require.True(t, p.truth(t, "delete", name))
		}
	}, oldestAndNewest)
}

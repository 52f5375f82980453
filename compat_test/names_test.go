// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// sharedNames returns names that begin with key, as services use them and as they should not, and those that work on
// a cluster.
func sharedNames(key string) (all, cluster []string) {
	cluster = []string{
		key, key + "with space", key + "a/b:c", key + "a{b}c", "{" + key + "}", "x{" + key + "}:value", key + "限流/é 🚦",
		key + "\n\t\x00z", key + strings.Repeat("長", 3000), key + "%s%d*?[a]", key + `"quote'\`, key + "{a}{b}", key + "}{x}",
	}
	return append(cluster[:len(cluster):len(cluster)], key+"a{b", key+"a}b", "{}"+key), cluster
}

// requireShared requires that both sides see each other's rate, grants, TTL and deletion under a name.
func requireShared(t testing.TB, java javaSide, ours goSide, typ, name string) {
	t.Helper()
	for _, s := range []struct {
		who  side
		want string
		step
	}{
		{java, "true", do("trySetRate", typ, 5, time.Hour)},
		{ours, "false", do("trySetRate", typ, 6, time.Hour)},
		{ours, typ + " 5 3600000", do("getConfig")},
		{java, "true", take(1)},
		{ours, "true", take(2)},
		{java, "2", do("availablePermits")},
		{ours, "2", do("availablePermits")},
		{java, "false", take(3)},
		{ours, "false", take(3)},
		{ours, "true", do("expire", 10*time.Minute)},
		{java, "true", do("clearExpire")},
		{ours, "-1", do("remainTimeToLive")},
		{ours, "true", do("delete")},
		{java, "false", do("isExists")},
		{ours, "true", do("trySetRate", typ, 5, time.Hour)},
		{ours, "true", take(4)},
		{java, "true", take(1)},
		{java, "0", do("availablePermits")},
	} {
		require.Equal(t, s.want, s.who.do(s.operation, name, s.args...), "%s %.60q: %s by %T", typ, name, s.operation, s.who)
	}
	java.do("delete", name) // 3.13.4 returns false
	require.Equal(t, "false", ours.do("isExists", name))
}

// TestNamesTogether checks that both sides mean the same keys by any name, without a name mapper and with one.
func TestNamesTogether(t *testing.T) {
	t.Parallel()
	versionsAbreast(t, func(t testing.TB, v version) {
		rdb, p := redistest.Client(t), fleet.peer(t, v)
		for _, typ := range []string{"OVERALL", "PER_CLIENT"} {
			all, _ := sharedNames(redistest.Key(t))
			for _, name := range all {
				requireShared(t, javaSide{p}, newGoSide(t, rdb, v, p.id), typ, name)
			}
		}
		if prefix, ok := map[string]string{"3.15.5": "app:ünï/", newestListed().name: "{svc}:"}[v.name]; ok {
			prefix = redistest.Key(t) + prefix
			p := startPeer(t, v, rdb.Options().Addr, "--name-prefix", prefix)
			client := clienttest.New(t, rdb, ratelimiter.WithClientID(p.id), ratelimiter.WithClientKeyTTL(0),
				ratelimiter.WithNameMapper(func(name string) string { return prefix + name }))
			t.Cleanup(func() { _ = client.Close() })
			all, _ := sharedNames("n")
			for _, name := range all {
				requireShared(t, javaSide{p}, goSide{client}, "OVERALL", name)
			}
		}
	}, family)
}

// TestClusterTogether does so on a cluster, where the names that cannot work fail on both sides.
func TestClusterTogether(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	var rdb redis.UniversalClient = cluster.Client(t)
	eachVersion(t, func(t testing.TB, v version) {
		java := javaSide{startPeer(t, v, cluster.Nodes()[0].Addr(), "--cluster")}
		ours := newGoSide(t, rdb, v, java.id)
		all, works := sharedNames(redistest.Key(t))
		for _, name := range works {
			for _, typ := range []string{"OVERALL", "PER_CLIENT"} {
				requireShared(t, java, ours, typ, name)
			}
		}
		for _, name := range all[len(works):] {
			require.Equal(t, "true", java.do("trySetRate", name, "OVERALL", 5, time.Hour))
			require.Contains(t, java.do("tryAcquire", name, 1), "CROSSSLOT", "%q", name)
			_, err := ours.client.RateLimiter(name).Allow(t.Context(), 1)
			require.ErrorIs(t, err, ratelimiter.ErrNameNotClusterSafe, "%q", name)
		}
	}, oldestAndNewest)
}

// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestKeys(t *testing.T) {
	names, keys := []string{"api", "a:b", "a", "%", "x:gcra"}, []string{"", "u", "b:u", "}", "}}", "{", "{}", "{a}b", "%7D", "%", "用户", " "}
	seen := map[string]string{}
	for _, name := range names {
		for _, key := range keys {
			for _, a := range every() {
				keys := redisKeys(name, key, signature(a), a.script().Keys)
				require.Len(t, keys, a.script().Keys)
				require.Equal(t, redistest.HashTag(keys[0]), redistest.HashTag(keys[len(keys)-1]))
				require.NotEqual(t, keys[0], redistest.HashTag(keys[0]), "%q %q has no tag", name, key)
				for _, k := range keys {
					who := name + "\x00" + key + "\x00" + signature(a) + "\x00" + k[len(k)-3:]
					require.Empty(t, seen[k], "%q is of two limiters", k)
					seen[k] = who
				}
			}
		}
	}
	a := GCRA{per(10, time.Second), 20}
	require.Equal(t, []string{"limit2:{api}:gcra:1:100000:2000000"}, redisKeys("api", "", signature(a), 1))
	require.Equal(t, []string{"limit2:{api}:sliding_log:1:1000000", "limit2:{api}:sliding_log:1:1000000:grants"},
		redisKeys("api", "", signature(SlidingLog{per(1, time.Second)}), 2))
	require.Equal(t, "limit2:api:{user 42}:gcra:1:100000:2000000", redisKeys("api", "user 42", signature(a), 1)[0])
	require.Equal(t, redistest.HashTag(redisKeys("api", "u", "x", 1)[0]), redistest.HashTag(redisKeys("other", "u", "y", 1)[0]),
		"all limiters of a key share its slot")
}

// Limiters share permits if their names, keys and parameters are the same, and not otherwise.
func TestWhoSharesWhat(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := shared(t, rdb, FixedWindow{per(1, time.Hour)})
		allow := func(l *Shared, want bool) {
			t.Helper()
			require.Equal(t, want, redistest.Must(l.Allow(t.Context(), 1))(t).Granted)
		}
		allow(l, true)
		allow(l, false)
		allow(l.For("u"), true)
		allow(l.For("u"), false)
		allow(l.For("v"), true)
		allow(l.For("u").For("v"), false)
		allow(l.For("u").For(""), false)
		other := shared(t, rdb, FixedWindow{per(1, time.Hour)})
		allow(other, true)
		same := redistest.Must(NewShared(redistest.Peer(t, rdb), l.config.name, FixedWindow{per(1, time.Hour)}))(t)
		same.config.clock = l.config.clock
		allow(same, false)
		changed := redistest.Must(NewShared(rdb, l.config.name, FixedWindow{per(2, time.Hour)}))(t)
		changed.config.clock = l.config.clock
		allow(changed, true)
		allow(changed, true)
		allow(changed, false)
	})
}

// TestServersThatKnowLittle runs every algorithm on a server that rejects HELLO and CLIENT, by the rules of Alibaba Cloud's
// proxy for calls of scripts.
func TestServersThatKnowLittle(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 0, "HELLO, which is rejected here,")
	rdb := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "CLIENT", "").Client(t)
	calls := redistest.HoldToProxyRules(t, rdb)
	for kind, a := range every() {
		l := redistest.Must(NewShared(rdb, redistest.Key(t), a))(t).For("a{b}")
		for _, n := range []int64{1, 2} { // granted and rejected, known and unknown
			_, err := l.Allow(t.Context(), n)
			require.NoError(t, err, kind)
			_, err = l.Peek(t.Context(), 1)
			require.NoError(t, err, kind)
		}
		require.NoError(t, l.Reset(t.Context()), kind)
	}
	require.GreaterOrEqual(t, calls.Load(), int64(2*len(every())))
}

// In a cluster the keys of a limiter are in the slot in which its script runs.
func TestCluster(t *testing.T) {
	rdb := redistest.StartCluster(t).Client(t)
	for kind, a := range every() {
		l := redistest.Must(NewShared(rdb, redistest.Key(t), a))(t)
		for _, key := range []string{"", "a", "b", "}", "{x}", "用户"} {
			l := l.For(key)
			r, err := l.Allow(t.Context(), 1)
			require.NoError(t, err, "%s for %q", kind, key)
			require.True(t, r.Granted)
			_, err = l.Peek(t.Context(), 1)
			require.NoError(t, err, "%s for %q", kind, key)
			_, err = l.Allow(t.Context(), 2)
			require.NoError(t, err, "%s for %q", kind, key)
		}
	}
}

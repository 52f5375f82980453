// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/rights"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestKeys(t *testing.T) {
	names, keys := []string{"api", "a:b", "a", "%", "x:gcra"}, []string{"", "u", "b:u", "}", "}}", "{", "{}", "{a}b", "%7D", "%", "用户", " "}
	seen := map[string]string{}
	keysOf := func(name, key string, a Algorithm) []string {
		return redistest.Must(NewShared(&redis.Client{}, name, a))(t).For(key).Keys()
	}
	for _, name := range names {
		for _, key := range keys {
			for kind, a := range every() {
				if kind == "token bucket" {
					continue // it is the gcra
				}
				keys := keysOf(name, key, a)
				require.Len(t, keys, a.model().Script.Keys)
				require.Equal(t, redistest.HashTag(keys[0]), redistest.HashTag(keys[len(keys)-1]))
				require.NotEqual(t, keys[0], redistest.HashTag(keys[0]), "%q %q has no tag", name, key)
				for _, k := range keys {
					who := name + "\x00" + key + "\x00" + signatureOf(a) + "\x00" + k[len(k)-3:]
					require.Empty(t, seen[k], "%q is of two limiters", k)
					seen[k] = who
				}
			}
		}
	}
	a := GCRA{per(10, time.Second), 20}
	require.Equal(t, signatureOf(a), signatureOf(TokenBucket(a)))
	require.NotEqual(t, signatureOf(a), signatureOf(DebtBucket{a.Rate, a.Burst, 1}))
	require.Equal(t, []string{"limit2:{api}:gcra3:1:100000:2000000:0"}, keysOf("api", "", a))
	require.Equal(t, []string{"limit2:{api}:sliding_log2:1:1000000", "limit2:{api}:sliding_log2:1:1000000:grants"},
		keysOf("api", "", SlidingLog{per(1, time.Second)}))
	l := redistest.Must(NewShared(&redis.Client{}, "api", a))(t)
	require.Equal(t, keysOf("api", "v", a), l.For("u").For("v").Keys())
	require.Equal(t, keysOf("api", "", a), l.For("u").For("").Keys())
	require.Equal(t, "limit2:api:{user 42}:gcra3:1:100000:2000000:0", keysOf("api", "user 42", a)[0])
	require.Equal(t, redistest.HashTag(keysOf("api", "u", a)[0]), redistest.HashTag(keysOf("other", "u", FixedWindow{per(1, time.Second)})[0]),
		"all limiters of a key share its slot")
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

// TestServersThatAllowLittle runs every algorithm on a server that rejects HELLO and CLIENT, by the rules of Alibaba Cloud's proxy for
// calls of scripts, as a user who may do what package rights lists, and what Reset needs. The list names no command that
// none of the algorithms sends.
func TestServersThatAllowLittle(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 0, "ACL, and HELLO, which is rejected here,")
	commands := rights.Rules(rights.Algorithms(rights.Acquire))
	s, ctx := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "CLIENT", ""), t.Context()
	admin := s.Client(t)
	args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~limit2:*", "+unlink"}
	for _, c := range commands {
		args = append(args, c)
	}
	require.NoError(t, admin.Do(ctx, args...).Err())
	rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" })
	calls := redistest.HoldToProxyRules(t, rdb)
	var scripts strings.Builder
	for kind, a := range every() {
		l := redistest.Must(NewShared(rdb, redistest.Key(t), a))(t).For("a{b}")
		for i := range 20 { // granted and rejected, known and unknown
			_, err := l.Allow(ctx, 1+int64(i)%2)
			require.NoError(t, err, kind)
			_, err = l.Peek(ctx, 1)
			require.NoError(t, err, kind)
		}
		require.NoError(t, l.Reset(ctx), kind)
		scripts.WriteString(a.model().Script.Src)
	}
	require.GreaterOrEqual(t, calls.Load(), int64(2*len(every())))
	require.Empty(t, redistest.Must(admin.Do(ctx, "ACL", "LOG").Slice())(t))
	for _, c := range commands {
		name := strings.ToUpper(strings.TrimPrefix(c, "+"))
		require.True(t, strings.HasPrefix(name, "EVAL") || strings.Contains(scripts.String(), "'"+name+"'"), c)
	}
}

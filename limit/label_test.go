// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"errors"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestErrorsDoNotContainTheSubject: a key may be a token or a person, and a megabyte long.
func TestErrorsDoNotContainTheSubject(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		for _, key := range []string{"tok-12345678", strings.Repeat("\x00secret", 150_000)} {
			for kind, a := range every() {
				l := shared(t, rdb, a).For(key)
				for name, spoil := range map[string]func(){
					"malformed":  func() { require.NoError(t, rdb.Set(t.Context(), l.keys[0], "tok-12345678", 0).Err()) },
					"wrong type": func() { require.NoError(t, rdb.LPush(t.Context(), l.keys[0], "tok-12345678").Err()) },
				} {
					require.NoError(t, rdb.Del(t.Context(), l.keys...).Err())
					spoil()
					_, err := l.Allow(t.Context(), 1)
					require.Error(t, err, "%s, %s", kind, name)
					require.NotContains(t, err.Error(), "tok-", "%s, %s", kind, name)
					require.Less(t, len(err.Error()), 400, "%s, %s", kind, name)
				}
				require.NoError(t, rdb.Del(t.Context(), l.keys...).Err())
			}
			l := shared(t, rdb, every()["gcra"]).For(key)
			rdb := redistest.Peer(t, rdb)
			rdb.AddHook(&saboteur{left: 100, err: errors.New("broken")})
			_, err := twin(t, l, rdb).For(key).Allow(t.Context(), 1)
			require.ErrorIs(t, err, ratelimiter.ErrUnavailable)
			require.NotContains(t, err.Error(), key[:8])
			require.Less(t, len(err.Error()), 400)

		}
	})
}

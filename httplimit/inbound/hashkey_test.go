// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestHashKey: with a key the hashes of ByHeader and Hash in a limiter's name cannot be found by trying out secrets.
func TestHashKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		key := []byte("0123456789abcdef")
		rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
		own := func(r *http.Request) (string, bool) { return Hash(r, "own"), true }
		keys := func(opts ...Option) string {
			ask(w.middleware(rate, append(opts, WithKeys(ByHeader("X-Pin"), own))...).Handler(answers), "1.1.1.1:1", "/", "X-Pin", "4711")
			found := redistest.Must(w.rdb.Keys(t.Context(), w.key+"*").Result())(t)
			require.NoError(t, w.rdb.Del(t.Context(), found...).Err())
			return strings.Join(found, "\n")
		}
		require.Contains(t, keys(), keyname.Hash("4711")+":"+keyname.Hash("own"))
		require.Contains(t, keys(WithHashKey(key)), keyname.KeyedHash(key, "4711")+":"+keyname.KeyedHash(key, "own"))
		_, err := New(w.client, "api", rate, WithHashKey(key[:15]))
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	})
}

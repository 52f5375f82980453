// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/internal/keyname"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestSchemesCase: a client does not multiply its limit by the ways in which the scheme of its credentials may be
// written; the credentials themselves, and other headers, count as they are.
func TestSchemesCase(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, header := range []string{"Authorization", "proxy-authorization"} {
			h := w.middleware(ratelimiter.Rate{Permits: 1, Interval: time.Hour}, WithKeys(ByHeader(header))).Handler(answers)
			require.Equal(t, 200, ask(h, "1.1.1.1:1", "/", header, "Bearer "+header).Code)
			for _, same := range []string{"bearer ", "BEARER ", "bEaReR ", "Bearer   ", " Bearer ", "bearer \t"} {
				require.Equal(t, 429, ask(h, "1.1.1.1:1", "/", header, same+header).Code, "%q", same)
			}
			for _, other := range []string{"Basic " + header, "Bearer x" + header, "Bearer " + header + " x"} {
				require.Equal(t, 200, ask(h, "1.1.1.1:1", "/", header, other).Code, "%q", other)
			}
			n := redistest.Must(w.rdb.Exists(t.Context(), w.key+":"+keyname.Hash("Bearer "+header)).Result())(t)
			require.EqualValues(t, 1, n, "by the hash of how it is usually written")
		}
		// Without a scheme each is another token.
		h := w.middleware(ratelimiter.Rate{Permits: 1, Interval: time.Hour}, WithKeys(ByHeader("Authorization"))).Handler(answers)
		for _, token := range []string{"aBcD", "AbCd", "abcd", "Abcd", "a:B c", "A:B c", "a,b C", "A,b C", "\"a\" B", "\"A\" B"} {
			require.Equal(t, 200, ask(h, "1.1.1.1:1", "/", "Authorization", token).Code, "%q", token)
			require.Equal(t, 429, ask(h, "1.1.1.1:1", "/", "Authorization", " "+token+"\t").Code, "%q", token)
		}
		h = w.middleware(ratelimiter.Rate{Permits: 1, Interval: time.Hour}, WithKeys(ByHeader("X-Api-Key"))).Handler(answers)
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/", "X-Api-Key", "key 1").Code)
		require.Equal(t, 200, ask(h, "1.1.1.1:1", "/", "X-Api-Key", "KEY 1").Code)
	})
}

// TestHashKey: with a key the hashes of ByHeader and Hash in a limiter's name cannot be found by trying out secrets.
func TestHashKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		key := []byte("0123456789abcdef")
		rate := ratelimiter.Rate{Permits: 4, Interval: time.Second}
		own := func(r *http.Request) (string, bool) { return HashFor(r, "own"), true }
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

// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestHashKey: somebody who reads Redis finds a short secret by trying all of them where it is hashed without a key,
// and not with one.
func TestHashKey(t *testing.T) {
	key := []byte("0123456789abcdef")
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("4711"))
	require.Equal(t, hex.EncodeToString(mac.Sum(nil)[:16]), KeyedHash(key, "4711"))
	require.Equal(t, Hash("4711"), KeyedHash(nil, "4711"))

	inWorld(t, func(t *testing.T, w *world) {
		invert := func(opts ...Option) (found string) {
			rate := ratelimiter.Rate{Permits: 9, Interval: time.Second}
			opts = append(opts, WithRules(Rule{Limits: []Limit{{Name: w.key + ":{query.pin|hash}", Rate: rate}}}))
			get(t, w.transport(base(ok), opts...), "http://x/?pin=4711")
			keys := redistest.Must(w.rdb.Keys(t.Context(), w.key+"*").Result())(t)
			require.NotEmpty(t, keys)
			all := strings.Join(keys, "\n")
			for pin := range 10_000 {
				if pin := fmt.Sprintf("%04d", pin); strings.Contains(all, Hash(pin)) {
					found = pin
				}
			}
			require.NoError(t, w.rdb.Del(t.Context(), keys...).Err())
			return found
		}
		require.Equal(t, "4711", invert())
		require.Empty(t, invert(WithHashKey(key)))
	})
	client := clienttest.Unused(t)
	for _, short := range [][]byte{nil, {}, make([]byte, 15)} {
		_, err := New(client, WithHashKey(short))
		require.ErrorIs(t, err, ErrInvalidOption)
	}
}

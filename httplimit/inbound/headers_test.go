// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"encoding/json"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestFieldsAreStructured: an Integer has up to 15 digits and is not negative here, whatever rate the limiter was given
// and however far its count is off.
func TestFieldsAreStructured(t *testing.T) {
	const most = "999999999999999"
	for _, c := range []struct {
		rate          ratelimiter.Rate
		available     int64
		wait          time.Duration
		policy, limit string
	}{
		{ratelimiter.Rate{Permits: 5, Interval: time.Second}, 4, 0, `"p";q=5;w=1`, `"p";r=4`},
		{ratelimiter.Rate{Permits: 999_999_999_999_999, Interval: time.Second}, 999_999_999_999_999, 0, `"p";q=` + most + `;w=1`, `"p";r=` + most},
		{ratelimiter.Rate{Permits: 1_000_000_000_000_000, Interval: time.Second}, 1_000_000_000_000_000, 0, `"p";q=` + most + `;w=1`, `"p";r=` + most},
		{ratelimiter.Rate{Permits: math.MaxInt64, Interval: math.MaxInt64}, math.MaxInt64, math.MaxInt64, `"p";q=` + most, `"p";r=` + most + `;t=9223372037`},
		{ratelimiter.Rate{Permits: 5, Interval: time.Millisecond}, -7, time.Millisecond, `"p";q=5`, `"p";r=0;t=1`},
	} {
		h := http.Header{}
		setHeaders(h, `"p"`, c.rate, c.available, c.wait)
		require.Equal(t, c.policy, h.Get("RateLimit-Policy"))
		require.Equal(t, c.limit, h.Get("RateLimit"))
	}
}

// TestBracesOfANameAreNotTold: they are a hash tag of a Redis Cluster, which is no client's business.
func TestBracesOfANameAreNotTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		key := w.key
		m := redistest.Must(New(w.client, "{"+key+"}:x", ratelimiter.Rate{Permits: 1, Interval: time.Minute}))(t)
		h := m.Handler(answers)
		a := ask(h, "1.1.1.1:1", "/")
		require.Equal(t, `"`+key+`:x";q=1;w=60`, a.Header().Get("RateLimit-Policy"))
		require.Equal(t, `"`+key+`:x";r=0`, a.Header().Get("RateLimit"))
		a = ask(h, "1.1.1.1:1", "/")
		require.Equal(t, 429, a.Code)
		var p problem
		require.NoError(t, json.Unmarshal(a.Body.Bytes(), &p))
		require.Equal(t, []string{key + ":x"}, p.Violated, "the policy of the fields")
		require.EqualValues(t, 1, redistest.Must(w.rdb.Exists(t.Context(), "{"+key+"}:x").Result())(t))
		_, err := New(w.client, "{}", ratelimiter.Rate{Permits: 1, Interval: time.Minute})
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	})
}

// TestLimiterHeader: only what does not pass names its limiter, and only if that was asked for.
func TestLimiterHeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		rate := ratelimiter.Rate{Permits: 1, Interval: time.Minute}
		for _, on := range []bool{false, true} {
			name := w.key + map[bool]string{false: "off", true: "on"}[on]
			opts := []Option{WithKeys(ByHeader("X-Key"), func(*http.Request) (string, bool) { return "a\r\nb", true })}
			if on {
				opts = append(opts, WithLimiterHeader())
			}
			h := redistest.Must(New(w.client, name, rate, opts...))(t).Handler(answers)
			require.Empty(t, ask(h, "1.1.1.1:1", "/").Header().Values("X-RateLimit-Limiter"))
			a := ask(h, "1.1.1.1:1", "/")
			require.Equal(t, 429, a.Code)
			named := a.Header().Get("X-RateLimit-Limiter")
			require.Equal(t, on, named != "")
			if on {
				require.EqualValues(t, 1, redistest.Must(w.rdb.Exists(t.Context(), named).Result())(t), named)
			}
		}
	})
}

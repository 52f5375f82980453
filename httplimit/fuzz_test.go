// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzHeaders: no header makes the detector panic or wait out of bounds, success is never throttled by one,
// and a RateLimit field that was built here is read as it was built.
func FuzzHeaders(f *testing.F) {
	for _, row := range httpRows {
		h := row.response().Header
		f.Add(row.response().Status, h.Get("Date"), h.Get("Retry-After"), h.Get("Ratelimit"), h.Get("Ratelimit-Policy"), "default", int64(0), int64(30))
	}
	f.Fuzz(func(t *testing.T, status int, date, after, limit, policy, name string, r, wait int64) {
		h := http.Header{}
		for k, v := range map[string]string{"Date": date, "Retry-After": after, "Ratelimit": limit, "Ratelimit-Policy": policy} {
			h[k] = []string{v}
		}
		v := HTTPDetector().Detect(&Response{Status: status, Header: h, Body: []byte(`{"code":99991400}`), Now: arrival})
		if status == 429 {
			require.True(t, v.Throttled)
		}
		if status < 300 {
			require.Equal(t, Verdict{}, v)
		}
		if v.Throttled {
			require.NotEmpty(t, v.Reason)
			require.Empty(t, v.Ignored)
			if !v.Asked.IsZero() {
				require.True(t, v.Asked.After(v.Until))
			}
			if !v.Until.IsZero() {
				require.False(t, v.Until.Before(arrival), "%v", v.Until)
				require.LessOrEqual(t, v.Until.Sub(arrival), DefaultMaxRetryAfter)
			}
		} else {
			require.Equal(t, Verdict{}, v)
		}

		const digits15 = 1_000_000_000_000_000
		r, wait = r%digits15, wait%digits15
		field := fmt.Sprintf(`%s;r=%d;t=%d`, quoteField(name), r, wait)
		items, ok := parseItems([]string{field, `"other"`})
		require.True(t, ok, "%s", field)
		require.Equal(t, []fieldItem{
			{asciiOf(name), map[string]int64{"r": r, "t": wait}}, {"other", map[string]int64{}},
		}, items)
		v = HTTPDetector().Detect(&Response{Status: 503, Now: arrival, Header: http.Header{"Ratelimit": {field}}})
		require.Equal(t, r == 0 && wait >= 0, v.Throttled, "%s", field)
		if v.Throttled {
			require.Equal(t, min(float64(wait), DefaultMaxRetryAfter.Seconds()), v.Until.Sub(arrival).Seconds())
		}
	})
}

func asciiOf(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, s)
}

func quoteField(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(asciiOf(s)) + `"`
}

// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRateLimit: a RateLimit field that was built here is read as it was built. FuzzHeaders of package platform has all others.
func FuzzRateLimit(f *testing.F) {
	f.Add("default", int64(0), int64(30))
	f.Add(`a"b\c`, int64(7), int64(-1))
	f.Fuzz(func(t *testing.T, name string, r, wait int64) {
		const digits15 = 1_000_000_000_000_000
		r, wait = r%digits15, wait%digits15
		field := fmt.Sprintf(`%s;r=%d;t=%d`, quoteField(name), r, wait)
		items, ok := parseItems([]string{field, `"other"`})
		require.True(t, ok, "%s", field)
		require.Equal(t, []fieldItem{
			{asciiOf(name), map[string]int64{"r": r, "t": wait}}, {"other", map[string]int64{}},
		}, items)
		v := HTTPDetector().Detect(&Response{Status: 503, Now: arrival, Header: http.Header{"Ratelimit": {field}}})
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

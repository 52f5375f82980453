// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFullest checks that a window is half open, and that a grant which may have been made outside of it does not count.
func TestFullest(t *testing.T) {
	type grant struct{ begin, end, permits int64 }
	span := func(g grant) (begin, end time.Time, permits int64) {
		return time.UnixMilli(g.begin), time.UnixMilli(g.end), g.permits
	}
	for name, c := range map[string]struct {
		grants []grant
		want   []grant
	}{
		"nothing":            {nil, nil},
		"one":                {[]grant{{5, 5, 2}}, []grant{{5, 5, 2}}},
		"out of order":       {[]grant{{9, 9, 2}, {1, 1, 3}}, []grant{{1, 1, 3}, {9, 9, 2}}},
		"an interval apart":  {[]grant{{0, 0, 2}, {10, 10, 3}}, []grant{{10, 10, 3}}},
		"one instant":        {[]grant{{0, 0, 2}, {0, 0, 3}, {9, 9, 1}}, []grant{{0, 0, 2}, {0, 0, 3}, {9, 9, 1}}},
		"made too late":      {[]grant{{0, 1, 2}, {1, 10, 3}, {2, 9, 1}}, []grant{{1, 10, 3}, {2, 9, 1}}},
		"not the first ones": {[]grant{{0, 0, 1}, {8, 8, 1}, {12, 12, 1}, {17, 17, 1}}, []grant{{8, 8, 1}, {12, 12, 1}, {17, 17, 1}}},
	} {
		got := Fullest(c.grants, 10*time.Millisecond, span)
		require.Equal(t, c.want, got, name)
		var sum int64
		for _, g := range c.want {
			sum += g.permits
		}
		require.Equal(t, sum, Sum(got, span), name)
	}
}

// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestMost(t *testing.T) {
	const window = 10 * time.Second
	for _, c := range []struct {
		name   string
		grants []string // time and permits
		want   int64
	}{
		{"none", nil, 0},
		{"one", []string{"0s 3"}, 3},
		{"a window is half-open", []string{"0s 5", "10s 5"}, 5},
		{"one ms short of it", []string{"0s 5", "9.999s 5"}, 10},
		{"across a border", []string{"0s 1", "9s 4", "10s 1", "18.999s 1"}, 6},
		{"in any order", []string{"18s 1", "0s 1", "10s 1", "9s 4"}, 6},
		{"one instant", []string{"3s 2", "3s 2", "3s 2"}, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var grants []Grant
			for _, text := range c.grants {
				var after string
				var g Grant
				redistest.Must(fmt.Sscan(text, &after, &g.Permits))(t)
				d := redistest.Must(time.ParseDuration(after))(t)
				g.At = time.Unix(1, 0).Add(d)
				grants = append(grants, g)
			}
			require.Equal(t, c.want, Most(window, grants))
		})
	}
}

// TestMostAgainstASum compares the result with a count of every window that begins with a grant, one by one.
func TestMostAgainstASum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		grants := make([]Grant, r.IntN(12))
		for i := range grants {
			grants[i] = Grant{time.UnixMilli(r.Int64N(40)), 1 + r.Int64N(3)}
		}
		var want int64
		for _, from := range grants {
			var n int64
			for _, g := range grants {
				if d := g.At.Sub(from.At); d >= 0 && d < 10*time.Millisecond {
					n += g.Permits
				}
			}
			want = max(want, n)
		}
		require.Equal(t, want, Most(10*time.Millisecond, grants), "%v", grants)
	}
}

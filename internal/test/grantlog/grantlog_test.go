// SPDX-License-Identifier: Apache-2.0

package grantlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
)

const window = 10 * time.Millisecond

func ms(n int64) time.Time { return time.UnixMilli(n) }

// span makes grants of begin, end and permits.
func span(of ...[3]int64) (list Grants) {
	for _, g := range of {
		list = append(list, Grant{Begin: ms(g[0]), End: ms(g[1]), Permits: g[2]})
	}
	return list
}

// TestFullest checks that a window is half open, and that a grant which may have been made outside of it does not count.
func TestFullest(t *testing.T) {
	for name, c := range map[string]struct{ grants, want Grants }{
		"nothing":            {nil, nil},
		"one":                {span([3]int64{5, 5, 2}), span([3]int64{5, 5, 2})},
		"out of order":       {span([3]int64{9, 9, 2}, [3]int64{1, 1, 3}), span([3]int64{1, 1, 3}, [3]int64{9, 9, 2})},
		"an interval apart":  {span([3]int64{0, 0, 2}, [3]int64{10, 10, 3}), span([3]int64{10, 10, 3})},
		"one instant":        {span([3]int64{0, 0, 2}, [3]int64{0, 0, 3}, [3]int64{9, 9, 1}), span([3]int64{0, 0, 2}, [3]int64{0, 0, 3}, [3]int64{9, 9, 1})},
		"made too late":      {span([3]int64{0, 1, 2}, [3]int64{1, 10, 3}, [3]int64{2, 9, 1}), span([3]int64{1, 10, 3}, [3]int64{2, 9, 1})},
		"not the first ones": {span([3]int64{0, 0, 1}, [3]int64{8, 8, 1}, [3]int64{12, 12, 1}, [3]int64{17, 17, 1}), span([3]int64{8, 8, 1}, [3]int64{12, 12, 1}, [3]int64{17, 17, 1})},
	} {
		require.Equal(t, c.want, c.grants.Fullest(window), name)
	}
}

// TestMostAgainstASum compares the result with a count of every window that begins with a grant, one by one.
func TestMostAgainstASum(t *testing.T) {
	r := proptest.Rand(t)
	for range 2000 {
		list := make(Grants, r.IntN(12))
		for i := range list {
			begin := r.Int64N(40)
			list[i] = Grant{Begin: ms(begin), End: ms(begin + max(0, r.Int64N(25)-12)), Permits: 1 + r.Int64N(3)}
		}
		var want int64
		for _, from := range list {
			in := func(g Grant) bool { return !g.Begin.Before(from.Begin) && g.End.Sub(from.Begin) < window }
			want = max(want, list.Only(in).Permits())
		}
		require.Equal(t, want, list.Most(window), "%v", list)
	}
}

// TestNextAndGap checks how late a grant is, and for how long there was none.
func TestNextAndGap(t *testing.T) {
	list := span([3]int64{0, 9, 1}, [3]int64{1, 4, 1}, [3]int64{2, 5, 1}, [3]int64{3, 20, 1})
	for from, want := range map[int64]string{0: "4ms true", 4: "1ms true", 5: "4ms true", 19: "1ms true", 20: "0s false"} {
		after, ok := list.Next(ms(from))
		require.Equal(t, want, fmt.Sprint(after, " ", ok), "%d", from)
	}
	for want, c := range map[int64][2]int64{4: {0, 9}, 11: {0, 25}, 10: {6, 19}, 1: {4, 5}, 30: {20, 50}} {
		require.Equal(t, ms(want).Sub(ms(0)), list.Gap(ms(c[0]), ms(c[1])), "%v", c)
	}
	require.Equal(t, span([3]int64{2, 5, 1}, [3]int64{3, 20, 1}), list.After(ms(1)))
}

// TestCheck checks that each caller needs what was granted while it asked.
func TestCheck(t *testing.T) {
	list := span([3]int64{0, 9, 2}, [3]int64{1, 4, 1}, [3]int64{3, 6, 1})
	for at, sound := range map[[3]int64]bool{{3, 5, 9}: true, {4, 6, 0}: true, {5, 6, 9}: false, {3, 7, 9}: false, {3, 5, 10}: false} {
		grants := Grants{At(ms(at[0]), 1), At(ms(at[1]), 1), At(ms(at[2]), 2)}
		err := list.Check(func(from, until time.Time) int64 {
			return grants.Only(func(g Grant) bool { return !g.Begin.Before(from) && !g.End.After(until) }).Permits()
		})
		require.Equal(t, sound, err == nil, "%v: %v", at, err)
	}
}

// TestLedger checks where each result counts, also after a trip through another process.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l, all Ledger
		begin := time.Now().UTC().Round(0)
		time.Sleep(time.Second)
		down := fmt.Errorf("%w: no reply", permit.ErrUnavailable)
		l.Note(begin, 3, true, false, nil)
		l.Note(begin, 1, true, true, nil)
		l.Note(begin, 1, false, false, nil)
		l.Note(begin, 1, true, false, down)
		l.Note(begin.Add(-time.Second), 1, false, true, errors.New("other"))
		before := l.Told()
		l.Add(At(begin, 5))
		require.Len(t, before.Grants, 1, "what was told is not what will be")

		text, err := json.Marshal(l.Told())
		require.NoError(t, err)
		var told Told
		require.NoError(t, json.Unmarshal(text, &told))
		all.Merge("a", told)
		all.Merge("a", told)
		require.Equal(t, Told{
			Grants: Grants{
				{begin, begin.Add(time.Second), 3, "a"}, {begin, begin, 5, "a"}, {begin, begin.Add(time.Second), 3, "a"}, {begin, begin, 5, "a"},
			},
			Rejected: 2, Degraded: 2, Longest: 2 * time.Second,
			Unavailable: map[string]int{"a: " + down.Error(): 2}, Errors: map[string]int{"a: other": 2},
		}, all.Told())
	})
}

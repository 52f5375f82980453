// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"slices"
	"time"
)

// Fullest returns the grants of the window that holds the most permits, oldest first. The function span returns between
// which two instants a grant was made, which are the same if that is known, and its permits. A grant counts as one within
// the window [t, t + window) if both instants are. So on a machine that stalls the sum is smaller than what was granted,
// never larger, and may be held to a strict bound.
func Fullest[G any](grants []G, window time.Duration, span func(G) (begin, end time.Time, permits int64)) (found []G) {
	begin := func(g G) time.Time { at, _, _ := span(g); return at }
	grants = slices.SortedStableFunc(slices.Values(grants), func(a, b G) int { return begin(a).Compare(begin(b)) })
	most, before := int64(0), time.Time{}
	for i, first := range grants {
		until := begin(first).Add(window)
		if i > 0 && begin(first).Equal(before) {
			continue // the window is the same
		}
		before = begin(first)
		var in []G
		sum := int64(0)
		for _, g := range grants[i:] {
			at, end, permits := span(g)
			if !at.Before(until) {
				break
			}
			if end.Before(until) {
				in, sum = append(in, g), sum+permits
			}
		}
		if sum > most {
			most, found = sum, in
		}
	}
	return found
}

// Sum returns the permits of all grants.
func Sum[G any](grants []G, span func(G) (begin, end time.Time, permits int64)) (n int64) {
	for _, g := range grants {
		_, _, permits := span(g)
		n += permits
	}
	return n
}

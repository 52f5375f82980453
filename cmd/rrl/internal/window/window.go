// SPDX-License-Identifier: Apache-2.0

// Package window counts the permits that were granted in any window of time.
package window

import (
	"slices"
	"time"
)

// A Grant is of a number of permits, at an instant.
type Grant struct {
	At      time.Time
	Permits int64
}

// Most returns the most permits granted in any half-open window of that length. A window that begins with a grant at t ends
// before t+length, when the permits of that grant are back. It sorts grants.
func Most(length time.Duration, grants []Grant) int64 {
	slices.SortFunc(grants, func(a, b Grant) int { return a.At.Compare(b.At) })
	var most, sum int64
	first := 0
	for _, g := range grants {
		sum += g.Permits
		for !grants[first].At.Add(length).After(g.At) {
			sum -= grants[first].Permits
			first++
		}
		most = max(most, sum)
	}
	return most
}

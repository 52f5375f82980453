// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGroupsBeginWithTheWorst checks that a finding for which callers wait is not the last of many that mean the same.
func TestGroupsBeginWithTheWorst(t *testing.T) {
	r := Report{Findings: []Finding{
		{Check: "cool-down", Limiter: "a"},
		{Check: "cool-down", Limiter: "b", waiting: 3},
		{Check: "cool-down", Limiter: "c", waiting: 40},
		{Check: "ttl", Limiter: "d", Severity: Warning},
	}}
	var names []string
	for _, group := range r.Groups() {
		for _, f := range group {
			names = append(names, f.Limiter)
		}
	}
	require.Equal(t, []string{"d", "c", "b", "a"}, names)
}

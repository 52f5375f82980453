// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCounted checks the texts of numbers of things.
func TestCounted(t *testing.T) {
	for n, want := range map[int]string{0: "0 members", 1: "1 member", 2: "2 members", 1000: "1000 members"} {
		require.Equal(t, want, Counted(n, "member"))
	}
}

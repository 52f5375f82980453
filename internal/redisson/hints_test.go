// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// TestHealThatFailsProvesNothing checks that after a lower rate the state is taken for one of that rate only when a heal has ended, and
// not when its reply was lost or it gave up.
func TestHealThatFailsProvesNothing(t *testing.T) {
	h := &hints{rate: permit.Rate{Permits: 5, Interval: time.Second}, checks: checkSchedule{lowered: true}}
	h.healed(permit.Lowered, time.Now(), false)
	require.Zero(t, h.trusted())
	h.healed(permit.Checked, time.Now(), true)
	require.Zero(t, h.trusted())
	h.healed(permit.Lowered, time.Now(), true)
	require.EqualValues(t, 5, h.trusted())
}

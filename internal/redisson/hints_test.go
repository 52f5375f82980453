// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// TestTrust checks when the state is taken for one of the rate that replies have: from one interval after they began to have it, as long as
// no two of them are further apart, and at once where this process has set the rate.
func TestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hints{}
		five, four := permit.Rate{Permits: 5, Interval: time.Second}, permit.Rate{Permits: 4, Interval: time.Second}
		reply := func(r permit.Rate, took time.Duration) {
			sent := time.Now()
			time.Sleep(took)
			h.learn(&permit.Batch{}, &reading{Reply: permit.Reply{Rate: r, Granted: []int64{1}}}, sent)
		}
		steadily := func(r permit.Rate, d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				reply(r, 0)
			}
		}
		require.Zero(t, h.trusted(), "it knows none")
		steadily(five, time.Second)
		require.Zero(t, h.trusted())
		reply(five, 0)
		require.EqualValues(t, 5, h.trusted(), "for an interval")
		steadily(four, 900*time.Millisecond)
		require.Zero(t, h.trusted(), "another one")
		steadily(four, 300*time.Millisecond)
		require.EqualValues(t, 4, h.trusted())
		time.Sleep(time.Second)
		reply(four, 0)
		require.Zero(t, h.trusted(), "after a pause it may have been another one meanwhile")
		reply(five, 700*time.Millisecond)
		steadily(five, time.Second)
		require.Zero(t, h.trusted(), "since the reply, not since the call")
		h.learnRate(four)
		require.EqualValues(t, 4, h.trusted(), "it was set here")
		reply(five, 0)
		require.Zero(t, h.trusted(), "and then elsewhere")
	})
}

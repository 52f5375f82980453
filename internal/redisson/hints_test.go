// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// TestSurplus checks what becomes of permits that are too many: they are Java's release if the state has added up to the rate since that was
// last seen to change; grants of another rate if it has been seen to change; and it is not known for an interval from when a process first
// sees the rate, or sees it again after a pause.
func TestSurplus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hints{}
		five, four := permit.Rate{Permits: 5, Interval: time.Second}, permit.Rate{Permits: 4, Interval: time.Second}
		reply := func(r permit.Rate, c permit.HealCause) {
			h.learn(&permit.Batch{Check: c}, &reading{Reply: permit.Reply{Rate: r, Granted: []int64{1}}}, time.Now())
		}
		steadily := func(r permit.Rate, d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				reply(r, permit.Unchecked)
			}
		}
		is := func(want surplus, why string) {
			t.Helper()
			got, rate := h.surplus()
			require.Equal(t, want, got, why)
			require.Equal(t, h.rate.Permits, rate)
		}
		is(offValue, "it knows none")
		steadily(five, time.Second)
		is(stays, "it has just begun")
		reply(five, permit.Unchecked)
		is(offValue, "all that was in use when it began has expired")
		h.healed(permit.Checked, time.Now(), false)
		is(offValue, "a heal whose reply was lost, or that left it, says nothing")
		h.healed(permit.Unchecked, time.Now(), true)
		is(offValue, "nor does one that need not add up")
		h.healed(permit.Checked, time.Now(), true)
		is(ofRelease, "one that has ended does")
		began := time.Now()
		steadily(four, 300*time.Millisecond)
		is(offValue, "the rate has been seen to change")
		h.healed(permit.Checked, began.Add(-time.Millisecond), true)
		is(offValue, "a heal that began before may be one of the rate before")
		reply(four, permit.Checked)
		is(ofRelease, "all adds up")
		time.Sleep(1200 * time.Millisecond)
		reply(four, permit.Unchecked)
		is(stays, "after a pause it may have been another one meanwhile")
		reply(five, permit.Unchecked)
		is(offValue, "and has been seen to change")
		day := permit.Rate{Permits: 5, Interval: 24 * time.Hour}
		h = &hints{}
		steadily(day, 59*time.Second)
		is(stays, "of a long interval")
		steadily(day, 2*time.Second)
		is(offValue, "for a minute")
		h.learnRate(four)
		is(ofRelease, "it was set here")
		reply(five, permit.Unchecked)
		is(offValue, "and then elsewhere")
	})
}

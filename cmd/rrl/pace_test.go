// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestAdviceOnAFastClock follows the doctor's advice on grants of a Java whose clock is an hour ahead: the first command marks
// them, the second gives their permits back, and Java is granted the rate, for which it would have waited an hour.
func TestAdviceOnAFastClock(t *testing.T) {
	for _, client := range []string{"", "c"} {
		b := newSickbed(t, client)
		b.do("hset", b.name, "interval", 300)
		b.do("del", b.key(2))
		ahead := b.rdb.Time(t.Context()).Val().Add(time.Hour).UnixMilli()
		b.do("zadd", b.key(2), ahead, "\x10java-java-java-j\x0a\x00\x00\x00")
		b.do("set", b.key(1), 0)
		granted, err := b.java()
		require.NoError(t, err)
		require.False(t, granted, "Java waits for an hour")

		list := b.findings()
		require.Equal(t, "clock", list[0].Check)
		require.Contains(t, list[0].Fix, "Redisson 3.21.0 and later")
		b.heals(list[0])
		list = b.findings() // what is left to do, for somebody who looks again
		require.Len(t, list, 1)
		require.Contains(t, list[0].Found, "of which Go has marked 1")
		require.Regexp(t, "^after .*; set the clocks by NTP: the grants are by somebody whose clock is fast$", list[0].Fix)
		b.heals(list[0])
		require.Empty(t, b.findings())
		for range 10 {
			granted, err := b.java()
			require.NoError(t, err)
			require.True(t, granted)
		}
	}
}

// heals runs the first commands of a finding, after their pause.
func (b *sickbed) heals(f advised) {
	b.Helper()
	b.script(f.Commands, true)
	if len(f.Commands) == 0 {
		time.Sleep(time.Duration(f.Then[0].AfterMS) * time.Millisecond)
		b.script(f.Then[0].Commands, true)
	}
}

// TestAdviceOnPace follows the advice on a gap with which the rate is out of reach and on a cool-down of millennia.
func TestAdviceOnPace(t *testing.T) {
	for _, client := range []string{"", "c"} {
		b := newSickbed(t, client)
		b.do("hset", b.name, "minGap", 3_000_000)
		list := b.findings()
		require.Len(t, list, 1)
		require.Equal(t, "min-gap", list[0].Check)
		b.follow(list[0], 0)
		require.Empty(t, b.findings())
		l, end := b.limiter()
		defer end()
		r := redistest.Must(l.Rate(t.Context()))(t)
		require.LessOrEqual(t, r.MinGap*time.Duration(r.Permits), r.Interval, "the rate is within reach")
		require.Positive(t, r.MinGap)

		b = newSickbed(t, client)
		b.do("hset", b.name, "coolDown", int64(95_600_000_000_000))
		list = b.findings()
		require.Len(t, list, 1)
		require.Equal(t, []any{"cool-down", doctor.Warning.String()}, []any{list[0].Check, list[0].Severity})
		b.follow(list[0], 0)
		require.Empty(t, b.findings())
		b.requireHealed("Go", false)
	}
}

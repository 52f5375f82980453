// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync/atomic"
	"time"
)

// A Period is how long a [CalendarQuota] lasts. It is [Day], [Week] or [Month].
type Period int

// The periods of the calendar.
const (
	Day Period = iota + 1
	Week
	Month
)

// String returns "day", "week" or "month".
func (p Period) String() string {
	switch p {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	}
	return "none of Day, Week and Month"
}

// A calendar says when the periods of a CalendarQuota begin. Instants are in µs.
type calendar struct {
	per  Period
	zone *time.Location
	day  int
	at   time.Duration

	last atomic.Pointer[[5]int64] // what around has returned
}

// beginning returns the first instant of the period that begins k periods after the one which begins on the local
// date of t, or later in that period.
func (c *calendar) beginning(t time.Time, k int) int64 {
	year, month, day := t.In(c.zone).Date()
	switch c.per {
	case Day:
		day += k
	case Week:
		sinceMonday := (int(t.In(c.zone).Weekday()) + 6) % 7
		day += 7*k - sinceMonday + c.day - 1
	case Month:
		last := time.Date(year, month+time.Month(k)+1, 0, 0, 0, 0, 0, time.UTC)
		year, month, day = last.Year(), last.Month(), min(c.day, last.Day())
	}
	return firstInstant(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(c.at), c.zone).UnixMicro()
}

// firstInstant returns the first instant at which clocks of a zone show wall, a date and time in UTC, or later. That is
// when they are put forward, if they never show it, and the first of two if they do so twice.
func firstInstant(wall time.Time, zone *time.Location) time.Time {
	t := wall.Add(-48 * time.Hour).In(zone)
	for {
		start, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // what Go says on the last day of a leap year that is not in the zone data
			end = t.Add(24 * time.Hour)
		}
		_, offset := t.Zone()
		first := wall.Add(-time.Duration(offset) * time.Second)
		if !start.IsZero() && first.Before(start) {
			first = start
		}
		if end.IsZero() || first.Before(end) {
			return first
		}
		t = end
	}
}

// around returns five instants at which periods begin. The instant now is in the second of the four periods between
// them.
func (c *calendar) around(now int64) [5]int64 {
	if last := c.last.Load(); last != nil && last[1] <= now && now < last[2] {
		return *last
	}
	t := time.UnixMicro(now)
	var begins [5]int64
	i := 0
	for k := -3; i < len(begins); k++ {
		begin := c.beginning(t, k)
		switch {
		case i > 0 && begin == begins[i-1]: // the zone has left out a day
		case i == 2 && begin <= now:
			begins[0], begins[1] = begins[1], begin
		default:
			begins[i] = begin
			i++
		}
	}
	c.last.Store(&begins)
	return begins
}

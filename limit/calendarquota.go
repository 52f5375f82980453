// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A CalendarQuota counts the permits that are taken in a day, a week or a month of the calendar, as platforms do
// that sell calls by the month or give them away by the day. In a [Shared] the clock of Redis decides which
// period it is.
//
//	// Gemini's requests of a day: https://ai.google.dev/gemini-api/docs/rate-limits
//	pacific, err := time.LoadLocation("America/Los_Angeles")
//	if err != nil {
//		return err
//	}
//	quota, err := limit.NewShared(rdb, "gemini", limit.CalendarQuota{Permits: 250, Per: limit.Day, Location: pacific})
//	if err != nil {
//		return err
//	}
//	result, err := quota.Allow(ctx, 1)
//	if err != nil {
//		return err
//	}
//	fmt.Println(result.Granted, result.Available)
//
// A period begins at the first instant at which the clocks of Location show At, or later, on its day. So a day in
// which clocks are put forward has 23 hours and one in which they are put back 25, one that has no midnight begins when its
// clocks do, and of two midnights the first counts. Processes need the same rules for a zone: where their zone data
// disagree about an instant, a quota may begin anew at both.
//
// Bound: Permits in each period. A window that spans the edge of two can hold twice as many, in as little as two
// microseconds.
//
// Unlike those of the other algorithms, the keys of a Shared do not have Permits in them. What was taken counts
// on with another number: after more was bought, processes with the new number go on, and those that have the old
// one follow when they are deployed. [Shared.Reset] begins a quota anew for all of them.
//
// A period does not begin a second time if the clock of Redis is put back over its beginning: what it has granted counts until it ends, or
// until the next period ends if that is sooner.
//
// It does not promise an even flow: put it beside another limiter. Its state is an end and a count.
type CalendarQuota struct {
	// Permits is how many there are in a period: 1 to 2^32-1.
	Permits int64
	// Per is [Day], [Week] or [Month].
	Per Period
	// Location is the platform's time zone. It must not be nil, which is what time.LoadLocation returns where
	// the zone data are missing, nor time.Local, which is another one on another machine. Two that differ have quotas of their
	// own, and of a time.FixedZone that is its offset and not its name. This package has no zone
	// data: a program that may run without those of its system imports time/tzdata.
	Location *time.Location
	// Day is on which day a period begins: of a month 1 to 31, or its last day if it is shorter; of a week 1 for Monday to
	// 7 for Sunday. The default is 1. It must be 0 for a Day.
	Day int
	// At is by how much a period begins after midnight by the clocks of Location: whole seconds, less than a day.
	At time.Duration
}

var calendarQuotaScript = calls.Load(scriptFiles, "calendar_quota", 1, 6)

func (a CalendarQuota) calendar() *calendar {
	return &calendar{per: a.Per, zone: a.Location, day: max(a.Day, 1), at: a.At}
}

// shortestPeriod is how long a period is at least, where clocks are put forward by four hours at most.
func (a CalendarQuota) shortestPeriod() time.Duration {
	days := map[Period]time.Duration{Day: 1, Week: 7, Month: 28}[a.Per]
	return days*24*time.Hour - 4*time.Hour
}

// Bound implements [Algorithm]. It does not hold where a zone leaves out a day, as some have done once that moved to
// the other side of the date line.
func (a CalendarQuota) bound(window time.Duration, _ int64) int64 {
	switch w := window.Microseconds(); {
	case w < 1:
		return 0
	case w == 1:
		return a.Permits
	default:
		return times(a.Permits, (w-2)/a.shortestPeriod().Microseconds()+2)
	}
}

func (a CalendarQuota) check() error {
	lastDay := map[Period]int{Day: 0, Week: 7, Month: 31}
	switch _, ok := lastDay[a.Per]; {
	case a.Permits < 1 || a.Permits > calls.MaxPermits:
		return calls.Invalid("CalendarQuota.Permits: %d is not in 1..%d", a.Permits, int64(calls.MaxPermits))
	case !ok:
		return calls.Invalid("CalendarQuota.Per: %d is none of Day, Week and Month", int(a.Per))
	case a.Location == nil:
		return calls.Invalid("CalendarQuota.Location: it is nil; time.LoadLocation finds a zone, with the zone data of the system or those of time/tzdata")
	case a.Location == time.Local:
		return calls.Invalid("CalendarQuota.Location: it is time.Local, which is not the same on all machines")
	case a.Day < 0 || a.Day > lastDay[a.Per]:
		return calls.Invalid("CalendarQuota.Day: %d is not in 0..%d, for a %v", a.Day, lastDay[a.Per], a.Per)
	case a.At < 0 || a.At >= 24*time.Hour || a.At%time.Second != 0:
		return calls.Invalid("CalendarQuota.At: %v is no whole number of seconds in 0s..23h59m59s", a.At)
	}
	return nil
}

func (a CalendarQuota) model() calls.Model {
	c := a.calendar()
	at := func(now int64) []any {
		b := c.around(now)
		return []any{a.Permits, fmt.Sprintf("%d %d %d %d %d", b[0], b[1], b[2], b[3], b[4])}
	}
	return calls.Model{
		Script: calendarQuotaScript, Parameters: at(time.Now().UnixMicro()), ParametersAt: at, Largest: a.Permits,
		Identity: []any{a.Per, zoneOf(a.Location), max(a.Day, 1), int64(a.At / time.Second)},
		Idle:     func() calls.State { return &calendarQuota{permits: a.Permits, calendar: c} },
		Stored: func(text string) (calls.State, bool) {
			v, e, ok := numbers(text, 2)
			return &calendarQuota{permits: a.Permits, calendar: c, end: v[0], count: v[1], epoch: e}, ok
		},
	}
}

// zoneOf returns what tells a time zone from others: its name, or of one whose clocks are never changed by how much they differ from
// UTC, since anybody can give a time.FixedZone the name of another.
func zoneOf(l *time.Location) string {
	t := time.Unix(0, 0).In(l)
	start, end := t.ZoneBounds()
	_, offset := t.Zone()
	switch {
	case !start.IsZero() || !end.IsZero():
		return l.String()
	case offset == 0:
		return "UTC"
	}
	return t.Format("UTC-070000")
}

type calendarQuota struct {
	permits  int64
	calendar *calendar
	end      int64 // until when count permits count: that of the period in which they were taken
	count    int64
	epoch    calls.Epoch
}

// seen returns s as of now, for the call of that id, and whether it counts for less long than it did. When the clock was put back over the
// beginning of a period, the count stays that of this period: with another end the period would begin a second time. But it
// ends no later than the period after the current one, which is still a whole period from now.
func (s calendarQuota) seen(now int64, id calls.Epoch) (next calendarQuota, back bool) {
	begins := s.calendar.around(now)
	if now >= s.end {
		s.end, s.count = begins[2], 0
	}
	if back = s.end > begins[3]; back {
		s.end = begins[3]
	}
	if back || s.count == 0 {
		s.epoch = id
	}
	return s, back
}

func (s *calendarQuota) Settle(now int64, id calls.Epoch, x *calls.Settlement) {
	next, _ := s.seen(now, id)
	if x.By > 0 || x.Mark.Of(next.epoch) {
		next.count = min(max(0, next.count+x.By), calls.MaxPermits)
	}
	*s = next
}

func (s *calendarQuota) MarkOf(e calls.Epoch, _, _ int64) calls.Mark {
	return calls.Mark{Epoch: e}
}

func (s *calendarQuota) Take(q calls.Demand, id calls.Epoch) calls.Decision {
	next, back := s.seen(q.Now, id)
	d := calls.Decision{Granted: next.count+q.N <= s.permits}
	if !d.Granted {
		d.Wait = next.end - q.Now
	} else if q.Spend {
		next.count += q.N
		d.Mark = calls.Mark{Epoch: next.epoch}
	}
	d.Remaining = max(0, s.permits-next.count)
	if next.count > 0 {
		d.Reset = next.end - q.Now
	}
	if back || q.Spend && d.Granted {
		*s = next
	}
	return d
}

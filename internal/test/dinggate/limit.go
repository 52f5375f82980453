// SPDX-License-Identifier: Apache-2.0

package dinggate

import "time"

// A Dimension is one of the platform's limits.
type Dimension string

// The dimensions.
const (
	DimAppAPI  Dimension = "app-api"  // an organisation's own app, and an API
	DimCorpAPI Dimension = "corp-api" // an ISV's app, an organisation that uses it, and an API
	DimAPI     Dimension = "api"      // an API, all callers together
	DimIP      Dimension = "ip"       // an egress IP, all APIs together
	DimMonth   Dimension = "month"    // an organisation and a calendar month, in Asia/Shanghai
	DimRobot   Dimension = "robot"    // a custom robot
)

// A Limit is how many calls a window may hold, and what becomes of the caller whose call is one more.
type Limit struct {
	// Calls that any window may hold; 0 for no limit.
	Calls int
	// Window is the length of the window; 0 for the calendar month.
	Window time.Duration
	// Penalty is for how long every call is refused, beginning with the one over the limit. The one at
	// which it has passed is served. A month's ends with the month.
	Penalty time.Duration
}

// Limits are those of all dimensions. To have a demo wait for seconds instead of minutes, shorten the
// Penalty of a Limit and leave Calls and Window: a window that shrinks with the penalty would be
// another rate, and a rate that is kept by more calls would be another load.
type Limits map[Dimension]*Limit

// Standard is what the platform grants an organisation of the standard edition. It does not say how
// many calls of an API it takes from all tenants together, so that API is no limit here.
//
// Sources: the pages at the package for ip and app-api (and that one
// should sleep 1 s), https://open.dingtalk.com/document/development/server-api-error-codes-1 for corp-api
// (90019), and again those at the package for robot.
func Standard() Limits {
	return Limits{
		DimAppAPI:  {Calls: 20, Window: time.Second, Penalty: time.Second},
		DimCorpAPI: {Calls: 40, Window: time.Second, Penalty: time.Second},
		DimAPI:     {Window: time.Second, Penalty: time.Second},
		DimIP:      {Calls: 10_000, Window: 20 * time.Second, Penalty: 5 * time.Minute},
		DimMonth:   {Calls: 5000},
		DimRobot:   {Calls: 20, Window: time.Minute, Penalty: 10 * time.Minute},
	}
}

// of returns the limit of a dimension, which has none if l does not say one.
func (l Limits) of(d Dimension) (limit Limit) {
	if l[d] != nil {
		limit = *l[d]
	}
	if d == DimMonth {
		limit.Window = 0
	}
	return limit
}

// shanghai is Asia/Shanghai, which has had no daylight saving since 1991: no zone database is needed.
var shanghai = time.FixedZone("Asia/Shanghai", 8*60*60)

// A meter counts the calls of one key of a dimension. The Gate's lock protects it.
type meter struct {
	dimension Dimension
	key       string
	limit     Limit

	inWindow queue     // what counts against the limit
	month    time.Time // its beginning
	inMonth  int
	until    time.Time // of the penalty
	penalty  *Penalty

	Counts
	arrived queue // all calls, for worst
	worst   int
}

// punished says whether a penalty is on.
func (m *meter) punished(now time.Time) bool { return now.Before(m.until) }

// arrive counts one call and says whether it is admitted.
func (m *meter) arrive(now time.Time) bool {
	m.look(now)
	if m.punished(now) {
		m.refused(true)
		m.penalty.Calls++
		m.penalty.Last = now.Sub(m.penalty.Start)
		return false
	}
	if m.over(now) {
		m.refused(false)
		m.punish(now, m.end(now), false)
		return false
	}
	m.Calls++
	m.Admitted++
	return true
}

// over counts the call against the limit and says whether it is one too many. A call of exactly one
// window ago counts no more.
func (m *meter) over(now time.Time) bool {
	if m.limit.Calls <= 0 {
		return false
	}
	if m.limit.Window > 0 {
		m.inWindow.push(now)
		m.inWindow.dropUntil(now.Add(-m.limit.Window))
		return m.inWindow.len() > m.limit.Calls
	}
	if month := monthOf(now); !month.Equal(m.month) {
		m.month, m.inMonth = month, 0
	}
	m.inMonth++
	m.worst = max(m.worst, m.inMonth)
	return m.inMonth > m.limit.Calls
}

// monthOf returns the beginning of the calendar month.
func monthOf(now time.Time) time.Time {
	year, month, _ := now.In(shanghai).Date()
	return time.Date(year, month, 1, 0, 0, 0, 0, shanghai)
}

// end is when a penalty ends that begins now.
func (m *meter) end(now time.Time) time.Time {
	if m.limit.Window > 0 {
		return now.Add(m.limit.Penalty)
	}
	return monthOf(now).AddDate(0, 1, 0)
}

// punish starts a penalty and forgets what was counted.
func (m *meter) punish(now, until time.Time, outside bool) {
	m.until = until
	m.inWindow, m.inMonth = queue{}, 0
	m.penalty = &Penalty{Dimension: m.dimension, Key: m.key, Start: now, Until: until, Outside: outside}
	m.Penalties++
}

// look keeps the most calls that any sliding window held, admitted or not.
func (m *meter) look(now time.Time) {
	if m.limit.Window == 0 {
		return // a month is looked at where it is counted
	}
	m.arrived.push(now)
	m.arrived.dropUntil(now.Add(-m.limit.Window))
	m.worst = max(m.worst, m.arrived.len())
}

// A queue holds times in their order.
type queue struct {
	times []time.Time
	first int
}

func (q *queue) len() int         { return len(q.times) - q.first }
func (q *queue) push(t time.Time) { q.times = append(q.times, t) }

// dropUntil forgets the times up to and including t.
func (q *queue) dropUntil(t time.Time) {
	for q.first < len(q.times) && !q.times[q.first].After(t) {
		q.first++
	}
	if q.first > len(q.times)/2 {
		q.times = q.times[:copy(q.times, q.times[q.first:])]
		q.first = 0
	}
}

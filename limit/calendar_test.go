// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func zone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return z
}

// zones are some with clocks that are put forward or back in all ways there are.
var zones = []*time.Location{zone("America/New_York"), zone("Asia/Shanghai"), zone("America/Sao_Paulo"), zone("Africa/Cairo"),
	zone("America/Havana"), zone("Australia/Lord_Howe"), zone("Antarctica/Troll"), zone("Pacific/Apia"), time.UTC}

// TestPeriods: the expected instants are those that `date` of GNU coreutils and zdump tell for these zones.
func TestPeriods(t *testing.T) {
	for name, c := range map[string]struct {
		q                CalendarQuota
		now, begins, end string
	}{
		"no daylight saving":             {q: CalendarQuota{Per: Day, Location: zone("Asia/Shanghai")}, now: "2026-02-28T15:59:59Z", begins: "2026-02-27T16:00:00Z", end: "2026-02-28T16:00:00Z"},
		"its last instant is the next's": {q: CalendarQuota{Per: Day, Location: zone("Asia/Shanghai")}, now: "2026-02-28T16:00:00Z", begins: "2026-02-28T16:00:00Z", end: "2026-03-01T16:00:00Z"},
		"23 hours":                       {q: CalendarQuota{Per: Day, Location: zone("America/Los_Angeles")}, now: "2026-03-08T20:00:00Z", begins: "2026-03-08T08:00:00Z", end: "2026-03-09T07:00:00Z"},
		"25 hours":                       {q: CalendarQuota{Per: Day, Location: zone("America/Los_Angeles")}, now: "2026-11-01T07:00:00Z", begins: "2026-11-01T07:00:00Z", end: "2026-11-02T08:00:00Z"},
		"no midnight, São Paulo":         {q: CalendarQuota{Per: Day, Location: zone("America/Sao_Paulo")}, now: "2018-11-04T03:00:00Z", begins: "2018-11-04T03:00:00Z", end: "2018-11-05T02:00:00Z"},
		"before it":                      {q: CalendarQuota{Per: Day, Location: zone("America/Sao_Paulo")}, now: "2018-11-04T02:59:59Z", begins: "2018-11-03T03:00:00Z", end: "2018-11-04T03:00:00Z"},
		"23:00 twice, São Paulo":         {q: CalendarQuota{Per: Day, Location: zone("America/Sao_Paulo")}, now: "2018-02-18T02:30:00Z", begins: "2018-02-17T02:00:00Z", end: "2018-02-18T03:00:00Z"},
		"no midnight, Cairo":             {q: CalendarQuota{Per: Day, Location: zone("Africa/Cairo")}, now: "2026-04-23T22:00:00Z", begins: "2026-04-23T22:00:00Z", end: "2026-04-24T21:00:00Z"},
		"midnight twice, Havana":         {q: CalendarQuota{Per: Day, Location: zone("America/Havana")}, now: "2026-11-01T05:30:00Z", begins: "2026-11-01T04:00:00Z", end: "2026-11-02T05:00:00Z"},
		"half an hour, Lord Howe":        {q: CalendarQuota{Per: Day, Location: zone("Australia/Lord_Howe")}, now: "2026-10-03T14:00:00Z", begins: "2026-10-03T13:30:00Z", end: "2026-10-04T13:00:00Z"},
		"a day left out, Apia":           {q: CalendarQuota{Per: Day, Location: zone("Pacific/Apia")}, now: "2011-12-30T10:00:00Z", begins: "2011-12-30T10:00:00Z", end: "2011-12-31T10:00:00Z"},
		"at eight":                       {q: CalendarQuota{Per: Day, Location: zone("Asia/Shanghai"), At: 8 * time.Hour}, now: "2026-03-01T00:00:00Z", begins: "2026-03-01T00:00:00Z", end: "2026-03-02T00:00:00Z"},
		"before eight":                   {q: CalendarQuota{Per: Day, Location: zone("Asia/Shanghai"), At: 8 * time.Hour}, now: "2026-02-28T23:59:59Z", begins: "2026-02-28T00:00:00Z", end: "2026-03-01T00:00:00Z"},
		"at half past two, left out":     {q: CalendarQuota{Per: Day, Location: zone("Europe/Berlin"), At: 150 * time.Minute}, now: "2026-03-29T01:00:00Z", begins: "2026-03-29T01:00:00Z", end: "2026-03-30T00:30:00Z"},
		"at half past two, twice":        {q: CalendarQuota{Per: Day, Location: zone("Europe/Berlin"), At: 150 * time.Minute}, now: "2026-10-25T01:30:00Z", begins: "2026-10-25T00:30:00Z", end: "2026-10-26T01:30:00Z"},
		"week":                           {q: CalendarQuota{Per: Week, Location: time.UTC}, now: "2026-03-01T12:00:00Z", begins: "2026-02-23T00:00:00Z", end: "2026-03-02T00:00:00Z"},
		"week from Sunday, 167 hours":    {q: CalendarQuota{Per: Week, Location: zone("Europe/Berlin"), Day: 7}, now: "2026-03-29T12:00:00Z", begins: "2026-03-28T23:00:00Z", end: "2026-04-04T22:00:00Z"},
		"month":                          {q: CalendarQuota{Per: Month, Location: zone("Asia/Shanghai")}, now: "2026-11-24T23:00:00Z", begins: "2026-10-31T16:00:00Z", end: "2026-11-30T16:00:00Z"},
		"leap month":                     {q: CalendarQuota{Per: Month, Location: time.UTC}, now: "2028-02-29T23:59:59Z", begins: "2028-02-01T00:00:00Z", end: "2028-03-01T00:00:00Z"},
		"billing day":                    {q: CalendarQuota{Per: Month, Location: time.UTC, Day: 15}, now: "2026-01-14T23:59:59Z", begins: "2025-12-15T00:00:00Z", end: "2026-01-15T00:00:00Z"},
		"billing day 31, in February":    {q: CalendarQuota{Per: Month, Location: time.UTC, Day: 31}, now: "2026-02-28T00:00:00Z", begins: "2026-02-28T00:00:00Z", end: "2026-03-31T00:00:00Z"},
		"billing day 31, on the 30th":    {q: CalendarQuota{Per: Month, Location: time.UTC, Day: 31}, now: "2026-05-30T12:00:00Z", begins: "2026-04-30T00:00:00Z", end: "2026-05-31T00:00:00Z"},
	} {
		now := redistest.Must(time.Parse(time.RFC3339, c.now))(t)
		begins := c.q.calendar().around(now.UnixMicro())
		at := func(i int) string { return time.UnixMicro(begins[i]).UTC().Format(time.RFC3339) }
		require.Equal(t, []string{c.begins, c.end}, []string{at(1), at(2)}, name)
		require.Equal(t, begins[1], c.q.calendar().around(begins[0])[2], "%s: the period before", name)
		require.Equal(t, begins[2], c.q.calendar().around(begins[3] - 1)[1], "%s: the period after", name)
	}
}

// TestPeriodsFitTogether: every instant is in the second period, of about the right length, and a period ends when the next
// one begins.
func TestPeriodsFitTogether(t *testing.T) {
	redistest.NoServer(t)
	random := proptest.Rand(t)
	for range redistest.Cases(20_000, 500_000) {
		q := CalendarQuota{1, Period(1 + random.IntN(3)), zones[random.IntN(len(zones))], 0, time.Duration(random.IntN(86_400)) * time.Second}
		q.Day = map[Period]int{Day: 0, Week: random.IntN(8), Month: random.IntN(32)}[q.Per]
		require.NoError(t, q.check())
		now := 1_000_000_000_000_000 + random.Int64N(2_000_000_000_000_000) // 2001 to 2065
		begins := q.calendar().around(now)
		require.True(t, begins[0] < begins[1] && begins[1] <= now && now < begins[2] && begins[2] < begins[3], "%+v at %d: %v", q, now, begins)
		require.Equal(t, begins[2], q.calendar().around(begins[2])[1], "%+v at %d", q, now)
		if length := micros(begins[2] - begins[1]); q.Location != zones[7] {
			require.GreaterOrEqual(t, length, q.shortestPeriod(), "%+v at %d", q, now)
		}
	}
}

func TestCalendarQuotaChecksItsFields(t *testing.T) {
	good := CalendarQuota{Permits: 1, Per: Month, Location: time.UTC, Day: 31, At: 8 * time.Hour}
	redistest.Must(NewLocal(good))(t)
	for field, spoil := range map[string]func(q *CalendarQuota){
		"Permits":                      func(q *CalendarQuota) { q.Permits = 0 },
		"Per":                          func(q *CalendarQuota) { q.Per = 0 },
		"Location: it is nil":          func(q *CalendarQuota) { q.Location, _ = time.LoadLocation("Asia/Schanghai") },
		"Location: it is time.Local":   func(q *CalendarQuota) { q.Location = time.Local },
		"Day: 32":                      func(q *CalendarQuota) { q.Day = 32 },
		"Day: 8":                       func(q *CalendarQuota) { q.Per, q.Day = Week, 8 },
		"Day: 1 is not in 0..0":        func(q *CalendarQuota) { q.Per, q.Day = Day, 1 },
		"At: 24h0m0s":                  func(q *CalendarQuota) { q.At = 24 * time.Hour },
		"At: 1ms is no whole number":   func(q *CalendarQuota) { q.At = time.Millisecond },
		"At: -1s is no whole number":   func(q *CalendarQuota) { q.At = -time.Second },
		"Permits: 4294967296 is not":   func(q *CalendarQuota) { q.Permits = 1 << 32 },
		"Per: 4 is none of Day, Week ": func(q *CalendarQuota) { q.Per = 4 },
	} {
		q := good
		spoil(&q)
		_, err := NewLocal(q)
		require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
		require.ErrorContains(t, err, "CalendarQuota."+field)
	}
}

// TestRedisDecidesThePeriod: a process whose clock is years off goes by that of Redis, with one more call, and is told the
// wait to its midnight.
func TestRedisDecidesThePeriod(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		a := CalendarQuota{Permits: 5, Per: Day, Location: zone("America/Los_Angeles")}
		redisNow := time.Date(2026, 3, 8, 9, 0, 0, 0, time.UTC) // 01:00 of a day of 23 hours
		l := redistest.Must(NewShared(rdb, redistest.Key(t), a, WithClock(func() time.Time { return redisNow })))(t)
		require.NoError(t, rdb.ScriptLoad(t.Context(), a.model().Script.Src).Err())
		h := &holder{}
		rdb.AddHook(h)
		for i, step := range []struct {
			at    time.Time
			n     int64
			want  ratelimiter.Result
			calls int
		}{
			{redisNow, 5, ratelimiter.Result{Granted: true, Reset: 22 * time.Hour}, 2},
			{redisNow.Add(2 * time.Hour), 1, ratelimiter.Result{Wait: 20 * time.Hour, Reset: 20 * time.Hour}, 1},
			{redisNow.Add(22*time.Hour - time.Microsecond), 1, ratelimiter.Result{Wait: time.Microsecond, Reset: time.Microsecond}, 1},
			{redisNow.Add(22 * time.Hour), 1, ratelimiter.Result{Granted: true, Available: 4, Reset: 24 * time.Hour}, 1},
			{redisNow.Add(46 * time.Hour), 1, ratelimiter.Result{Granted: true, Available: 4, Reset: 24 * time.Hour}, 2},
			{redisNow.Add(-30 * 24 * time.Hour), 1, ratelimiter.Result{Granted: true, Available: 3, Reset: 47 * time.Hour}, 2}, // put back: it keeps its count, which is forgotten tomorrow
		} {
			redisNow = step.at
			before := h.calls()
			got := redistest.Must(l.Allow(t.Context(), step.n))(t)
			require.Equal(t, step.want, got, "step %d", i)
			require.Equal(t, step.calls, h.calls()-before, "step %d", i)
		}
	})
}

// TestQuotaAfterItsClockWasPutBack: a clock that is put back over the beginning of a period does not begin it a second time. What it has granted counts
// until it ends, or until the end of the next period if that is sooner, so nobody waits longer, whatever end is stored. Script and Go
// say the same.
func TestQuotaAfterItsClockWasPutBack(t *testing.T) {
	const ms = time.Millisecond
	midnight := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return midnight.AddDate(0, 0, n) }
	type step struct {
		at      time.Time
		n       int64
		granted int64         // of n, as far as there is room
		wait    time.Duration // for one more; 0 if there is room
	}
	for name, c := range map[string]struct {
		q     CalendarQuota
		steps []step
	}{
		"by 100 ms": {CalendarQuota{Permits: 10, Per: Month, Location: time.UTC}, []step{
			{midnight.Add(-20 * ms), 10, 10, 20 * ms},
			{midnight.Add(6 * ms), 10, 10, 31*24*time.Hour - 6*ms},
			{midnight.Add(-94 * ms), 10, 0, 31*24*time.Hour + 94*ms},
			{midnight.Add(12 * ms), 10, 0, 31*24*time.Hour - 12*ms},
			{midnight.AddDate(0, 1, 0), 10, 10, 31 * 24 * time.Hour},
		}},
		"some are left": {CalendarQuota{Permits: 10, Per: Day, Location: time.UTC}, []step{
			{midnight.Add(-20 * ms), 10, 10, 20 * ms},
			{midnight.Add(6 * ms), 4, 4, 0},
			{midnight.Add(-94 * ms), 3, 3, 0},
			{midnight.Add(12 * ms), 10, 3, 24*time.Hour - 12*ms},
			{day(1), 10, 10, 24 * time.Hour},
		}},
		"again and again": {CalendarQuota{Permits: 10, Per: Day, Location: time.UTC}, []step{
			{midnight.Add(ms), 10, 10, 24*time.Hour - ms},
			{midnight.Add(-ms), 10, 0, 24*time.Hour + ms},
			{midnight.Add(ms), 10, 0, 24*time.Hour - ms},
			{midnight.Add(-ms), 10, 0, 24*time.Hour + ms},
			{midnight.Add(ms), 10, 0, 24*time.Hour - ms},
			{day(1), 10, 10, 24 * time.Hour},
		}},
		"by 30 days, to just before a midnight": {CalendarQuota{Permits: 10, Per: Day, Location: time.UTC}, []step{
			{midnight.Add(-ms), 10, 10, ms},
			{midnight, 10, 10, 24 * time.Hour},
			{day(-30).Add(-ms), 10, 0, 24*time.Hour + ms},
			{day(-30), 10, 0, 24 * time.Hour},
			{day(-29), 10, 10, 24 * time.Hour},
		}},
		"by 300 years, and the call that wants less is granted": {CalendarQuota{Permits: 10, Per: Week, Location: time.UTC}, []step{
			{time.Date(2230, 1, 4, 0, 0, 0, 0, time.UTC), 8, 8, 0}, // a Monday
			{time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), 1, 1, 0},
			{time.Date(2026, 12, 6, 23, 0, 0, 0, time.UTC), 10, 1, 7*24*time.Hour + time.Hour},
			{time.Date(2026, 12, 14, 0, 0, 0, 0, time.UTC), 10, 10, 7 * 24 * time.Hour},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, now := redistest.Client(t), time.Time{}
			l := redistest.Must(NewShared(rdb, redistest.Key(t), c.q, WithClock(func() time.Time { return now }), WithoutCachedRejections()))(t)
			state := c.q.model().Idle()
			for i, step := range c.steps {
				now = step.at
				granted, _, err := l.AllowAtMost(t.Context(), step.n)
				require.NoError(t, err)
				require.Equal(t, step.granted, granted, "step %d", i)
				r := redistest.Must(l.Peek(t.Context(), 1))(t)
				require.Equal(t, step.wait, r.Wait, "step %d", i)

				of := int64(0)
				for range step.n {
					if state.Take(calls.Demand{Now: now.UnixMicro(), N: 1, Spend: true}, calls.Epoch{}).Granted {
						of++
					}
				}
				require.Equal(t, step.granted, of, "step %d, in Go", i)
				require.Equal(t, step.wait, micros(state.Take(calls.Demand{Now: now.UnixMicro(), N: 1}, calls.Epoch{}).Wait), "step %d, in Go", i)
			}
		})
	}
}

// TestQuotaCountsOn: with another number, what was taken still counts, and Reset begins anew.
func TestQuotaCountsOn(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		quota := func(permits int64) *Shared {
			l := redistest.Must(NewShared(rdb, name, CalendarQuota{Permits: permits, Per: Month, Location: zone("Asia/Shanghai")}))(t)
			return l
		}
		allow := func(l *Shared, n int64) ratelimiter.Result {
			r := redistest.Must(l.Allow(t.Context(), n))(t)
			return ratelimiter.Result{Granted: r.Granted, Available: r.Available}
		}
		old := quota(5)
		require.Equal(t, ratelimiter.Result{Granted: true}, allow(old, 5))
		bought, less := quota(8), quota(3)
		require.Equal(t, ratelimiter.Result{}, allow(less, 1), "more was taken than there is now")
		require.Equal(t, ratelimiter.Result{Granted: true, Available: 1}, allow(bought, 2))
		require.Equal(t, ratelimiter.Result{}, allow(old, 1))
		require.NoError(t, old.Reset(t.Context()))
		require.Equal(t, ratelimiter.Result{Granted: true, Available: 4}, allow(old, 1), "and its rejection is no longer known")
		time.Sleep(calls.KnownFor)
		require.Equal(t, ratelimiter.Result{Granted: true}, allow(bought, 7))
	})
}

// TestZonesHaveTheirOwnQuotas checks that two zones share a quota only if their clocks show the same, whatever they are called.
func TestZonesHaveTheirOwnQuotas(t *testing.T) {
	china, central := time.FixedZone("CST", 8*60*60), time.FixedZone("CST", -6*60*60)
	key := func(l *time.Location, per Period) string {
		s := redistest.Must(NewShared(&redis.Client{}, "x", CalendarQuota{Permits: 5, Per: per, Location: l}))(t)
		return s.Keys()[0]
	}
	for _, per := range []Period{Day, Week, Month} {
		require.NotEqual(t, key(china, per), key(central, per))
		require.NotEqual(t, key(china, per), key(time.FixedZone("CST", 8*60*60+30*60), per))
		require.NotEqual(t, key(china, per), key(time.FixedZone("CST", 8*60*60+1), per))
		require.NotEqual(t, key(time.FixedZone("America/New_York", -5*60*60), per), key(zone("America/New_York"), per))
		require.NotEqual(t, key(zone("America/New_York"), per), key(zone("America/Sao_Paulo"), per))
		require.Equal(t, key(china, per), key(time.FixedZone("China", 8*60*60), per))
		require.Equal(t, key(time.UTC, per), key(time.FixedZone("GMT", 0), per))
	}
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		for _, l := range []*time.Location{china, central} {
			s := redistest.Must(NewShared(rdb, name, CalendarQuota{Permits: 1, Per: Month, Location: l}))(t)
			require.True(t, redistest.Must(s.Allow(t.Context(), 1))(t).Granted)
		}
	})
}

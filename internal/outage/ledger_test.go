// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func overall(permits int64, interval time.Duration) permit.Rate {
	return permit.Rate{Permits: permits, Interval: interval}
}

// A model is an exact sliding log of the grants of a ledger.
type model struct {
	quota    int64
	interval time.Duration
	since    time.Time // the quota begins one interval later
	cool     time.Time
	grants   []modelGrant
}

type modelGrant struct {
	at      time.Time
	permits int64
	staged  bool
}

func (m *model) used(now time.Time) (n int64) {
	for _, g := range m.grants {
		if g.at.After(now.Add(-m.interval)) {
			n += g.permits
		}
	}
	return n
}

func (m *model) when(now time.Time, permits int64) (at time.Time) {
	at = m.since.Add(m.interval)
	if m.cool.After(at) {
		at = m.cool
	}
	short := m.used(now) + permits - m.quota
	for _, g := range m.grants {
		if back := g.at.Add(m.interval); short > 0 && back.After(now) {
			if short -= g.permits; back.After(at) {
				at = back
			}
		}
	}
	return at
}

// worst returns the largest number of permits in any window.
func (m *model) worst() int64 {
	var all grantlog.Grants
	for _, g := range m.grants {
		all = append(all, grantlog.At(g.at, g.permits))
	}
	return all.Most(m.interval)
}

// TestLedgerIsASlidingLog checks a ledger against an exact sliding log: When returns the very instant at which
// permits can be granted, and Stage returns exactly what was granted.
func TestLedgerIsASlidingLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken int64
		proptest.Check(t, func(rt *rapid.T) {
			nodes := rapid.IntRange(1, 4).Draw(rt, "nodes")
			rate := overall(rapid.Int64Range(int64(nodes), 40).Draw(rt, "rate"), 4*time.Second)
			m := &model{quota: rate.Permits / int64(nodes), interval: rate.Interval, since: time.Now()}
			p := &Policy{Kind: LocalQuota, Rate: rate, Nodes: nodes}
			s := NewLedger(permit.Rate{})
			if rapid.Bool().Draw(rt, "known") {
				s, p.Rate = NewLedger(rate), overall(1000, time.Hour) // the rate known from the server takes precedence
			}
			id := uint64(0)
			newID := func() (n permit.ID) {
				id++
				binary.LittleEndian.PutUint64(n[:], id)
				return n
			}
			staged := 0
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				now := time.Now()
				switch op := rapid.IntRange(0, 19).Draw(rt, "op"); {
				case op < 8:
					n := rapid.Int64Range(1, m.quota).Draw(rt, "permits")
					at, left, err := s.When(p, n, now, m.since)
					require.NoError(rt, err)
					want := m.when(now, n)
					if want.After(now) {
						require.Equal(rt, want, at)
					} else {
						require.False(rt, at.After(now))
					}
					if m.since.Add(m.interval).After(now) {
						require.Zero(rt, left)
					} else {
						require.Equal(rt, m.quota-m.used(now), left)
					}
					if at.After(now) {
						break
					}
					s.Take(p, n, now)
					m.grants = append(m.grants, modelGrant{now, n, false})
					taken += n
					if rapid.IntRange(0, 4).Draw(rt, "undo") == 0 {
						s.Undo(n, now)
						m.grants = m.grants[:len(m.grants)-1]
					}
				case op == 8:
					_, _, err := s.When(p, m.quota+1, now, m.since)
					require.ErrorContains(rt, err, "of a local quota of")
				case op == 9:
					m.cool = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "cool")) * time.Millisecond)
					s.NoteCoolDown(time.Time{})
					s.NoteCoolDown(m.cool)
				case op == 10: // everything that counts and was not staged before is pending
					before := s.Pending()
					var want int64
					for i := range m.grants {
						if g := &m.grants[i]; !g.staged && g.at.After(now.Add(-m.interval)) {
							want += g.permits
							g.staged = true
						}
					}
					require.Equal(rt, want > 0 || before > 0 && s.hasPending(now), s.hasPending(now))
					s.setPending(nil) // what was staged before has been reconciled
					var sum int64
					pending := s.stage(now, newID)
					require.LessOrEqual(rt, len(pending), maxPending+1)
					for i, d := range pending {
						sum += d.Permits
						require.False(rt, d.At.After(now))
						require.NotZero(rt, d.ID)
						require.True(rt, i == 0 || pending[i-1].ID != d.ID && d.At.After(pending[i-1].At))
					}
					require.Equal(rt, want, sum)
					staged++
				default:
					time.Sleep(time.Duration(rapid.IntRange(1, 300).Draw(rt, "sleep")) * 5 * time.Millisecond)
				}
			}
			require.LessOrEqual(rt, m.worst(), m.quota)
			time.Sleep(m.interval)
			require.True(rt, s.Empty(time.Now()))
			require.False(rt, s.hasPending(time.Now()), "it no longer counts")
		})
		require.Positive(t, taken)
	})
}

// TestUndo checks that Undo gives back permits that were taken at the given instant, also if several callers took
// permits then, and gives back none that are already staged.
func TestUndo(t *testing.T) {
	s, p := NewLedger(overall(10, time.Second)), &Policy{Kind: LocalQuota, Nodes: 1}
	now := time.Now()
	s.Take(p, 3, now)
	s.Take(p, 2, now)
	s.Undo(3, now)
	require.EqualValues(t, 2, s.used)
	s.Undo(3, now.Add(time.Millisecond))
	require.EqualValues(t, 2, s.used, "not of that instant")
	s.grants[0].staged = true
	s.Undo(2, now)
	require.EqualValues(t, 2, s.used, "the server is being told of it")

	s = NewLedger(overall(10, time.Second))
	_, _, _ = s.When(p, 3, now, now)
	s.Take(p, 3, now)
	s.Undo(3, now)
	require.False(t, s.hasPending(now), "the server is not told of nothing")
	require.True(t, s.Empty(now))
}

// TestShareIsBounded checks that grants in close succession are merged into one that counts from the last of them,
// so that the log stays bounded and the quota never grants more.
func TestShareIsBounded(t *testing.T) {
	rate := overall(1_000_000, time.Second)
	s, p := NewLedger(rate), &Policy{Kind: LocalQuota, Nodes: 1}
	begin := time.Now()
	now := begin
	for range 20_000 { // two seconds
		if at, _, err := s.When(p, 30, now, begin.Add(-time.Second)); err == nil && !at.After(now) {
			s.Take(p, 30, now)
		}
		now = now.Add(100 * time.Microsecond)
		require.LessOrEqual(t, s.used, rate.Permits)
	}
	require.LessOrEqual(t, len(s.grants), maxGrants+1)
	require.LessOrEqual(t, len(s.stage(now, func() permit.ID { return permit.ID{1} })), maxPending+1)
}

// TestShareKeepsTheGap checks that each node keeps the minimum gap on behalf of all nodes, but for no longer than
// an interval.
func TestShareKeepsTheGap(t *testing.T) {
	rate := permit.Rate{Permits: 100, Interval: 2 * time.Second, MinGap: 100 * time.Millisecond}
	s, p := NewLedger(rate), &Policy{Kind: LocalQuota, Nodes: 2}
	begin := time.Now()
	for _, step := range []struct {
		permits     int64
		after, next time.Duration
	}{
		{1, 2 * time.Second, 2200 * time.Millisecond},
		{3, 2200 * time.Millisecond, 2800 * time.Millisecond},
		{40, 2800 * time.Millisecond, 4800 * time.Millisecond},
	} {
		at, _, err := s.When(p, step.permits, begin.Add(step.after), begin)
		require.NoError(t, err)
		require.Equal(t, begin.Add(step.after), at)
		s.Take(p, step.permits, at)
		at, _, _ = s.When(p, 1, at, begin)
		require.Equal(t, begin.Add(step.next), at)
	}
}

// TestLearnOfCoolDowns checks what a ledger learns of cool-downs from replies. A wait longer than an interval means
// a cool-down, a reply that allows more ends it, and a reply decided before the cool-down began says nothing about
// it.
func TestLearnOfCoolDowns(t *testing.T) {
	const interval = time.Second
	reply := func(wait time.Duration, granted ...int64) *permit.Reply {
		return &permit.Reply{Granted: granted, Wait: wait, Rate: overall(10, interval)}
	}
	for name, test := range map[string]struct {
		do   func(s *Ledger, now time.Time)
		want time.Duration // how long it cools down from now
	}{
		"none":              {func(s *Ledger, now time.Time) { s.Learn(reply(interval, 0), now) }, 0},
		"one":               {func(s *Ledger, now time.Time) { s.Learn(reply(time.Minute, 0), now) }, time.Minute},
		"it is over":        {func(s *Ledger, now time.Time) { s.Learn(reply(time.Minute, 0), now); s.Learn(reply(0, 1), now) }, 0},
		"shorter than that": {func(s *Ledger, now time.Time) { s.Learn(reply(time.Minute, 0), now); s.Learn(reply(interval, 0), now) }, interval},
		"a shorter one":     {func(s *Ledger, now time.Time) { s.Learn(reply(time.Hour, 0), now); s.Learn(reply(time.Minute, 0), now) }, time.Minute},
		"decided before": {func(s *Ledger, now time.Time) {
			s.Learn(reply(time.Minute, 0), now)
			s.Learn(reply(0, 1), now.Add(-time.Millisecond))
		}, time.Minute},
		"a shorter one, decided before": {func(s *Ledger, now time.Time) {
			s.Learn(reply(time.Hour, 0), now)
			s.Learn(reply(time.Minute, 0), now.Add(-time.Millisecond))
		}, time.Hour},
		"of one that exceeds the rate": {func(s *Ledger, now time.Time) { s.Learn(reply(time.Minute, 0), now); s.Learn(reply(0, -1), now) }, time.Minute},
		"noted":                        {func(s *Ledger, now time.Time) { s.NoteCoolDown(now.Add(time.Minute)) }, time.Minute},
		"noted, and not told yet":      {func(s *Ledger, now time.Time) { s.NoteCoolDown(now.Add(time.Minute)); s.Learn(reply(0, 1), now) }, time.Minute},
		"noted twice: the longer": {func(s *Ledger, now time.Time) {
			s.NoteCoolDown(now.Add(time.Minute))
			s.NoteCoolDown(now.Add(time.Second))
		}, time.Minute},
		"told, and over": {func(s *Ledger, now time.Time) {
			s.NoteCoolDown(now.Add(time.Minute))
			s.ToldCoolDown(now.Add(time.Minute))
			s.Learn(reply(0, 1), now)
		}, 0},
		"told of a shorter one": {func(s *Ledger, now time.Time) {
			s.NoteCoolDown(now.Add(time.Minute))
			s.ToldCoolDown(now.Add(time.Second))
			s.Learn(reply(0, 1), now)
		}, time.Minute},
		"lifted": {func(s *Ledger, now time.Time) {
			s.Learn(reply(time.Minute, 0), now)
			s.NoteCoolDown(now.Add(time.Hour))
			s.NoteCoolDown(time.Time{})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, now := NewLedger(permit.Rate{}), time.Now()
				test.do(s, now)
				require.Equal(t, test.want, max(0, s.coolsUntil().Sub(now)))
			})
		})
	}
}

// TestOneReconciles checks that one caller at a time reconciles while the others wait for it, and that none does if
// nothing is pending.
func TestOneReconciles(t *testing.T) {
	s, p := NewLedger(overall(10, time.Second)), &Policy{Kind: LocalQuota, Nodes: 1}
	now := time.Now()
	start, busy := s.startReconciling(now)
	require.False(t, start)
	require.Nil(t, busy)
	require.False(t, s.Busy(now))
	_, _, err := s.When(p, 3, now, now.Add(-time.Second))
	require.NoError(t, err)
	s.Take(p, 3, now)
	require.True(t, s.Busy(now))
	start, busy = s.startReconciling(now)
	require.True(t, start)
	require.Nil(t, busy)
	start, busy = s.startReconciling(now)
	require.False(t, start)
	require.NotNil(t, busy)
	pending := s.stage(now, func() permit.ID { return permit.ID{1} })
	require.Equal(t, []Pending{{At: now, Permits: 3, ID: permit.ID{1}}}, pending)
	s.Take(p, 2, now) // granted in the meantime
	s.setPending(nil)
	select {
	case <-busy:
		t.Fatal("somebody reconciles")
	default:
	}
	s.endReconciling()
	<-busy
	require.True(t, s.Busy(now))
	require.Equal(t, int64(2), s.stage(now, func() permit.ID { return permit.ID{2} })[0].Permits)
	require.True(t, s.hasPending(now))
	require.False(t, s.hasPending(now.Add(time.Second)), "it no longer counts")
	require.Zero(t, s.Pending())
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/dinggate"
	"github.com/stretchr/testify/require"
)

// aGoodRun returns a summary with nothing wrong in it.
func aGoodRun() dingSummary {
	epoch := time.Unix(0, 0)
	ledger := func(admitted, rejected, penalties int64, worst int, list ...dinggate.Penalty) dinggate.Ledger {
		return dinggate.Ledger{
			Total: dinggate.Counts{Calls: admitted + rejected, Admitted: admitted, Refused: rejected, Penalties: penalties},
			Keys: []dinggate.KeyLedger{
				{Dimension: dinggate.DimAppAPI, Key: "a", Worst: worst, Limit: 20},
				{Dimension: dinggate.DimAppAPI, Key: "b", Worst: 1, Limit: 20},
				{Dimension: dinggate.DimIP, Worst: 900, Limit: 10_000},
			},
			Penalties: list,
		}
	}
	ban := dinggate.Penalty{Dimension: dinggate.DimIP, Start: epoch, Until: epoch.Add(10 * time.Second), Outside: true, Calls: 3, Last: 44 * time.Millisecond}
	return dingSummary{
		Parts:   theDingParts,
		Without: ledger(200, 1300, 10, 133, dinggate.Penalty{}),
		With:    ledger(456, 0, 0, 19),
		End:     ledger(820, 3, 1, 20, ban),
		Ban:     dingBanRecord{Start: ban.Start, Until: ban.Until, Met: epoch.Add(30 * time.Millisecond), Known: epoch.Add(31 * time.Millisecond)},
		Margin:  dingMargin,
		Slowest: 20 * time.Millisecond,
	}
}

func TestDingVerdict(t *testing.T) {
	penalty := func(s *dingSummary, n int64) { s.End.Total.Penalties += n }
	for name, c := range map[string]struct {
		change func(*dingSummary)
		err    string
		text   string // the text of the verdict, where it differs from the good run's
	}{
		"good":              {func(*dingSummary) {}, "", ""},
		"a penalty":         {func(s *dingSummary) { penalty(s, 1) }, "penalties with the limiter: 1", "penalties: 1 "},
		"21 in a second":    {func(s *dingSummary) { penalty(s, 2); s.End.Keys[1].Worst = 21 }, "penalties with the limiter: 2", "most in any 1s: 21 (limit 20)"},
		"a call in the ban": {func(s *dingSummary) { s.Ban.Late = 1 }, "calls sent although the ban was known: 1", "known ban: 1;"},
		"both":              {func(s *dingSummary) { penalty(s, 1); s.Ban.Late = 7 }, "calls sent although the ban was known: 7", "known ban: 7;"},
		"a busy machine": {func(s *dingSummary) { penalty(s, 1); s.Slowest = 55 * time.Millisecond },
			"penalties with the limiter: 1; the delays of the calls differed by up to 50ms, and the margin is 50ms; this machine is busy: try --margin 100ms", "penalties: 1 "},
		"a very busy machine": {func(s *dingSummary) { penalty(s, 1); s.Slowest = time.Second },
			"penalties with the limiter: 1; the delays of the calls differed by up to 995ms, and the margin is 50ms; this machine is busy: try --margin 1s", "penalties: 1 "},
		"far too busy a machine": {func(s *dingSummary) { penalty(s, 1); s.Slowest = 2 * time.Second },
			"penalties with the limiter: 1; the delays of the calls differed by up to 1.995s, and the margin is 50ms; this machine is too busy for the demo", "penalties: 1 "},
		"a busy machine that does no harm": {func(s *dingSummary) { s.Slowest = time.Second }, "", ""},
		"nothing to keep":                  {func(s *dingSummary) { s.Without.Total.Penalties = 0 }, "there was no penalty without the limiter: the fleet was too slow to show anything", "(without the limiter 0)"},
		"the ban is not found out":         {func(s *dingSummary) { s.Ban = dingBanRecord{} }, "nobody found out that the address was banned", ""},
		"nobody comes back":                {func(s *dingSummary) { s.End.Total.Admitted = s.With.Total.Admitted }, "the fleet did not call again after the ban", ""},
		"slow":                             {func(s *dingSummary) { s.With.Total.Admitted = 240 }, "", "; 50% of the allowed rate"},
	} {
		t.Run(name, func(t *testing.T) {
			s := aGoodRun()
			c.change(&s)
			s = s.judged()
			if c.err == "" {
				require.NoError(t, s.Err)
			} else {
				require.EqualError(t, s.Err, c.err)
			}
			if c.text == "" {
				require.Equal(t, "penalties: 0 (without the limiter 10); most in any 1s: 20 (limit 20); sent during the known ban: 0; 95% of the allowed rate", s.String())
			}
			require.Contains(t, s.String(), c.text)
		})
	}
}

// TestDingBan checks which calls during a ban count as in flight, and which as one too many.
func TestDingBan(t *testing.T) {
	var b dingBan
	gate := dinggate.New()
	b.left(time.Now())
	b.met("orders", "deny", time.Now())
	b.known("L", time.Now())
	require.Equal(t, dingBanRecord{}, b.record(), "before the ban")
	require.Empty(t, b.news())

	require.NoError(t, b.begin(gate, time.Minute))
	at := func(d time.Duration) time.Time { return b.rec.Start.Add(d) }
	require.Equal(t, at(time.Minute), b.rec.Until)
	b.left(at(time.Second))
	b.met("orders", "deny", at(2*time.Second))
	b.met("crm", "deny", at(2100*time.Millisecond))
	b.left(at(2900 * time.Millisecond))
	b.known("L", at(3*time.Second))
	b.known("L", at(4*time.Second))
	b.left(at(3*time.Second + dingUnderWay))
	require.Zero(t, b.record().Late, "its permit is older")
	b.left(at(3*time.Second + dingUnderWay + 1))
	b.left(at(time.Minute - 1))
	b.left(at(time.Minute))
	b.left(at(2 * time.Minute))
	require.Equal(t, dingBanRecord{Start: at(0), Until: at(time.Minute), Met: at(2 * time.Second), Known: at(3 * time.Second),
		Resumed: at(time.Minute), Late: 2}, b.record())
	var kinds []string
	for _, n := range b.news() {
		kinds = append(kinds, n.kind)
	}
	require.Equal(t, []string{"met", "known", "late", "resumed"}, kinds)
	require.Empty(t, b.news(), "told once")
	require.Error(t, b.begin(gate, 0))
}

func TestDingRow(t *testing.T) {
	for _, c := range []struct {
		row  dingRow
		want string
	}{
		{dingRow{At: time.Second, Free: -1, Calls: 270, Admitted: 40, Rejected: 230, Most: 96, Limit: 20, Penalties: 4},
			"  1.0s       0       -       -    270       40      230   96/20         4     -"},
		{dingRow{At: 20 * time.Second, Waiting: 8, CoolDown: 7001 * time.Millisecond, Banned: 6950*time.Millisecond + 1, Most: 20, Limit: 20},
			" 20.0s       8       0    7.1s      0        0        0   20/20         0  7.0s"},
		{dingRow{Free: 10_000, Most: 100, Limit: 20, Banned: 1}, "  0.0s       0   10000       -      0        0        0  100/20         0  0.1s"},
	} {
		require.Equal(t, c.want, c.row.String())
		require.Len(t, c.want, len(dingHeader[1]))
	}
	require.LessOrEqual(t, len(dingHeader[1]), 79)
}

func TestDingTerm(t *testing.T) {
	var out bytes.Buffer
	v := &dingTerm{out: &out, colour: true}
	v.begin(dingIntro{Where: "a Redis", Ban: 10 * time.Second})
	v.act(dingEvent{Text: "The first part."})
	row := dingRow{At: 7 * time.Second, Sent: []int64{1, 2, 3, 4}, Waiting: 8, Free: -1, Limit: 20, Most: 5}
	v.now(row)
	v.second(row)
	row.Free, row.Banned, row.CoolDown = 0, 2*time.Second, 3*time.Second
	v.now(row)
	v.tell(dingEvent{At: 7200 * time.Millisecond, Text: "the ban is here"})
	now := strings.Join(screen(t, out.String()), "\n")
	require.Contains(t, now, "\nThe first part.\n"+dingHeader[0]+"\n"+dingHeader[1]+"\n")
	require.True(t, strings.HasSuffix(now, "\n  7.20s  the ban is here\n"+
		"--   7.0s "+strings.Repeat("-", 60)+"\n"+
		"fleet    sent orders 1, payroll 2, alerts 3, crm 4; 8 wait\n"+
		"Redis    nobody gets a permit for 3.0s\n"+
		"gateway  most in any 1s 5 (limit 20), penalties 0, the address is banned for 2.0s\n"), now)
	row.CoolDown, row.Free = 0, 312
	v.now(row)
	require.Contains(t, strings.Join(screen(t, out.String()), "\n"), "\nRedis    the address has 312 permits\n")

	v.end(aGoodRun())
	v.close()
	end := screen(t, out.String())
	require.Regexp(t, dingVerdict, end[len(end)-2])
	require.NotContains(t, strings.Join(end, "\n"), "\nfleet ", "the panel is gone")
	require.Contains(t, strings.Join(end, "\n"), "\nthe ban      known to all after 31ms; the gateway saw 3 calls in it, the last after 44ms\n")
	require.Contains(t, out.String(), term.Bold+term.Green+"penalties: 0")
	require.Greater(t, strings.LastIndex(out.String(), wrapOn), strings.LastIndex(out.String(), wrapOff))
	require.Greater(t, strings.LastIndex(out.String(), cursorOn), strings.LastIndex(out.String(), cursorOff))
	require.IsType(t, &dingPlain{}, newDingView(&out, false))
	require.IsType(t, &dingJSON{}, newDingView(&out, true))
}

func TestDingTermClosed(t *testing.T) {
	var out bytes.Buffer
	v := &dingTerm{out: &out}
	v.begin(dingIntro{})
	v.now(dingRow{Sent: make([]int64, 4)})
	v.close()
	v.tell(dingEvent{Text: "too late"})
	require.NotContains(t, out.String(), term.Dim, "no colours were asked for")
	require.True(t, strings.HasSuffix(out.String(), wrapOn+cursorOn))
}

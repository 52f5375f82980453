// SPDX-License-Identifier: Apache-2.0

package dinggate

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A desk is a Gate in a bubble, together with its caller.
type desk struct {
	t     *testing.T
	g     *Gate
	epoch time.Time
}

// inBubble gives f a gate with those limits, or else with the standard ones.
func inBubble(t *testing.T, f func(d *desk), l ...Limits) {
	t.Helper()
	l = append(slices.DeleteFunc(l, func(l Limits) bool { return l == nil }), Standard())
	synctest.Test(t, func(t *testing.T) { f(&desk{t, New(l[0]), time.Now()}) })
}

// at sleeps until d after the beginning.
func (d *desk) at(after time.Duration) { time.Sleep(after - time.Since(d.epoch)) }

// ask sends a request: "POST /topapi/v2/user/get?…", and headers as name and value.
func (d *desk) ask(line string, header ...string) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.g.ServeHTTP(w, r)
	return w
}

// An op is a call of one of the kinds that the step tables use. It reports whether it was admitted.
type op func(d *desk) bool

func admitted(w *httptest.ResponseRecorder) bool {
	return w.Code == 200 && !strings.Contains(w.Body.String(), "deny") &&
		(!strings.Contains(w.Body.String(), "errcode") || strings.Contains(w.Body.String(), `"errcode":0,`))
}

func old(app, path string) op {
	return func(d *desk) bool { return admitted(d.ask("POST " + path + "?access_token=" + AppToken(app))) }
}

func isv(suite, corp, path string) op {
	return func(d *desk) bool {
		return admitted(d.ask("POST "+path, "X-Acs-Dingtalk-Access-Token", ISVToken(suite, corp)))
	}
}

func robot(token string) op {
	return func(d *desk) bool { return admitted(d.ask("POST /robot/send?access_token=" + token)) }
}

func fromIP(ip string, o string) op {
	return func(d *desk) bool {
		r := httptest.NewRequest("POST", "/robot/send?access_token="+o, nil)
		r.RemoteAddr = ip + ":1"
		w := httptest.NewRecorder()
		d.g.ServeHTTP(w, r)
		return admitted(w)
	}
}

// A step is n calls at an instant, and the number of them that are admitted, which are the first ones.
type step struct {
	at   time.Duration
	n    int
	call op
	want int
}

func (d *desk) play(steps []step) {
	d.t.Helper()
	for i, s := range steps {
		d.at(s.at)
		got := 0
		for j := range s.n {
			if s.call(d) {
				require.Equal(d.t, j, got, "step %d: call %d is admitted after one that was refused", i, j)
				got++
			}
		}
		require.Equal(d.t, s.want, got, "step %d, at %v", i, s.at)
	}
}

const (
	ms = time.Millisecond
	ns = time.Nanosecond
)

func TestLimits(t *testing.T) {
	user := old("a", "/topapi/v2/user/get")
	r := robot("R")
	for name, c := range map[string]struct {
		limits Limits
		steps  []step
	}{
		"the 21st of a second is refused, and everything for one second more": {steps: []step{
			{0, 20, user, 20}, {300 * ms, 1, user, 0}, {301 * ms, 5, user, 0},
			{1300*ms - ns, 1, user, 0}, {1300 * ms, 20, user, 20}, {1300 * ms, 1, user, 0},
		}},
		"windows slide and are half-open": {steps: []step{
			{0, 10, user, 10}, {900 * ms, 10, user, 10},
			{time.Second, 10, user, 10}, // the calls at 0 no longer count
			{1900*ms - ns, 1, user, 0},  // those at 900 ms still do
		}},
		"exactly one window later all are back": {steps: []step{
			{0, 20, user, 20}, {time.Second, 20, user, 20}, {2 * time.Second, 20, user, 20},
		}},
		"one nanosecond earlier none is": {steps: []step{
			{0, 20, user, 20}, {time.Second - ns, 1, user, 0},
		}},
		"a penalty is not prolonged": {steps: []step{
			{0, 21, user, 20}, {500 * ms, 1000, user, 0}, {time.Second, 20, user, 20},
		}},
		"apps and APIs are apart": {steps: []step{
			{0, 21, user, 20}, {0, 20, old("b", "/topapi/v2/user/get"), 20}, {0, 20, old("a", "/topapi/v2/user/list"), 20},
			{0, 20, old("a", "/user/get"), 20},
		}},
		"an ISV has 40 for each organisation": {steps: []step{
			{0, 41, isv("s", "c1", "/v1.0/x"), 40}, {0, 41, isv("s", "c2", "/v1.0/x"), 40}, {0, 40, isv("s2", "c1", "/v1.0/x"), 40},
			{time.Second, 40, isv("s", "c1", "/v1.0/x"), 40},
		}},
		"a robot has 20 a minute, or 10 minutes of silence": {steps: []step{
			{0, 20, r, 20}, {time.Minute, 20, r, 20}, {90 * time.Second, 1, r, 0}, {90 * time.Second, 1, robot("other"), 1},
			{2 * time.Minute, 3, r, 0}, {11*time.Minute + 30*time.Second - ns, 1, r, 0}, {11*time.Minute + 30*time.Second, 20, r, 20},
		}},
		"an IP has 10,000 in 20 seconds of everything, or 5 minutes of silence": {
			limits: limits(func(l Limits) { l[DimAppAPI].Calls, l[DimRobot].Calls, l[DimMonth].Calls = 0, 0, 0 }),
			steps: []step{
				{0, 5000, r, 5000}, {19999 * ms, 5000, user, 5000},
				{20 * time.Second, 5000, r, 5000}, {30 * time.Second, 1, user, 0}, {30 * time.Second, 1, robot("other"), 0},
				{5*time.Minute + 30*time.Second - ns, 1, r, 0}, {5*time.Minute + 30*time.Second, 10_001, user, 10_000},
			},
		},
		"IPs are apart": {
			limits: limits(func(l Limits) { l[DimIP].Calls = 3 }),
			steps: []step{
				{0, 4, fromIP("1.1.1.1", "a"), 3}, {0, 4, fromIP("2.2.2.2", "a"), 3}, {0, 3, r, 3},
			},
		},
		"an API may have a limit for all": {
			limits: limits(func(l Limits) { l[DimAPI].Calls = 30 }),
			steps: []step{
				{0, 20, user, 20}, {0, 11, old("b", "/topapi/v2/user/get"), 10}, {0, 1, old("c", "/topapi/v2/user/get"), 0},
				{0, 1, old("c", "/topapi/v2/user/list"), 1}, {time.Second, 20, user, 20},
			},
		},
		"a shortened penalty ends with an empty window": {
			limits: limits(func(l Limits) { l[DimRobot].Penalty = 5 * time.Second }),
			steps: []step{
				{0, 21, r, 20}, {5*time.Second - ns, 1, r, 0}, {5 * time.Second, 21, r, 20},
			},
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, func(d *desk) { d.play(c.steps) }, c.limits) })
	}
}

func limits(change func(Limits)) Limits {
	l := Standard()
	change(l)
	return l
}

// TestMonth checks that the month is that of Shanghai: the bubble begins on 2000-01-01 00:00 UTC, which is 08:00
// there.
func TestMonth(t *testing.T) {
	const january = 31*24*time.Hour - 8*time.Hour // the rest of January
	user, other := old("a", "/topapi/v2/user/get"), isv("s", "c", "/v1.0/x")
	inBubble(t, func(d *desk) {
		d.play([]step{
			{0, 10, user, 10}, {time.Hour, 3, user, 2}, {time.Hour, 12, other, 12},
			{2 * time.Hour, 1, old("b", "/user/list"), 0}, // the same organisation
			{january - ns, 1, user, 0}, {january, 13, user, 12},
			{january + 29*24*time.Hour - ns, 1, user, 0}, // 2000 is a leap year
			{january + 29*24*time.Hour, 1, user, 1},
		})
		require.Equal(t, 13, d.g.Ledger().Key(DimMonth, OwnOrg).Worst)
	}, limits(func(l Limits) { l[DimMonth].Calls = 12 }))
}

// TestRefusedCallsAreNoneOfTheMonth checks that a call that another dimension refuses does not count in the month.
func TestRefusedCallsAreNoneOfTheMonth(t *testing.T) {
	user := old("a", "/topapi/v2/user/get")
	inBubble(t, func(d *desk) {
		d.play([]step{{0, 500, user, 20}})
		l := d.g.Ledger()
		require.EqualValues(t, 20, l.Key(DimMonth, OwnOrg).Calls)
		require.EqualValues(t, 500, l.Key(DimIP, "192.0.2.1").Calls)
	})
}

func TestBanFromOutside(t *testing.T) {
	user, r := old("a", "/topapi/v2/user/get"), robot("R")
	key := AppAPI("a", API("POST", "/topapi/v2/user/get"))
	inBubble(t, func(d *desk) {
		require.NoError(t, d.g.Ban(DimIP, "192.0.2.1", 30*time.Second))
		require.NoError(t, d.g.Ban(DimIP, "192.0.2.1", 10*time.Second), "a shorter one changes nothing")
		d.play([]step{{10 * time.Second, 2, user, 0}, {30*time.Second - ns, 1, r, 0}, {30 * time.Second, 1, user, 1}})
		require.NoError(t, d.g.Ban(DimAppAPI, key, time.Second))
		require.NoError(t, d.g.Ban(DimRobot, "R", time.Minute))
		d.play([]step{{30 * time.Second, 1, user, 0}, {30 * time.Second, 1, r, 0}, {31 * time.Second, 1, user, 1}, {90 * time.Second, 1, r, 1}})

		l := d.g.Ledger()
		require.Len(t, l.Penalties, 3)
		require.Equal(t, Penalty{Dimension: DimIP, Key: "192.0.2.1", Start: d.epoch, Until: d.epoch.Add(30 * time.Second),
			Outside: true, Calls: 3, Last: 30*time.Second - ns}, l.Penalties[0])
		require.EqualValues(t, 3, l.Total.Penalties)
		require.EqualValues(t, 5, l.Total.During)
		require.EqualValues(t, 5, l.Total.Refused, "nobody went over a limit")

		for _, bad := range []error{d.g.Ban("who", "k", 1), d.g.Ban(DimIP, "", 1), d.g.Ban(DimIP, "k", 0)} {
			require.Error(t, bad)
		}
	})
}

func TestLedger(t *testing.T) {
	inBubble(t, func(d *desk) {
		send := func(n int, who string) {
			for range n {
				d.ask("POST /robot/send?access_token=R", HeaderCaller, who)
			}
		}
		send(12, "p1")
		d.at(59 * time.Second)
		send(8, "p2")
		d.at(time.Minute)
		send(12, "p1") // the first 12 are back
		send(2, "p2")  // one too many, and another one
		d.at(2 * time.Minute)
		send(3, "p1")
		d.ask("POST /topapi/v2/user/get", HeaderCaller, "p3")

		l := d.g.Ledger()
		require.Equal(t, d.epoch, l.Since)
		require.Equal(t, d.epoch.Add(2*time.Minute), l.Now)
		require.Equal(t, Counts{Calls: 38, Admitted: 32, Refused: 5, Invalid: 1, Penalties: 1, During: 4}, l.Total)
		require.Equal(t, map[string]CallerLedger{
			"p1": {Counts{Calls: 27, Admitted: 24, Refused: 3, During: 3}},
			"p2": {Counts{Calls: 10, Admitted: 8, Refused: 2, Penalties: 1, During: 1}},
			"p3": {Counts{Calls: 1, Invalid: 1}},
		}, l.Callers)
		require.Equal(t, KeyLedger{Dimension: DimRobot, Key: "R", Limit: 20, Worst: 22,
			Counts: Counts{Calls: 37, Admitted: 32, Refused: 5, Penalties: 1, During: 4}}, l.Key(DimRobot, "R"))
		require.Equal(t, Counts{Calls: 37, Admitted: 32, Refused: 5, Penalties: 1, During: 4}, l.Dimensions[DimRobot])
		require.Equal(t, 22, l.Key(DimIP, "192.0.2.1").Worst, "8 at 59 s and 14 at 60 s")
		require.Equal(t, []Penalty{{Dimension: DimRobot, Key: "R", Start: d.epoch.Add(time.Minute), Until: d.epoch.Add(11 * time.Minute),
			Calls: 4, Last: time.Minute}}, l.Penalties)
		require.Zero(t, l.Key(DimRobot, "nobody"))

		w := d.ask("GET " + LedgerPath)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		var read Ledger
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &read))
		require.Equal(t, l.Total, read.Total, "a look at the ledger is no call")
		require.Equal(t, l.Keys, read.Keys)
		require.Equal(t, l.Callers, read.Callers)
		require.True(t, l.Penalties[0].Until.Equal(read.Penalties[0].Until))
	})
}

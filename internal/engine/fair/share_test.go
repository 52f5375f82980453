// SPDX-License-Identifier: Apache-2.0

package fair_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

var (
	begin = time.UnixMilli(1e12)
	rate  = permit.Rate{Permits: 100, Interval: time.Second}
)

func at(d time.Duration) time.Time { return begin.Add(d) }

// rejected returns the reply to a call that is rejected, and has learned o.
func rejected(o permit.Others, now time.Time) *permit.Reply {
	return &permit.Reply{Granted: []int64{0}, Wait: 200 * ms, Now: now, Rate: rate, Others: o}
}

// A process is a process whose callers wait for a limiter.
type process struct {
	fair.Share
	rate permit.Rate
}

// asks makes the calls of a waiter for that many permits, one after each reply, which are rejected at the given instants.
func (p *process) asks(permits int64, at []time.Time, replies ...permit.Others) (last permit.Allowance) {
	for i, o := range replies {
		last = p.Allowance(permits, fair.Waiter{Permits: permits}, p.rate, at[i])
		a := rejected(o, at[i])
		rest := p.Learn(fair.Call{Begin: at[i], Alone: true, Allowance: last}, a, p.rate, at[i])
		p.Next(fair.Waiter{Permits: permits, Rejected: true}, 0, rest.Grace, a, p.rate, at[i])
	}
	return p.Allowance(permits, fair.Waiter{Permits: permits, Rejected: true}, p.rate, at[len(replies)])
}

// TestAloneAShareIsTheZeroValue checks that a process which is not rejected, or sees nobody else, takes what it finds and
// waits as Redis says.
func TestAloneAShareIsTheZeroValue(t *testing.T) {
	p := process{rate: rate}
	w := fair.Waiter{Permits: 3}
	require.Zero(t, p.Allowance(3, w, rate, begin))
	require.Zero(t, p.Learn(fair.Call{Begin: begin, Permits: 5}, &permit.Reply{Granted: []int64{1}, Rate: rate}, rate, begin))
	require.Equal(t, fair.Share{}, p.Share, "nothing is kept")
	soon, wait := p.Next(w, 0, 0, rejected(permit.Others{}, begin), rate, begin)
	require.Equal(t, [2]time.Duration{200 * ms, 200 * ms}, [2]time.Duration{soon, wait})
	require.Equal(t, permit.Allowance{On: true, Age: -1, Survey: true}, p.Allowance(3, w, rate, at(200*ms)), "from now on it looks for others")
	require.False(t, p.Contended())
	require.Zero(t, p.Allowance(3, w, rate, at(4*time.Second)), "permits are not scarce any more")
	perClient := rate
	perClient.Type = permit.PerClient
	require.Zero(t, p.Allowance(3, w, perClient, at(200*ms)), "nobody else has permits of this client")
}

// TestGraceIsForThoseWhoNeedIt checks for how long permits that expire are left to whom.
func TestGraceIsForThoseWhoNeedIt(t *testing.T) {
	const tag = 7
	peer := permit.Others{Mine: 60, Kin: 40, Tags: []int64{tag}}
	waits, wants := peer, peer
	waits.Waiting, wants.Waiting = []int64{tag, 0}, []int64{tag, 51}
	for _, c := range []struct {
		name     string
		interval time.Duration
		sees     permit.Others
		others   bool
		grace    time.Duration
	}{
		{"nobody", time.Second, permit.Others{Mine: 100}, false, 0},
		{"Redisson", time.Second, permit.Others{Mine: 50, Java: 50}, true, 120 * ms},
		{"Redisson at a short interval", 100 * ms, permit.Others{Mine: 50, Java: 50}, true, 60 * ms},
		{"a peer whose callers do not wait", time.Second, peer, true, 0},
		{"a peer whose callers wait", time.Second, waits, true, 10 * ms},
		{"a peer whose callers wait, at a short interval", 50 * ms, waits, true, 5 * ms},
		{"a peer for which others save up", time.Second, wants, true, time.Second},
	} {
		p := process{rate: rate}
		p.rate.Interval = c.interval
		a := p.asks(1, []time.Time{begin, begin, at(ms)}, permit.Others{}, c.sees)
		require.Equal(t, c.others, p.Contended(), c.name)
		require.Equal(t, c.grace, a.Grace, c.name)
	}
}

// TestTripwireRevealsRedisson checks that a tripwire which is gone shows that Redisson asks, unless a call of this
// process may have reclaimed it, and that Redisson is forgotten after three intervals without a sign.
func TestTripwireRevealsRedisson(t *testing.T) {
	left, gone := permit.Others{WireLeft: true, WireFound: true}, permit.Others{}
	times := []time.Time{begin, at(100 * ms), at(200 * ms), at(300 * ms)}
	var p process
	p.rate = rate
	p.asks(1, times, left, left, left)
	require.False(t, p.Contended())
	p.asks(1, times, left, left, gone)
	require.True(t, p.Contended())
	later := []time.Time{at(3 * time.Second), at(3201 * ms), at(3202 * ms)}
	p.asks(1, later, left, left)
	require.False(t, p.Contended(), "three intervals have passed")

	p = process{rate: rate}
	p.asks(1, times, left, left)
	p.Touch(at(150 * ms))
	p.asks(1, times[2:], gone)
	require.False(t, p.Contended(), "it may have been a call of this process")
}

// TestAllowanceGrowsToTheShare checks how much of the permits within their grace a process may take beside a peer that
// uses half of the rate: what it has saved up of its own half, which is 50.
func TestAllowanceGrowsToTheShare(t *testing.T) {
	half := permit.Others{Mine: 50, Kin: 50, Tags: []int64{7}, Waiting: []int64{7, 0}}
	first := []time.Time{begin, begin, begin}
	for _, c := range []struct {
		permits int64
		after   time.Duration
		may     int64
	}{
		{1, 10 * ms, 0},
		{1, 20 * ms, 1},
		{1, 200 * ms, 10},
		{1, time.Second, 50},
		{1, time.Hour, 0}, // nobody has been rejected for long, so nothing is scarce
		{10, 150 * ms, 0},
		{10, 200 * ms, 10},
		{60, 500 * ms, 0}, // a large one saves up half of what comes in beside the balance
		{60, time.Second, 60},
	} {
		p := process{rate: rate}
		p.asks(c.permits, first, permit.Others{}, half)
		a := p.Allowance(c.permits, fair.Waiter{Permits: c.permits, Rejected: true}, rate, at(c.after))
		require.Equal(t, c.may, a.May, "%+v", c)
		require.Equal(t, c.may == 10 && c.permits == 10, a.Wants > 0, "%+v: others are to save up for several permits", c)
	}
}

// TestHoldingTheShareIsEnough checks that a process which holds its share takes nothing within the grace, and sleeps until
// the first of what it holds is over.
func TestHoldingTheShareIsEnough(t *testing.T) {
	p := process{rate: rate}
	half := permit.Others{Mine: 50, Kin: 50, Tags: []int64{7}, Waiting: []int64{7, 0}}
	p.asks(1, []time.Time{begin, begin, begin}, permit.Others{}, half)
	granted := &permit.Reply{Granted: []int64{50}, Now: at(300 * ms), Rate: rate}
	p.Learn(fair.Call{Permits: 50}, granted, rate, at(300*ms))
	w := fair.Waiter{Permits: 1, Rejected: true}
	require.Equal(t, int64(0), p.Allowance(1, w, rate, at(1299*ms)).May)
	a := rejected(permit.Others{Soon: 5 * ms}, at(600*ms))
	a.Wait = 2 * time.Second
	soon, wait := p.Next(w, 0, 10*ms, a, rate, at(600*ms))
	require.Equal(t, 5*ms, soon)
	require.Equal(t, 700*ms, wait, "the permits are over at 1300 ms")
	again := p.Allowance(1, w, rate, at(1300*ms))
	require.Equal(t, [2]int64{50, 3}, [2]int64{again.May, again.Age}, "older ones expired while it held its share")
}

// TestEarlyPermitsArePaidFor checks that permits which were taken within their grace are paid from the credit.
func TestEarlyPermitsArePaidFor(t *testing.T) {
	p := process{rate: rate}
	half := permit.Others{Mine: 50, Kin: 50, Tags: []int64{7}, Waiting: []int64{7, 0}}
	p.asks(1, []time.Time{begin, begin, begin}, permit.Others{}, half)
	a := p.Allowance(1, fair.Waiter{Permits: 1}, rate, at(400*ms))
	require.Equal(t, int64(21), a.May)
	half.Young = 18
	rest := p.Learn(fair.Call{Begin: at(400 * ms), Allowance: a}, rejected(half, at(400*ms)), rate, at(400*ms))
	require.Equal(t, int64(3), rest.May, "if the call goes on")
	require.Equal(t, int64(3), p.Allowance(1, fair.Waiter{Permits: 1}, rate, at(400*ms)).May)
}

// TestCoolDownShrinksTheShare checks that only what a cool-down has given back is divided, and that credit comes at the
// pace of the rate all the same.
func TestCoolDownShrinksTheShare(t *testing.T) {
	p := process{rate: rate}
	p.asks(1, []time.Time{begin, begin, begin}, permit.Others{}, permit.Others{Mine: 10, Kin: 10, Tags: []int64{7}, Waiting: []int64{7, 0}, Blocked: 80})
	may := func(d time.Duration) int64 { return p.Allowance(1, fair.Waiter{Permits: 1}, rate, at(d)).May }
	require.Equal(t, int64(5), may(100*ms))
	require.Equal(t, int64(10), may(time.Second))
}

// TestShortTimeIsLent checks that a waiter whose time ends before there is credit for it is served on credit.
func TestShortTimeIsLent(t *testing.T) {
	for deadline, want := range map[time.Duration]struct {
		wait time.Duration
		may  int64
	}{
		8 * ms:    {5 * ms, 1},
		time.Hour: {20 * ms, 0},
		4 * ms:    {20 * ms, 0}, // nothing expires in time
	} {
		p := process{rate: rate}
		p.asks(1, []time.Time{begin, begin, begin}, permit.Others{}, permit.Others{Mine: 50, Kin: 50, Tags: []int64{7}, Waiting: []int64{7, 0}})
		w := fair.Waiter{Permits: 1, Rejected: true, Deadline: at(deadline)}
		_, wait := p.Next(w, 0, 10*ms, rejected(permit.Others{Soon: 5 * ms}, begin), rate, begin)
		require.InDelta(t, want.wait, wait, float64(ms), "deadline %v", deadline)
		require.Equal(t, want.may, p.Allowance(1, w, rate, at(5*ms)).May, "deadline %v", deadline)
	}
}

// TestLargeRequestsArePaidFromSavings checks when the share affords a request that takes its permits ahead.
func TestLargeRequestsArePaidFromSavings(t *testing.T) {
	p := process{rate: rate}
	half := permit.Others{Mine: 50, Kin: 50, Tags: []int64{7}, Waiting: []int64{7, 0}}
	p.asks(40, []time.Time{begin, begin, begin}, permit.Others{}, half)
	require.True(t, p.IsLarge(40))
	require.False(t, p.IsLarge(25))
	require.False(t, p.Affords(40, time.Second, at(700*ms)))
	require.True(t, p.Affords(40, time.Second, at(800*ms)))
	require.Equal(t, int64(21), p.Allowance(40, fair.Waiter{Permits: 1}, rate, at(800*ms)).May, "half is for the small ones behind it")
	_, alone := p.Next(fair.Waiter{Permits: 45}, 0, 10*ms, &permit.Reply{Wait: time.Minute, Rate: rate}, rate, at(800*ms))
	_, more := p.Next(fair.Waiter{Permits: 45}, 1, 10*ms, &permit.Reply{Wait: time.Minute, Rate: rate}, rate, at(800*ms))
	require.InDelta(t, 60*ms, alone, 1000, "3 are missing")
	require.InDelta(t, 120*ms, more, 1000)
	p.Pay(40, time.Second, at(800*ms))
	require.False(t, p.Affords(40, time.Second, at(801*ms)))
	require.True(t, p.Affords(40, time.Second, at(1600*ms)))
}

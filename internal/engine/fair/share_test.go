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

	peerHolds = permit.Others{Mine: 50, Kin: 50}
	peerWaits = permit.Others{Mine: 50, Kin: 50, Waiting: []int64{7}}
	java      = permit.Others{Mine: 50, Java: 50}
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
		last = p.Allowance(permits, permits, p.rate, at[i])
		a := rejected(o, at[i])
		rest := p.Learn(fair.Call{Begin: at[i], Alone: true, Allowance: last}, a, p.rate, at[i])
		p.Next(permits, 0, rest.Grace, a, p.rate, at[i])
	}
	return p.Allowance(permits, permits, p.rate, at[len(replies)])
}

// beside returns a process that has met others, and whose waiter asks for that many permits. It has been granted what was
// owed to it.
func beside(o permit.Others, permits int64) *process {
	p := &process{rate: rate}
	p.asks(permits, []time.Time{begin, begin, begin}, permit.Others{}, o)
	p.grant(1000, begin)
	return p
}

// grant has the process granted that many permits.
func (p *process) grant(permits int64, now time.Time) {
	p.Learn(fair.Call{Permits: permits}, &permit.Reply{Rate: rate}, rate, now)
}

// may returns how many permits a request for that many, and those behind it, need not leave to others.
func (p *process) may(permits int64, after time.Duration) int64 {
	return p.Allowance(permits, permits, rate, at(after)).May
}

// TestAloneAShareIsTheZeroValue checks that a process which is not rejected, or sees nobody else, takes what it finds and
// waits as Redis says.
func TestAloneAShareIsTheZeroValue(t *testing.T) {
	p := process{rate: rate}
	require.Zero(t, p.Allowance(3, 3, rate, begin))
	require.Zero(t, p.Learn(fair.Call{Begin: begin, Permits: 5}, &permit.Reply{Granted: []int64{1}, Rate: rate}, rate, begin))
	require.Equal(t, fair.Share{}, p.Share, "nothing is kept")
	soon, wait := p.Next(3, 0, 0, rejected(permit.Others{}, begin), rate, begin)
	require.Equal(t, [2]time.Duration{200 * ms, 200 * ms}, [2]time.Duration{soon, wait})
	require.Equal(t, permit.Allowance{On: true, Survey: true}, p.Allowance(3, 3, rate, at(200*ms)), "from now on it looks for others")
	require.False(t, p.Contended())
	require.Zero(t, p.Allowance(3, 3, rate, at(4*time.Second)), "permits are not scarce any more")
	perClient := rate
	perClient.Type = permit.PerClient
	require.Zero(t, p.Allowance(3, 3, perClient, at(200*ms)), "nobody else has permits of this client")
}

// TestGraceIsForThoseWhoNeedIt checks for how long permits that expire are left to whom.
func TestGraceIsForThoseWhoNeedIt(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		sees     permit.Others
		others   bool
		grace    time.Duration
	}{
		{"nobody", time.Second, permit.Others{Mine: 100}, false, 0},
		{"Redisson", time.Second, java, true, 120 * ms},
		{"Redisson at a short interval", 100 * ms, java, true, 60 * ms},
		{"a peer whose callers do not wait", time.Second, peerHolds, true, 0},
		{"a peer whose callers wait", time.Second, peerWaits, true, 10 * ms},
		{"a peer whose callers wait, at a short interval", 50 * ms, peerWaits, true, 5 * ms},
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

// TestAllowanceGrowsToTheShare checks how much a process takes at once that was granted all that was owed to it.
func TestAllowanceGrowsToTheShare(t *testing.T) {
	two := peerWaits
	two.Waiting = []int64{7, 8}
	for _, c := range []struct {
		name    string
		sees    permit.Others
		permits int64
		after   time.Duration
		may     int64
	}{
		{"half", peerWaits, 1, 10 * ms, 0},
		{"half", peerWaits, 1, 20 * ms, 1},
		{"half", peerWaits, 1, 200 * ms, 10},
		{"the share of an interval at most", peerWaits, 1, 2 * time.Second, 50},
		{"nobody has been rejected for long, so nothing is scarce", peerWaits, 1, time.Hour, 0},
		{"a third", two, 1, 300 * ms, 10},
		{"all beside one that does not wait", peerHolds, 1, 200 * ms, 21},
		{"half beside Redisson", java, 1, 200 * ms, 10},
		{"what Redisson does not use", permit.Others{Mine: 96, Java: 4}, 1, 200 * ms, 16},
		{"what a cool-down has given back", permit.Others{Mine: 10, Kin: 10, Waiting: []int64{7}, Blocked: 80}, 1, 500 * ms, 5},
		{"several at a time", peerWaits, 10, 150 * ms, 0},
		{"several at a time", peerWaits, 10, 200 * ms, 10},
		{"a large one", peerWaits, 60, 900 * ms, 0},
		{"a large one, which may owe the rest", peerWaits, 60, time.Second, 52},
	} {
		require.Equal(t, c.may, beside(c.sees, c.permits).may(c.permits, c.after), "%s: %+v", c.name, c)
	}
}

// TestAShareBeginsFull checks that the share of an interval is owed to a process that meets others, and that whatever it
// takes is paid from that, but that it owes nothing for what others have left.
func TestAShareBeginsFull(t *testing.T) {
	p := process{rate: rate}
	p.asks(1, []time.Time{begin, begin, begin}, permit.Others{}, peerWaits)
	require.EqualValues(t, 50, p.may(1, 0))
	a := p.Allowance(1, 1, rate, begin)
	rest := p.Learn(fair.Call{Begin: begin, Permits: 18, Allowance: a}, rejected(peerWaits, begin), rate, begin)
	require.EqualValues(t, 32, rest.May, "if the call goes on")
	require.EqualValues(t, 32, p.may(1, 0))
	p.grant(90, begin)
	require.EqualValues(t, 10, p.may(1, 200*ms))
}

// TestTheQueueSleepsUntilItMayTake checks how long the queue sleeps: until permits expire, and as many are owed to it, and a
// little longer the less is owed to it.
func TestTheQueueSleepsUntilItMayTake(t *testing.T) {
	p := beside(peerWaits, 1)
	for _, c := range []struct{ soon, wait time.Duration }{{5 * ms, 21 * ms}, {30 * ms, 32 * ms}, {time.Second, 202 * ms}} {
		soon, wait := p.Next(1, 0, 10*ms, rejected(permit.Others{Soon: c.soon}, begin), rate, begin)
		require.Equal(t, c.soon, soon)
		require.Equal(t, c.wait, wait.Truncate(ms))
	}
}

// TestWhoIsOwedMostAsksFirst checks how much later than a permit expires a process asks for it, by how much it is owed.
func TestWhoIsOwedMostAsksFirst(t *testing.T) {
	for _, c := range []struct {
		sees     permit.Others
		interval time.Duration
		passed   time.Duration // since it was owed nothing
		turn     time.Duration
	}{
		{peerWaits, time.Second, 0, 2 * ms},
		{peerWaits, time.Second, 500 * ms, 950 * time.Microsecond},
		{peerWaits, time.Second, time.Second, 0},
		{peerWaits, 10 * ms, 5 * ms, 95 * time.Microsecond},
		{java, time.Second, 0, 0},
		{permit.Others{Mine: 30, Java: 40, Kin: 30, Waiting: []int64{7}}, time.Second, 0, 0},
		{peerHolds, time.Second, 0, 0},
	} {
		p := &process{rate: permit.Rate{Permits: 100, Interval: c.interval}}
		p.asks(1, []time.Time{begin, begin, begin}, permit.Others{}, c.sees)
		p.grant(1000, begin)
		p.Allowance(1, 1, p.rate, at(c.passed))
		_, wait := p.Next(1, 0, 10*ms, rejected(permit.Others{Soon: 50 * ms}, at(c.passed)), p.rate, at(c.passed))
		require.InDelta(t, 50*ms+c.turn, wait, 1000, "%+v", c)
	}
}

// TestLargeRequestsArePaidFromSavings checks when the share affords a request that takes its permits ahead.
func TestLargeRequestsArePaidFromSavings(t *testing.T) {
	p := beside(peerWaits, 40)
	require.True(t, p.IsLarge(40))
	require.False(t, p.IsLarge(25))
	require.False(t, p.Affords(40, time.Second, at(700*ms)))
	require.True(t, p.Affords(40, time.Second, at(800*ms)))
	require.Equal(t, int64(21), p.Allowance(40, 1, rate, at(800*ms)).May, "half is for the small ones behind it")
	_, alone := p.Next(45, 0, 10*ms, &permit.Reply{Wait: time.Minute, Rate: rate}, rate, at(800*ms))
	_, more := p.Next(45, 1, 10*ms, &permit.Reply{Wait: time.Minute, Rate: rate}, rate, at(800*ms))
	require.InDelta(t, 61160*time.Microsecond, alone, 1000, "3 are missing")
	require.InDelta(t, 121160*time.Microsecond, more, 1000)
	p.Pay(40)
	require.False(t, p.Affords(40, time.Second, at(801*ms)))
	require.True(t, p.Affords(40, time.Second, at(1600*ms)))
}

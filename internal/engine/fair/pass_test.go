// SPDX-License-Identifier: Apache-2.0

package fair_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/fair"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// TestPassIsWhatTheFirstLeaves checks how many permits may be taken by those behind a request for 60, which a reply
// rejects while nobody else takes part: what is left when it is granted.
func TestPassIsWhatTheFirstLeaves(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply permit.Reply
		want  int64
	}{
		{"30 are free and 40 expire together", permit.Reply{Available: 30, Cursor: permit.Cursor{Permits: 40}, Wait: time.Second, Rate: rate}, 10},
		{"just enough expires", permit.Reply{Available: 30, Cursor: permit.Cursor{Permits: 30}, Wait: time.Second, Rate: rate}, 0},
		{"the wait is not known", permit.Reply{Next: permit.On, Available: 90, Rate: rate}, 0},
		{"a cool-down", permit.Reply{Available: 90, Wait: time.Minute, Rate: rate}, 0},
		{"a minGap", permit.Reply{Available: 90, Rate: permit.Rate{Permits: 100, Interval: time.Second, MinGap: 1}}, 0},
	} {
		var p fair.Pass
		p.Rejected(&fair.Share{}, &c.reply, 60)
		require.Equal(t, c.want > 0, p.Opens(begin), c.name)
		for i := range c.want {
			var one fair.Ticket
			require.True(t, p.Take(&fair.Share{}, 1, 60, &one), "%s: %d", c.name, i)
		}
		var more fair.Ticket
		require.False(t, p.Take(&fair.Share{}, 1, 60, &more), c.name)
		require.False(t, more.Passes(), c.name)
	}
}

// TestPassReturns checks that what a call was not granted may be taken again, but not under another first waiter.
func TestPassReturns(t *testing.T) {
	var p fair.Pass
	alone := &fair.Share{}
	a := &permit.Reply{Available: 70, Rate: rate}
	p.Rejected(alone, a, 60)
	var ticket fair.Ticket
	require.True(t, p.Take(alone, 4, 60, &ticket))
	require.True(t, p.Take(alone, 6, 60, &ticket))
	require.False(t, p.Opens(begin), "all 10 are taken")
	p.Wait(ticket, at(20*ms))
	p.Return(ticket, 4)
	require.False(t, p.Opens(at(19*ms)))
	wake, ok := p.WakeAt()
	require.True(t, ok)
	require.Equal(t, at(20*ms), wake)
	require.True(t, p.Opens(wake))
	require.False(t, p.Take(alone, 7, 60, &fair.Ticket{}))
	require.True(t, p.Take(alone, 6, 60, &fair.Ticket{}))
	require.False(t, p.Take(alone, 60, 60, &fair.Ticket{}), "only smaller ones pass")

	p.Close()
	p.Return(ticket, 0)
	p.Wait(ticket, at(time.Hour))
	require.False(t, p.Opens(at(time.Hour)), "it was another first waiter")
}

// TestPassBesideOthers checks that beside others small requests pass a large one, which saves up, without bound, and that
// nobody passes a small one.
func TestPassBesideOthers(t *testing.T) {
	p := process{rate: rate}
	p.asks(1, []time.Time{begin, begin, begin}, permit.Others{}, peerWaits)
	var pass fair.Pass
	pass.Rejected(&p.Share, rejected(permit.Others{}, begin), 60)
	for range 1000 {
		require.True(t, pass.Take(&p.Share, 10, 60, &fair.Ticket{}))
	}
	require.False(t, pass.Take(&p.Share, 40, 60, &fair.Ticket{}), "it is large, too")
	pass.Rejected(&p.Share, rejected(permit.Others{}, begin), 10)
	require.False(t, pass.Opens(begin))
}

// SPDX-License-Identifier: Apache-2.0

package fair

import "time"

// A recentGrants is what this process holds of a limiter: its grants of the last interval, by the clock of the limiter.
// Its share is compared with that.
//
// A recentGrants is part of a [Share]. The sum of grants is held. Instants are in ms of the limiter's
// clock, and do not get smaller from one call to the next, unless that clock is set back.
type recentGrants struct {
	grants    []grantedAt // oldest first
	held      int64
	roomSince int64 // when held became less than the share
}

// A grantedAt is a number of permits granted at one instant.
type grantedAt struct{ at, permits int64 }

// note records a grant to this process. Grants within a 1024th of an interval share one entry, so there are no more
// entries than that.
func (g *recentGrants) note(at, permits int64, share float64, interval time.Duration) {
	g.expire(at, share, interval)
	if permits == 0 {
		return
	}
	g.held += permits
	if n := len(g.grants); n > 0 && at-g.grants[n-1].at <= interval.Milliseconds()/1024 {
		g.grants[n-1].permits += permits
		return
	}
	g.grants = append(g.grants, grantedAt{at, permits})
}

// expire forgets what was granted an interval before clock or earlier.
func (g *recentGrants) expire(clock int64, share float64, interval time.Duration) {
	n := 0
	for ; n < len(g.grants) && g.grants[n].at+interval.Milliseconds() <= clock; n++ {
		if float64(g.held) >= share && float64(g.held-g.grants[n].permits) < share {
			g.roomSince = g.grants[n].at + interval.Milliseconds()
		}
		g.held -= g.grants[n].permits
	}
	g.grants = append(g.grants[:0], g.grants[n:]...)
}

// roomIn returns how long it takes, from clock on, until the process holds less than its share.
func (g *recentGrants) roomIn(clock int64, share float64, interval time.Duration) time.Duration {
	held := g.held
	for _, x := range g.grants {
		if float64(held) < share {
			return 0
		}
		if held -= x.permits; float64(held) < share {
			return time.Duration(max(0, x.at+interval.Milliseconds()-clock)) * time.Millisecond
		}
	}
	return 0
}

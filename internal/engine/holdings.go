package engine

import "time"

// A holdings is what this process holds of a limiter: its grants of the last interval, by the clock of the limiter. Its
// share is compared with that.
//
// A holdings is part of a [sharing], and guarded like it. The sum of grants is held. Instants are in ms of the limiter's
// clock, and do not get smaller from one call to the next, unless that clock is set back.
type holdings struct {
	grants    []grantedAt // oldest first
	held      int64
	roomSince int64 // when held became less than the share
}

// A grantedAt is a number of permits granted at one instant.
type grantedAt struct{ at, permits int64 }

// note records a grant to this process. Grants within a 1024th of an interval share one entry, so there are no more
// entries than that.
func (h *holdings) note(at, permits int64, share float64, interval time.Duration) {
	h.expire(at, share, interval)
	if permits == 0 {
		return
	}
	h.held += permits
	if n := len(h.grants); n > 0 && at-h.grants[n-1].at <= interval.Milliseconds()/1024 {
		h.grants[n-1].permits += permits
		return
	}
	h.grants = append(h.grants, grantedAt{at, permits})
}

// expire forgets what was granted an interval before clock or earlier.
func (h *holdings) expire(clock int64, share float64, interval time.Duration) {
	n := 0
	for ; n < len(h.grants) && h.grants[n].at+interval.Milliseconds() <= clock; n++ {
		if float64(h.held) >= share && float64(h.held-h.grants[n].permits) < share {
			h.roomSince = h.grants[n].at + interval.Milliseconds()
		}
		h.held -= h.grants[n].permits
	}
	h.grants = append(h.grants[:0], h.grants[n:]...)
}

// roomIn returns how long it takes, from clock on, until the process holds less than its share.
func (h *holdings) roomIn(clock int64, share float64, interval time.Duration) time.Duration {
	held := h.held
	for _, g := range h.grants {
		if float64(held) < share {
			return 0
		}
		if held -= g.permits; float64(held) < share {
			return time.Duration(max(0, g.at+interval.Milliseconds()-clock)) * time.Millisecond
		}
	}
	return 0
}

package engine

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A memory holds what a shard knows of its limiters without Redis. It is bounded, whatever the names of the
// limiters are: as long as there is room, those that are not needed may stay; a new one that finds no room is
// not kept. The lock of the shard guards it.
type memory struct {
	shares map[string]*outage.Share // by key
	keys   []string                 // of shares, in no order
	hand   int                      // the index in keys of the next one that is looked at
}

const (
	// maxIdleLocals is how many limiters a shard remembers for outages that are neither in use nor needed.
	maxIdleLocals = 64
	// maxLocals is how many limiters a shard remembers for outages at most, because they are in use, or have
	// granted permits of their own, or are in a cool-down. Cool-downs that this process sets have as many places
	// again, because an outage must not end them.
	maxLocals = 128
	// looks is how many of the limiters that a shard remembers are looked at when another one comes, so that a
	// new name costs the same whatever the shard remembers.
	looks = 4
)

// localShareLocked returns what is known of the limiter without Redis, and makes it if need be. It is nil if
// the shard has no room for it.
func (l *limiter) localShareLocked() *outage.Share { return l.localWithinLocked(maxLocals) }

// localWithinLocked is localShareLocked where the shard remembers that many limiters at most.
func (l *limiter) localWithinLocked(most int) *outage.Share {
	if l.local == nil {
		m := &l.shard.memory
		if l.local = m.shares[l.h.key]; l.local == nil {
			l.shard.forgetLocked()
			if len(m.keys) >= most {
				return nil
			}
			if m.shares == nil {
				m.shares = map[string]*outage.Share{}
			}
			l.local = outage.NewShare(l.rate)
			m.shares[l.h.key] = l.local
			m.keys = append(m.keys, l.h.key)
		}
	}
	return l.local
}

// forgetLocked drops those that nobody needs among the next few limiters that the shard remembers.
func (s *shard) forgetLocked() {
	m, now := &s.memory, time.Now()
	for i := 0; i < looks && len(m.keys) >= maxIdleLocals; i++ {
		if m.hand >= len(m.keys) {
			m.hand = 0
		}
		key := m.keys[m.hand]
		if !m.shares[key].Empty(now) || s.findLocked(key) != nil {
			m.hand++
			continue
		}
		delete(m.shares, key)
		last := len(m.keys) - 1
		m.keys[m.hand] = m.keys[last]
		m.keys[last] = ""
		m.keys = m.keys[:last]
	}
}

// errNoMemory is the error of a request whose limiter cannot be remembered.
var errNoMemory = fmt.Errorf("the local shares of %d limiters whose keys hash alike are in use, and no more are counted", maxLocals)

// whenLocallyLocked returns what is known of the limiter without Redis, and when it can grant r; see
// [outage.Share.When]. If the shard has no room for another limiter nothing can be counted: then a local share
// is an error, and FailOpen, which counts nothing, grants.
func (l *limiter) whenLocallyLocked(p *outage.Policy, permits int64, now, since time.Time, cause error) (share *outage.Share, at time.Time, left int64, err error) {
	if share = l.localShareLocked(); share == nil && p.Kind == outage.FailOpen {
		share = outage.NewShare(l.rate)
	}
	if share == nil {
		err = errNoMemory
	} else {
		at, left, err = share.When(p, permits, now, since)
	}
	if err != nil {
		err = fmt.Errorf("%w: acquire of %q: %w: %w", permit.ErrUnavailable, l.h.name, err, cause)
	}
	return share, at, left, err
}

// NoteCoolDown makes the policies of this process obey a cool-down until Redis has been told of it as well. The
// zero time ends it.
func (h *Handle) NoteCoolDown(until time.Time) {
	h.withShare(func(s *outage.Share) { s.NoteCoolDown(until) })
}

// ToldCoolDown records that Redis has been told of a cool-down, so that from now on a reply may say that it is
// over.
func (h *Handle) ToldCoolDown(until time.Time) {
	h.withShare(func(s *outage.Share) { s.ToldCoolDown(until) })
}

// withShare calls f under the lock with what is known of the limiter without Redis, if the shard has room for
// it.
func (h *Handle) withShare(f func(*outage.Share)) {
	h.shard.lock()
	defer h.shard.unlock()
	l := h.shard.limiterLocked(h)
	if share := l.localWithinLocked(2 * maxLocals); share != nil {
		f(share)
		l.servedFor = time.Time{} // those in line may be granted sooner
	}
}

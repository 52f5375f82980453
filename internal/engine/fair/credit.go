// SPDX-License-Identifier: Apache-2.0

package fair

import "time"

// A credit is what a process has not taken yet of its share of the rate, in permits. It grows with time, by pace permits
// an interval, up to the share of one interval, and what the callers in the queue take before others have had their grace is
// paid from it. So in the long run the process takes no more than its share in this way, however its callers come.
//
// There are two accounts, so that a large request, one for more than half of that maximum, does not stop small ones. Small
// requests are paid from the balance alone. A large one is paid from the balance, and the rest from the savings, to
// which half of what comes in goes while a large request is the first waiter, or while they are negative.
//
// Neither account grows beyond the maximum. Each may be negative: the balance when a request was served early because
// its time was short, and the savings because a request for more than the maximum needs no more than the maximum, and
// owes the rest.
//
// A credit is part of a [Share].
type credit struct {
	target    float64   // permits per interval that are the share of this process
	pace      float64   // growth per interval: the target, and more while a cool-down gives permits back
	balance   float64   // for requests of any size
	savings   float64   // for large requests
	saving    bool      // a large request is the first waiter
	accrued   time.Time // when the accounts last grew
	fullSince time.Time // since when the balance has been at its maximum; zero if it was less when it last grew
}

// surplus makes up for calls that come late; without it a process would never get its whole share.
const surplus = 1.05

// reset empties the accounts.
func (c *credit) reset(now time.Time) {
	c.balance, c.savings, c.accrued, c.fullSince = 0, 0, now, time.Time{}
}

// most returns the maximum of each account.
func (c *credit) most() float64 { return max(1, c.target) }

// least returns the credit that a request for that many permits needs.
func (c *credit) least(permits int64) float64 { return min(float64(permits), c.most()) - 1e-6 }

// IsLarge reports whether a request for that many permits waits for more than half of an interval, in which
// those behind it go on with half of the share.
func (c *credit) IsLarge(permits int64) bool { return permits > 1 && float64(permits) > c.most()/2 }

// lacks returns how much credit a request for that many permits lacks; it is below 0 if there is more than that.
func (c *credit) lacks(permits int64) float64 { return c.least(permits) - c.has(permits) }

// has returns the credit for a request for that many permits.
func (c *credit) has(permits int64) float64 {
	if c.IsLarge(permits) {
		return c.savings + max(0, c.balance)
	}
	return c.balance
}

// mayBorrow reports whether a request whose time is short may be served before there is credit for it.
func (c *credit) mayBorrow() bool { return c.balance > -c.most()/4 }

// pay takes from the accounts what was granted to a request.
func (c *credit) pay(permits int64) {
	n := float64(permits)
	if c.IsLarge(permits) {
		part := min(n, max(0, c.balance))
		c.balance -= part
		c.savings -= n - part
		return
	}
	c.balance -= n
}

// savesHalf reports whether half of what comes in goes to the savings, as far as there is room in them.
func (c *credit) savesHalf() bool { return c.saving || c.savings < 0 }

// accrue lets the accounts grow until now.
func (c *credit) accrue(now time.Time, interval time.Duration) {
	d := c.pace * surplus * float64(now.Sub(c.accrued)) / float64(interval)
	c.accrued = now
	if c.savesHalf() {
		most := 0.0
		if c.saving {
			most = c.most()
		}
		part := max(0, min(d/2, most-c.savings))
		c.savings, d = c.savings+part, d-part
	}
	c.balance += d
	switch {
	case c.balance < c.most():
		c.fullSince = time.Time{}
	case c.fullSince.IsZero():
		c.fullSince = now
		fallthrough
	default:
		c.balance = c.most()
	}
}

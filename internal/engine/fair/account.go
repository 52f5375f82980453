// SPDX-License-Identifier: Apache-2.0

package fair

import "time"

// An account is what a process is owed of its share of the rate, in permits. It grows with time, and all that the process is
// granted is paid from it. A request for which it suffices need not leave permits to others. So in the long run each process
// gets its share, however its callers come.
//
// Half of what comes in is saved while a large request is the first waiter, so that the small ones behind it go on with the
// other half, and while a large request is yet to be paid. Small ones owe nothing: what others have left is not paid for
// afterwards.
//
// An account is part of a [Share].
type account struct {
	target  float64   // permits per interval that are the share of this process
	owed    float64   // to requests of any size; the share of an interval at most
	saved   float64   // for large ones; as much at most, and below 0 by what one is yet to pay
	saving  bool      // a large request is the first waiter
	accrued time.Time // when the account last grew
}

// surplus makes up for calls that come late; without it a process would never get its whole share.
const surplus = 1.05

// most returns the share of one interval.
func (c *account) most() float64 { return max(1, c.target) }

// IsLarge reports whether a request for that many permits waits for more than half of an interval, in which
// those behind it go on with half of the share.
func (c *account) IsLarge(permits int64) bool { return permits > 1 && float64(permits) > c.most()/2 }

// has returns what is owed to a request for that many permits.
func (c *account) has(permits int64) float64 {
	if c.IsLarge(permits) {
		return c.saved + c.owed + 1e-6
	}
	return c.owed + 1e-6
}

// lacks returns how much is yet to be owed before a request for that many permits need not leave them to others; it is 0 or
// less if it need not.
func (c *account) lacks(permits int64) float64 {
	return min(float64(permits), c.most()) - c.has(permits)
}

// savesHalf reports whether half of what comes in is saved, as far as there is room.
func (c *account) savesHalf() bool { return c.saving || c.saved < 0 }

// accrueFor lets the account grow while the first waiter wants that many permits.
func (c *account) accrueFor(head int64, now time.Time, interval time.Duration) {
	c.saving = c.IsLarge(head)
	c.accrue(now, interval)
}

// accrue lets the account grow until now.
func (c *account) accrue(now time.Time, interval time.Duration) {
	d := c.target * surplus * float64(now.Sub(c.accrued)) / float64(interval)
	c.accrued = now
	if c.savesHalf() {
		part := max(0, min(d/2, c.most()-c.saved))
		c.saved, d = c.saved+part, d-part
	}
	c.owed = min(c.owed+d, c.most())
}

// pay takes from the account what was granted, as far as it was owed.
func (c *account) pay(permits int64) { c.owed = max(0, c.owed-float64(permits)) }

// Pay takes from the account what the first waiter has taken ahead of its return. A large one may owe a part of that.
func (c *account) Pay(permits int64) {
	if c.IsLarge(permits) {
		c.saved -= max(0, float64(permits)-c.owed)
	}
	c.pay(permits)
}

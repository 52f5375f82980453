// SPDX-License-Identifier: Apache-2.0

package fair

import "time"

// An account is what a process is owed of its share of the rate, in permits. It grows with time, and pays for all
// that the process is granted. A request that the account can pay for need not leave permits to others. So in the
// long run each process gets its share, however its callers come.
//
// Half of the income is saved while a large request is the first waiter, and while a large request is not yet paid
// for; small requests behind it use the other half. Small requests owe nothing: permits that others have left are not
// paid for afterwards.
//
// An account is part of a [Share].
type account struct {
	target  float64   // permits per interval that are the share of this process
	owed    float64   // to requests of any size; the share of an interval at most
	saved   float64   // for large ones; as much at most, and below 0 by what one is yet to pay
	saving  bool      // a large request is the first waiter
	accrued time.Time // when the account last grew
}

// surplus compensates for calls that come late; without it a process would never get its whole share.
const surplus = 1.05

// most returns the share of one interval.
func (c *account) most() float64 { return max(1, c.target) }

// IsLarge reports whether a request for the given number of permits waits for more than half of an interval. Those
// behind it then use half of the share.
func (c *account) IsLarge(permits int64) bool { return permits > 1 && float64(permits) > c.most()/2 }

// has returns how much of the account a request for the given number of permits may use.
func (c *account) has(permits int64) float64 {
	if c.IsLarge(permits) {
		return c.saved + c.owed + 1e-6
	}
	return c.owed + 1e-6
}

// lacks returns how much the account has to grow before a request for the given number of permits need not leave them
// to others. It is 0 or less if the account suffices.
func (c *account) lacks(permits int64) float64 {
	return min(float64(permits), c.most()) - c.has(permits)
}

// savesHalf reports whether half of the income is saved, as far as there is room.
func (c *account) savesHalf() bool { return c.saving || c.saved < 0 }

// accrueFor lets the account grow until now, while the first waiter wants head permits.
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

// pay deducts what was granted from the account, but no more than is owed.
func (c *account) pay(permits int64) { c.owed = max(0, c.owed-float64(permits)) }

// Pay deducts the permits that the first waiter has reserved. A large one may leave a debt for a part of them.
func (c *account) Pay(permits int64) {
	if c.IsLarge(permits) {
		c.saved -= max(0, float64(permits)-c.owed)
	}
	c.pay(permits)
}

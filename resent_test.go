// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"io"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// After a lost reply the call is sent again, and what was granted once is taken once.
func TestLostReplyIsAskedForAgain(t *testing.T) {
	for _, lost := range []int64{1, 2, 3} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			f := inject(w, true, io.EOF)
			f.left.Store(lost)
			w.granted(4)
			require.Zero(t, f.left.Load())
			require.EqualValues(t, 6, w.value())
			used, members := w.used()
			require.EqualValues(t, 4, used)
			require.Equal(t, 1, members)
		})
	}
	// Also with the last permits, when the call that is sent again finds none left but its own grant.
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		f := inject(w, true, io.EOF)
		f.left.Store(1)
		w.granted(10)
		require.Zero(t, w.value())
	})
}

// TestReleaseIsNotSentAgain checks that a release whose reply is lost is not sent again: it would give back what others hold.
func TestReleaseIsNotSentAgain(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(5)
		require.NoError(t, w.l.Release(w.ctx, 1))
		f := inject(w, true, io.EOF)
		f.left.Store(1)
		require.ErrorIs(t, w.l.Release(w.ctx, 1), io.EOF)
		require.EqualValues(t, 1, f.sent.Load())
		w.available(7)
	})
}

// TestListThatIsSentAgain checks that a list which something below this package sends again takes its permits once,
// and that it is granted what it was granted the first time even if there would be too little for a second time.
func TestListThatIsSentAgain(t *testing.T) {
	inResends(t, overall(10, time.Minute), func(t *testing.T, w *world, twice *resender) {
		l := append(w.others(overall(10, time.Minute), Rate{Type: PerClient, Permits: 10, Interval: time.Minute}), w.l)
		for i := range 3 {
			r := must(w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 3}, Demand{l[1], 2}, Demand{l[2], 1}))(t)
			w.same(AllResult{Granted: true}, r)
			for j, each := range []int64{3, 2, 1} {
				left := 10 - each*int64(i+1)
				w.has(l[j], left)
				w.holds(l[j], 10, 10-left)
			}
		}
		// One permit of the first is left. A rejection is a rejection both times.
		r := must(w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 2}, Demand{l[1], 1}))(t)
		w.same(AllResult{RejectedBy: l[0], Wait: time.Minute}, r)
		w.has(l[1], 4)
		// What expires meanwhile is reclaimed once.
		w.at(time.Minute)
		r = must(w.client.TryAcquireAll(w.ctx, 0, Demand{l[0], 7}, Demand{l[1], 5}))(t)
		w.same(AllResult{Granted: true}, r)
		for j, used := range []int64{7, 5} {
			w.holds(l[j], 10, used)
		}
	})
}

// TestReservationThatIsSentAgain checks the same for permits that a list reserves.
func TestReservationThatIsSentAgain(t *testing.T) {
	for _, free := range []int64{9, 5, 4, 2} {
		inResends(t, overall(10, time.Minute), func(t *testing.T, w *world, twice *resender) {
			twice.on.Store(false)
			w.granted(10 - free)
			twice.on.Store(true)
			v := permit.Reservation{ID: w.client.redis.NewID()}
			for _, want := range []int64{4, 3, 4, 0, 1} {
				v.Want = want
				a := must(w.l.redis.Reserve(w.ctx, v))(t)
				if want > free { // all or nothing
					want = min(want, v.Held)
				}
				require.Equal(t, want, a.Held)
				w.holds(w.l, 10, 10-free+a.Held)
				v.Held = a.Held
			}
		})
	}
}

// TestOperationsThatAreSentAgain checks that value and the members add up to the rate after every other script that is
// sent again, and that all but a release, which nothing identifies, have the effect of one.
func TestOperationsThatAreSentAgain(t *testing.T) {
	for _, rate := range []Rate{overall(10, time.Minute), {Type: PerClient, Permits: 10, Interval: time.Minute}} {
		inResends(t, rate, func(t *testing.T, w *world, twice *resender) {
			holds := func(total, used int64) {
				t.Helper()
				w.holds(w.l, total, used)
			}
			w.granted(3)
			holds(10, 3)
			w.granted(2)
			w.granted(2)
			w.rejected(4, time.Minute)
			holds(10, 7)
			id := w.client.redis.NewID()
			grant := permit.Grant{ID: id.Run(0), Permits: 3}
			twice.on.Store(false)
			a := w.ask(permit.Batch{ID: id, Type: permit.Type(rate.Type), Runs: []permit.Run{{Permits: 3, Count: 1}}})
			require.EqualValues(t, 1, a.Granted[0])
			twice.on.Store(true)
			grant.Keep = 1
			require.NoError(t, w.l.redis.Refund(w.ctx, permit.Type(rate.Type), grant))
			holds(10, 8)
			require.NoError(t, w.l.Release(w.ctx, 2)) // twice
			holds(10, 4)
			lower := rate
			lower.Permits = 3
			require.NoError(t, w.l.SetRate(w.ctx, lower, KeepState()))
			holds(3, 3)
			require.NoError(t, w.l.SetRate(w.ctx, rate, KeepState()))
			holds(10, 4)
			require.NoError(t, healed(w.ctx, w.l, permit.Type(rate.Type), permit.Checked))
			holds(10, 4)
			require.NoError(t, w.l.CoolDown(w.ctx, w.epoch.Add(time.Hour)))
			holds(10, 10)
			require.False(t, must(w.l.Admin().LiftCoolDown(w.ctx))(t), "the second one found none")
			holds(10, 4)
			require.False(t, must(w.l.TrySetRate(w.ctx, lower))(t))
			must(w.l.Admin().Expire(w.ctx, time.Hour))(t)
			must(w.l.Admin().ClearExpire(w.ctx))(t)
			w.available(6)
			holds(10, 4)
			w.at(time.Minute)
			w.granted(4)
			holds(10, 4)
			require.False(t, must(w.l.Admin().Delete(w.ctx))(t), "the second one found nothing")
			require.Zero(t, w.rdb.Exists(w.ctx, keysAll(w.l, Overall)...).Val())
		})
	}
}

// overfill puts a state into the keys that holds 900 permits more than the rate of 2,000, in a set of 1,300 members
// of up to three permits, which is too large for one call.
func (w *world) overfill() {
	w.t.Helper()
	for i := range 1300 {
		w.put(time.Duration(i)*time.Millisecond-2*time.Second, grant(uint32(1+i%3)))
	}
	used, _ := w.used()
	w.setValue(2900 - used)
}

// TestHealThatIsSentAgain checks that what is too much is taken out of a large set once, and to the permit, if something
// below this package sends the request again: the grants behind it are in use, and their permits must not be free.
func TestHealThatIsSentAgain(t *testing.T) {
	for _, first := range []bool{false, true} {
		inResends(t, overall(2000, time.Minute), func(t *testing.T, w *world, twice *resender) {
			twice.only, twice.first = scripts.Heal, first
			w.overfill()
			used, _ := w.used()
			require.NoError(t, healed(w.ctx, w.l, permit.Overall, permit.Checked))
			w.holds(w.l, 2000, used-900)
		})
	}
}

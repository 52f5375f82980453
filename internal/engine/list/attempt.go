// SPDX-License-Identifier: Apache-2.0

package list

import (
	"context"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A attempt is one attempt of a list to reserve its permits. It has a goroutine of its own, so that the
// caller can leave at once.
type attempt struct {
	*work
	w    *waiter
	list []listPart
	stop chan struct{} // closed when the caller has left

	holds   []*engine.Hold // of the limiters whose callers are held up
	holding sync.Mutex     // guards holds
}

// run makes the attempt. What was granted to a caller that has left goes back, too.
func (s *attempt) run(ctx context.Context) {
	a, err := s.attempt(ctx)
	s.letGo()
	s.account(a.Granted)
	if err == nil && !a.Granted {
		s.refund()
	}
	if ended := s.end(a, err); err != nil || !ended {
		s.refund()
	}
}

// attempt takes its places first. Then it begins with the limiter that takes longest, and begins with each other one when
// it takes no longer than the rest of that.
func (s *attempt) attempt(ctx context.Context) (reply, error) {
	if err := reconcileAll(ctx, s.w.parts); err != nil {
		return nothing, err // it names the limiter
	}
	if a, ok, err := s.standAll(ctx); !ok {
		return a, err
	}
	for {
		if i, err := s.lookAll(ctx); err != nil {
			return nothing, err
		} else if i >= 0 {
			return s.rejectedBy(i, 0), nil
		}
		last := s.last()
		if last < 0 {
			granted, err := s.takeAll(ctx)
			if err != nil {
				return nothing, err
			}
			if granted {
				return s.granted(), nil
			}
			if last = s.last(); last < 0 {
				last = 0
			}
		}
		now, due := time.Now(), s.list[last].due
		next := due
		for i := range s.list {
			v := &s.list[i]
			if !v.Complete() && !v.hasBegun() && !v.due.IsZero() {
				if v.look = due.Add(-v.takes); !v.look.After(now) && due.Sub(now) <= maxReserved*v.Rate.Interval {
					v.begun = now
				}
			}
			tooLong := v.hasBegun() && due.After(v.begun.Add(maxReserved*v.Rate.Interval)) || !v.hasBegun() && i == last
			if tooLong || s.w.isLate(0) || s.hasLeft() {
				return s.rejectedBy(last, due.Sub(now)), nil
			}
			if !v.Complete() && !v.due.IsZero() && v.look.Before(next) {
				next = v.look
			}
			if v.Holds() && v.Renewal().Before(next) {
				next = v.Renewal()
			}
		}
		if next.After(now) {
			s.sleep(next.Sub(now))
		}
	}
}

// granted returns the reply that all reservations are grants now.
func (s *attempt) granted() reply {
	parts := make([]part, len(s.list))
	for i := range s.list {
		parts[i].asked = link.Asked{Type: s.list[i].Type, ID: s.list[i].ID}
	}
	return allGranted(parts)
}

// last returns the index of the limiter that is due last among those that reject, or -1.
func (s *attempt) last() int {
	last := -1
	for i := range s.list {
		if v := &s.list[i]; !v.Complete() && !v.due.IsZero() && (last < 0 || v.due.After(s.list[last].due)) {
			last = i
		}
	}
	return last
}

// rejectedBy returns the reply that the i-th limiter keeps the list waiting.
func (s *attempt) rejectedBy(i int, wait time.Duration) reply {
	return rejection(i, &permit.Reply{Wait: wait, Rate: s.list[i].Rate})
}

// lookAll takes what has come back, renews what is held, and asks how long the rest takes. It begins with the limiters
// whose permits are being gathered, since peers may want these at this very instant. If the list has lost its place in one of
// them, lookAll returns its index, otherwise -1.
func (s *attempt) lookAll(ctx context.Context) (lost int, err error) {
	for _, begun := range []bool{true, false} {
		for i := range s.list {
			v := &s.list[i]
			if v.hasBegun() != begun {
				continue
			}
			ask := s.estimate
			if begun {
				ask = s.gather
			}
			if err := ask(ctx, v); err != nil {
				return -1, err
			}
			if v.Last.Place > 1 {
				return i, nil
			}
		}
	}
	return -1, nil
}

// isDue reports whether something is to be done for v.
func (s *attempt) isDue(v *listPart, now time.Time) bool {
	if now.Before(v.look) && (!v.Holds() || now.Before(v.Renewal())) {
		return false
	}
	return !s.hasLeft()
}

// estimate asks how long it takes to gather the permits of v, if it is due.
func (s *attempt) estimate(ctx context.Context, v *listPart) error {
	now := time.Now()
	if !s.isDue(v, now) {
		return nil
	}
	if v.Last.Place > 0 {
		if err := v.Stand(ctx); err != nil || v.Last.Place > 1 {
			return err
		}
	}
	wait := v.Last.Wait
	if v.Last.Place == 0 {
		var err error
		if wait, err = v.Ask(ctx, v.Permits); err != nil {
			return err
		}
	}
	v.due, v.look, v.takes = time.Time{}, now, wait
	if wait > 0 {
		v.due = now.Add(wait)
	}
	return nil
}

// gather takes what has come back for v, if it is due, and renews what v holds. While v holds less than it wants the
// callers of this process are held up.
func (s *attempt) gather(ctx context.Context, v *listPart) error {
	now := time.Now()
	if !s.isDue(v, now) {
		return nil
	}
	wait, err := v.take(ctx)
	if err != nil {
		return err
	}
	if v.Complete() {
		v.due, v.look = time.Time{}, v.Renewal()
		if v.hold != nil {
			v.hold.Release()
			v.hold = nil
		}
		return nil
	}
	if v.Last.Held > 0 {
		s.holdUp(v)
	}
	v.look = now.Add(min(wait, max(v.Rate.Interval/2, time.Millisecond)))
	v.due = now.Add(wait)
	return nil
}

// takeAll renews what is held and takes the rest. If one rejects, only what has been gathered stays.
func (s *attempt) takeAll(ctx context.Context) (granted bool, err error) {
	granted = true
	for i := range s.list {
		v := &s.list[i]
		v.Ahead = v.Last.Place == 1 && !v.Complete()
		grow := v.GrowToAll
		if v.hasBegun() {
			grow = v.Grow
		}
		if err := grow(ctx); err != nil {
			return false, err
		}
		if v.Complete() {
			continue
		}
		granted = false
		if !v.Ahead || v.Last.Lacking == 0 {
			wait, err := v.Ask(ctx, v.Permits-v.Last.Held)
			if err != nil {
				return false, err
			}
			v.Last.Wait = max(wait, time.Millisecond) // 0 if lost permits were found
		}
		v.look, v.takes = time.Now(), v.Last.Wait
		v.due = v.look.Add(v.Last.Wait)
	}
	for i := range s.list {
		v := &s.list[i]
		if !granted && !v.hasBegun() && v.Ahead && v.Complete() {
			v.begun = time.Now() // it has left its place
		} else if !granted && !v.hasBegun() && v.Last.Held > 0 {
			if err := v.Drop(ctx); err != nil {
				return false, err
			}
		}
	}
	return granted, nil
}

// account prevents the limiters from being reserved until the idle time is made up for.
func (s *attempt) account(granted bool) {
	for i := range s.list {
		v := &s.list[i]
		if !v.hasBegun() || v.Rate.Permits == 0 {
			continue
		}
		v.Count()
		d := v.Idle / idleShare / float64(v.Rate.Permits)
		if !granted {
			d = max(d, time.Since(v.begun).Seconds()/idleShare, v.Rate.Interval.Seconds())
		}
		s.w.lists.contenders.pause(v.Link.Key, v.begun.Add(time.Duration(d*float64(time.Second))))
	}
}

// refund gives back what is held.
func (s *attempt) refund() {
	for i := range s.list {
		if v := &s.list[i]; v.Holds() {
			v.Refund()
		}
	}
}

func (s *attempt) sleep(d time.Duration) {
	if w := s.w; !w.deadline.IsZero() {
		d = min(d, time.Until(w.deadline))
	}
	retry.SleepOr(d, s.stop, s.w.engine.Closed())
}

// holdUp makes the other callers of this process wait, those in the queue and those that try, so that what comes
// back is gathered.
func (s *attempt) holdUp(v *listPart) {
	s.holding.Lock()
	defer s.holding.Unlock()
	if v.hold == nil && !s.hasLeft() {
		v.hold = v.handle.Hold()
		s.holds = append(s.holds, v.hold)
	}
}

// letGo lets all callers go on that are held up.
func (s *attempt) letGo() {
	s.holding.Lock()
	defer s.holding.Unlock()
	for _, x := range s.holds {
		x.Release()
	}
	s.holds = nil
}

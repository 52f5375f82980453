package engine

import (
	"context"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A listAttempt is one attempt of a list to reserve its permits. It has a goroutine of its own, so that the
// caller can leave at once.
type listAttempt struct {
	w    *listWaiter
	list []listPart
	stop chan struct{} // closed when the caller has left
	done chan struct{} // closed when the attempt is over
	a    listReply
	err  error

	mu    sync.Mutex
	left  bool       // the caller has left
	ended bool       // the attempt is over
	lines []*limiter // whose callers are held up
}

// A listPart is the reservation of one limiter of a list, with what decides when something is done for it. As long as
// it has not begun, it holds nothing, except while takeAll tries whether everything is free.
type listPart struct {
	reservation
	begun time.Time     // when gathering began; zero as long as what others leave is enough
	due   time.Time     // when all of it can be gathered; zero if that is now, or it has been
	takes time.Duration // how long gathering takes, as of the last question; before it has begun
	look  time.Time     // when there may be more, or it is time to begin
	line  *limiter      // whose callers are held up in the meantime, or nil
}

// hasBegun reports whether permits are being gathered.
func (v *listPart) hasBegun() bool { return !v.begun.IsZero() }

// run makes the attempt. What was granted to a caller that has left goes back, too.
func (s *listAttempt) run(ctx context.Context) {
	a, err := s.attempt(ctx)
	s.letGo()
	s.account(a.Granted)
	if err == nil && !a.Granted {
		s.refund()
	}
	s.mu.Lock()
	s.a, s.err = a, err
	s.ended = !s.left
	s.mu.Unlock()
	if s.ended {
		close(s.done)
	}
	if err != nil || !s.ended {
		s.refund()
	}
}

// attempt takes its places first. Then it begins with the limiter that takes longest, and begins with each other one when
// it takes no longer than the rest of that.
func (s *listAttempt) attempt(ctx context.Context) (listReply, error) {
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
			return s.refusedBy(i, 0), nil
		}
		last := s.last()
		if last < 0 {
			granted, err := s.takeAll(ctx)
			if err != nil {
				return nothing, err
			}
			if granted {
				return allGranted, nil
			}
			if last = s.last(); last < 0 {
				last = 0
			}
		}
		now, due := time.Now(), s.list[last].due
		next := due
		for i := range s.list {
			v := &s.list[i]
			if !v.whole() && !v.hasBegun() && !v.due.IsZero() {
				if v.look = due.Add(-v.takes); !v.look.After(now) && due.Sub(now) <= maxReserved*v.rate.Interval {
					v.begun = now
				}
			}
			tooLong := v.hasBegun() && due.After(v.begun.Add(maxReserved*v.rate.Interval)) || !v.hasBegun() && i == last
			if tooLong || s.w.isLate(0) || s.hasLeft() {
				return s.refusedBy(last, due.Sub(now)), nil
			}
			if !v.whole() && !v.due.IsZero() && v.look.Before(next) {
				next = v.look
			}
			if v.mustRenew() && v.renewal().Before(next) {
				next = v.renewal()
			}
		}
		if next.After(now) {
			s.sleep(next.Sub(now))
		}
	}
}

// last returns the index of the limiter that is due last among those that refuse, or -1.
func (s *listAttempt) last() int {
	last := -1
	for i := range s.list {
		if v := &s.list[i]; !v.whole() && !v.due.IsZero() && (last < 0 || v.due.After(s.list[last].due)) {
			last = i
		}
	}
	return last
}

// refusedBy returns the reply that the i-th limiter keeps the list waiting.
func (s *listAttempt) refusedBy(i int, wait time.Duration) listReply {
	return refusal(i, &permit.Reply{Wait: wait, Rate: s.list[i].rate})
}

// lookAll takes what has come back, renews what is held, and asks how long the rest takes. It begins with the limiters
// whose permits are being gathered, since peers may want these at this very instant. If the list has lost its place in one of
// them, lookAll returns its index, otherwise -1.
func (s *listAttempt) lookAll(ctx context.Context) (lost int, err error) {
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
			if v.place > 1 {
				return i, nil
			}
		}
	}
	return -1, nil
}

// mustRenew reports whether v holds permits or a place, which end an interval after the last call.
func (v *listPart) mustRenew() bool { return v.held > 0 || v.place > 0 }

// isDue reports whether something is to be done for v.
func (s *listAttempt) isDue(v *listPart, now time.Time) bool {
	if now.Before(v.look) && (!v.mustRenew() || now.Before(v.renewal())) {
		return false
	}
	return !s.hasLeft()
}

// estimate asks how long it takes to gather the permits of v, if it is due.
func (s *listAttempt) estimate(ctx context.Context, v *listPart) error {
	now := time.Now()
	if !s.isDue(v, now) {
		return nil
	}
	if v.place > 0 {
		if err := v.stand(ctx); err != nil || v.place > 1 {
			return err
		}
	}
	wait := v.wait
	if v.place == 0 {
		var err error
		if wait, err = v.waitFor(ctx, v.permits); err != nil {
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
func (s *listAttempt) gather(ctx context.Context, v *listPart) error {
	now := time.Now()
	if !s.isDue(v, now) {
		return nil
	}
	wait, err := v.take(ctx)
	if err != nil {
		return err
	}
	if v.whole() {
		v.due, v.look = time.Time{}, v.renewal()
		if v.line != nil {
			s.goOn(v.line)
			v.line = nil
		}
		return nil
	}
	if v.held > 0 {
		s.holdUp(v)
	}
	v.look = now.Add(min(wait, max(v.rate.Interval/2, time.Millisecond)))
	v.due = now.Add(wait)
	return nil
}

// takeAll renews what is held and takes the rest. If one refuses, only what has been gathered stays.
func (s *listAttempt) takeAll(ctx context.Context) (granted bool, err error) {
	granted = true
	for i := range s.list {
		v := &s.list[i]
		v.ahead = v.place == 1 && !v.whole()
		if err := v.send(ctx, v.permits, !v.hasBegun()); err != nil {
			return false, err
		}
		if v.whole() {
			continue
		}
		granted = false
		if !v.ahead || v.lacking == 0 {
			wait, err := v.waitFor(ctx, v.permits-v.held)
			if err != nil {
				return false, err
			}
			v.wait = max(wait, time.Millisecond) // 0 if lost permits were found
		}
		v.look, v.takes = time.Now(), v.wait
		v.due = v.look.Add(v.wait)
	}
	for i := range s.list {
		v := &s.list[i]
		if !granted && !v.hasBegun() && v.ahead && v.whole() {
			v.begun = time.Now() // it has left its place
		} else if !granted && !v.hasBegun() && v.held > 0 {
			if err := v.send(ctx, 0, false); err != nil {
				return false, err
			}
			v.h.Changed()
		}
	}
	return granted, nil
}

// account prevents the limiters from being reserved until the idle time is made up for.
func (s *listAttempt) account(granted bool) {
	for i := range s.list {
		v := &s.list[i]
		if !v.hasBegun() || v.rate.Permits == 0 {
			continue
		}
		v.count(v.held, v.lacking)
		d := v.idle / idleShare / float64(v.rate.Permits)
		if !granted {
			d = max(d, time.Since(v.begun).Seconds()/idleShare, v.rate.Interval.Seconds())
		}
		s.w.engine.contenders.pause(v.h.key, v.begun.Add(time.Duration(d*float64(time.Second))))
	}
}

// refund gives back what is held.
func (s *listAttempt) refund() {
	for i := range s.list {
		if v := &s.list[i]; v.mustRenew() || v.unsure {
			v.refund()
		}
	}
}

func (s *listAttempt) hasLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

func (s *listAttempt) sleep(d time.Duration) {
	if w := s.w; !w.deadline.IsZero() {
		d = min(d, time.Until(w.deadline))
	}
	retry.SleepOr(d, s.stop, s.w.engine.closed)
}

// holdUp makes the other callers of this process wait, those in line and those that try, so that what comes
// back is gathered.
func (s *listAttempt) holdUp(v *listPart) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left || v.line != nil {
		return
	}
	sh := v.h.shard
	sh.lock()
	defer sh.unlock()
	v.line = sh.limiterLocked(v.h)
	v.line.heldUpFor = s
	v.line.rearmLocked()
	s.lines = append(s.lines, v.line)
}

// letGo lets all callers go on that are held up.
func (s *listAttempt) letGo() {
	s.mu.Lock()
	lines := s.lines
	s.lines = nil
	s.mu.Unlock()
	for _, l := range lines {
		s.goOn(l)
	}
}

func (s *listAttempt) goOn(l *limiter) {
	l.shard.lock()
	defer l.shard.unlock()
	if l.heldUpFor == s {
		l.heldUpFor, l.nextAskAt = nil, time.Time{}
		l.scheduleLocked()
		l.rearmLocked()
	}
}

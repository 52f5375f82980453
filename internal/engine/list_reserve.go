package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// This file serves a list that would otherwise starve: limiters that are wanted by many refuse it in turns, or
// a peer in another process, which stands in no line of this one, always takes what the list waits for. The
// list then reserves permits in Redis, one limiter after another, and is granted all of them when it has them.
//
// A reservation is a grant that is moved to the present instant until it is used, so the window that counts it
// is exact. Meanwhile its permits lie idle. That is bounded by maxReserved at a time, and by idleShare in the
// long run.

const (
	// maxReserved is the number of intervals of a limiter for which a list reserves its permits, from when it
	// begins to gather them. If no other process competes, they are gathered after one interval, and so are
	// those of the other limiters.
	maxReserved = 4
	// idleShare is the part of a limiter's rate that may lie idle for lists, and the part of the time for which
	// lists that fail to gather its permits may hold up its callers. After an attempt the limiter is not
	// reserved until that is made up for.
	idleShare = 0.1
	// gatherSteps is the largest number of steps, each of them a call, in which permits are gathered that come
	// back one by one within an interval. In a long interval a step takes maxGatherStep.
	gatherSteps   = 100
	maxGatherStep = 100 * time.Millisecond
)

// starves reports whether the list that a refuses has been passed over: its limiters refuse in turns, or one
// has refused it for an interval, in which every permit came back once.
func (w *listWaiter) starves(a listReply) bool {
	return a.refused && (w.rebounds >= reboundsToReserve || a.rate.Interval > 0 && time.Since(w.boundSince) > a.rate.Interval)
}

// contend is what a starving list does after the reply a, and returns the next reply. The list reserves if it
// may, and otherwise waits until it may, outside of all lines. It reports false if the time of the caller is
// up.
func (w *listWaiter) contend(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	if a.rate.Interval > 0 && a.Wait > a.rate.Interval {
		// In a cool-down nobody gets anything. The line is the place to wait for its end.
		w.engine.contenders.leave(w)
		return w.standAndTry(ctx, a)
	}
	if i := w.olderAhead(); i >= 0 {
		a.Bound, a.Wait = i, time.Until(w.parts[i].h.grantableAt())
		return w.standAndTry(ctx, a)
	}
	w.engine.contenders.enter(w)
	may, at := w.engine.contenders.mayReserve(w)
	w.endTurns()
	if may {
		return w.reserve(ctx, a)
	}
	// Trying now and then costs others nothing; all lists together do so at most every other millisecond.
	d := max(a.Wait, a.rate.Interval/8, 2*time.Millisecond*time.Duration(w.engine.contenders.count()))
	d = min(d, max(w.engine.cfg.Recheck, a.Wait))
	if !at.IsZero() {
		d = min(d, time.Until(at))
	}
	slept, err := w.sleep(ctx, d, w.next)
	if err != nil || slept && w.isLate(0) {
		return a, false, err
	}
	if !slept || w.behindOthers() {
		return a, true, nil
	}
	next, err = w.try(ctx)
	return next, true, err
}

// A reservation is what a list has taken of one limiter before it has all of its permits.
type reservation struct {
	h       *Handle
	permits int64 // wanted
	typ     permit.Type
	id      permit.ID
	held    int64
	unsure  bool          // a call has been lost, so Redis may hold another number
	begun   time.Time     // when gathering began; zero as long as what others leave is enough
	due     time.Time     // when all of it can be gathered, as far as that is known
	wait    time.Duration // the time until due, as of the last question
	look    time.Time     // when there may be more, or it is time to begin
	moved   time.Time     // when it was last moved to the present
	rate    permit.Rate   // as last reported, without the type
	idle    float64       // permits × seconds
	line    *limiter      // whose callers are held up in the meantime, or nil
}

func (v *reservation) whole() bool        { return v.held == v.permits }
func (v *reservation) renewal() time.Time { return v.moved.Add(v.rate.Interval / 2) }

// A reservations is one attempt of a list to reserve its permits. It has a goroutine of its own, so that the
// caller can leave at once.
type reservations struct {
	w    *listWaiter
	list []reservation
	stop chan struct{} // closed when the caller has left
	done chan struct{} // closed when the attempt is over
	a    listReply
	err  error

	mu    sync.Mutex
	left  bool       // the caller has left
	ended bool       // the attempt is over
	lines []*limiter // whose callers are held up
}

// reserve gathers the permits of all limiters that refuse, so that they are complete at about the same time,
// until all are granted or may not be held any longer. What has not been granted by then goes back at once.
func (w *listWaiter) reserve(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	s := &reservations{w: w, stop: make(chan struct{}), done: make(chan struct{}), list: make([]reservation, len(w.parts))}
	for i, p := range w.parts {
		s.list[i] = reservation{h: p.h, permits: p.permits, typ: p.h.Type(), id: w.engine.cfg.Backends.NewID().Run(0)}
	}
	background, slow := context.WithoutCancel(ctx), w.engine.slowed.next()
	if err := w.inBackground(func() { s.run(background) }); err != nil {
		return a, true, err
	}
	timeUp, stop := w.timeUp()
	defer stop()
	for err == nil {
		select {
		case <-s.done:
			return s.a, true, s.err
		case <-ctx.Done():
			err = ctx.Err()
		case <-w.engine.closed:
			err = permit.ErrClosed
		case <-timeUp:
			err = fmt.Errorf("%w: reserve of %s: Redis did not reply in time", permit.ErrUnavailable, names(w.parts))
		case <-slow:
			slow = w.engine.slowed.next()
			if cause := w.downBecause(); cause != nil {
				err = fmt.Errorf("%w: reserve of %s: %w", permit.ErrUnavailable, names(w.parts), cause)
			}
		}
	}
	s.mu.Lock()
	s.left = !s.ended
	s.mu.Unlock()
	if !s.left {
		<-s.done
		return s.a, true, s.err
	}
	close(s.stop)
	s.letGo()
	return a, true, err
}

// run makes the attempt. What was granted to a caller that has left goes back, too.
func (s *reservations) run(ctx context.Context) {
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

// attempt begins with the limiter that takes longest, and begins with each other one when it takes no longer
// than the rest of that.
func (s *reservations) attempt(ctx context.Context) (listReply, error) {
	if err := reconcileAll(ctx, s.w.parts); err != nil {
		return nothing, err // it names the limiter
	}
	for {
		if err := s.lookAll(ctx); err != nil {
			return nothing, err
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
			if !v.whole() && v.begun.IsZero() && !v.due.IsZero() {
				if v.look = due.Add(-v.wait); !v.look.After(now) && due.Sub(now) <= maxReserved*v.rate.Interval {
					v.begun = now
				}
			}
			tooLong := !v.begun.IsZero() && due.After(v.begun.Add(maxReserved*v.rate.Interval)) || v.begun.IsZero() && i == last
			if tooLong || s.w.isLate(0) || s.hasLeft() {
				return refusal(last, &permit.Reply{Wait: due.Sub(now), Rate: s.list[last].rate}), nil
			}
			if !v.whole() && !v.due.IsZero() && v.look.Before(next) {
				next = v.look
			}
			if v.held > 0 && v.renewal().Before(next) {
				next = v.renewal()
			}
		}
		if next.After(now) {
			s.sleep(next.Sub(now))
		}
	}
}

// last returns the index of the limiter that is due last among those that refuse, or -1.
func (s *reservations) last() int {
	last := -1
	for i := range s.list {
		if v := &s.list[i]; !v.whole() && !v.due.IsZero() && (last < 0 || v.due.After(s.list[last].due)) {
			last = i
		}
	}
	return last
}

// lookAll takes what has come back, renews what is held, and asks how long the rest takes.
func (s *reservations) lookAll(ctx context.Context) error {
	for i := range 2 * len(s.list) { // first those that peers may want at this instant
		v, now := &s.list[i%len(s.list)], time.Now()
		switch {
		case v.begun.IsZero() == (i < len(s.list)):
			continue
		case now.Before(v.look) && (v.held == 0 || now.Before(v.renewal())), s.hasLeft():
			continue
		case v.begun.IsZero():
			wait, err := v.ask(ctx, v.permits)
			if err != nil {
				return err
			}
			v.due, v.look, v.wait = time.Time{}, now, wait
			if wait > 0 {
				v.due = now.Add(wait)
			}
			continue
		}
		if !v.whole() {
			s.holdUp(v)
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
			continue
		}
		v.look = now.Add(wait)
		if v.due.Before(v.look) {
			v.due = v.look
		}
	}
	return nil
}

// takeAll renews what is held and takes the rest, of each limiter all or nothing. If one refuses, only what has
// been gathered stays.
func (s *reservations) takeAll(ctx context.Context) (granted bool, err error) {
	granted = true
	for i := range s.list {
		v := &s.list[i]
		if err := v.send(ctx, v.permits, v.begun.IsZero()); err != nil {
			return false, err
		}
		if !v.whole() {
			granted = false
			wait, err := v.ask(ctx, v.permits-v.held)
			if err != nil {
				return false, err
			}
			v.look, v.wait = time.Now(), max(wait, time.Millisecond) // 0 if lost permits were found
			v.due = v.look.Add(v.wait)
		}
	}
	for i := range s.list {
		if v := &s.list[i]; !granted && v.begun.IsZero() && v.held > 0 {
			if err := v.send(ctx, 0, false); err != nil {
				return false, err
			}
			v.h.Changed()
		}
	}
	return granted, nil
}

// take takes as many permits as are free. If that is less than wanted, wait is how long it takes until there
// are more.
func (v *reservation) take(ctx context.Context) (wait time.Duration, err error) {
	for range 3 {
		if err := v.send(ctx, v.permits, false); err != nil || v.whole() {
			return 0, err
		}
		next := int64(1) // each permit as soon as it is back, because a peer may want it, too
		if v.rate.MinGap > 0 {
			next = v.permits - v.held
		}
		if wait, err = v.ask(ctx, next); err != nil || wait > 0 {
			return max(wait, min(v.rate.Interval/gatherSteps, maxGatherStep)), err
		}
	}
	return time.Millisecond, nil // others are always faster
}

// ask returns how long it takes until that many more permits are free.
func (v *reservation) ask(ctx context.Context, permits int64) (time.Duration, error) {
	a, err := (&part{h: v.h, permits: permits}).look(ctx)
	if err != nil {
		return 0, err
	}
	v.rate, v.typ = a.Rate, a.Rate.Type
	v.rate.Interval = min(v.rate.Interval, maxInterval)
	if a.Granted[0] > 0 {
		return 0, nil
	}
	return max(a.Wait, time.Millisecond), nil
}

// send makes the call until there is a reply.
func (v *reservation) send(ctx context.Context, want int64, whole bool) error {
	v.h.Touch()
	defer v.h.Touch()
	for range permit.MaxTypeChanges {
		var held int64
		var rate permit.Rate
		answered := false
		err := v.h.gated(ctx, "reserve", func(replay bool) (err error) {
			v.unsure = v.unsure || replay
			sent := time.Now()
			held, rate, err = v.h.backend.Reserve(ctx, v.call(want, whole))
			_, lost := err.(*retry.Error)
			answered = !lost
			v.h.noteReply(nil, sent, err)
			return err
		})
		v.unsure = v.unsure || !answered
		if other, ok := err.(*permit.WrongTypeError); ok {
			// What it held belongs to the other type, whose keys are no longer used.
			v.typ, v.held, v.unsure = other.Type, 0, false
			v.h.LearnType(other.Type)
			continue
		}
		if err != nil {
			return err
		}
		v.rate.Permits, v.rate.Interval = rate.Permits, min(rate.Interval, maxInterval)
		v.count(held)
		v.unsure = false
		return nil
	}
	return permit.TypeKeepsChanging("reserve", v.h.name)
}

// call returns the arguments of a call after which that many permits are held.
func (v *reservation) call(want int64, whole bool) permit.Reservation {
	return permit.Reservation{Type: v.typ, ID: v.id, Want: want, Held: v.held, Whole: whole, Unsure: v.unsure}
}

// count adds up what has lain idle.
func (v *reservation) count(held int64) {
	now := time.Now()
	if v.held > 0 {
		v.idle += float64(v.held) * now.Sub(v.moved).Seconds()
	}
	v.held, v.moved = held, now
}

// account prevents the limiters from being reserved until the idle time is made up for.
func (s *reservations) account(granted bool) {
	for i := range s.list {
		v := &s.list[i]
		if v.begun.IsZero() || v.rate.Permits == 0 {
			continue
		}
		v.count(v.held)
		d := v.idle / idleShare / float64(v.rate.Permits)
		if !granted {
			d = max(d, time.Since(v.begun).Seconds()/idleShare, v.rate.Interval.Seconds())
		}
		s.w.engine.contenders.rest(v.h.key, v.begun.Add(time.Duration(d*float64(time.Second))))
	}
}

// refund gives back what is held.
func (s *reservations) refund() {
	for i := range s.list {
		if v := &s.list[i]; v.held > 0 || v.unsure {
			v.refund()
		}
	}
}

// refund works even if the Engine is closed. If it fails, the permits are free again after one interval.
func (v *reservation) refund() {
	call := v.call(0, false)
	err := retry.Do(nil, nil, func(bool) error {
		_, _, err := v.h.backend.Reserve(context.Background(), call)
		return err
	})
	if _, lost := err.(*retry.Error); !lost {
		v.held, v.unsure = 0, false
		v.h.Changed()
	}
}

func (s *reservations) hasLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

func (s *reservations) sleep(d time.Duration) {
	if w := s.w; !w.deadline.IsZero() {
		d = min(d, time.Until(w.deadline))
	}
	retry.SleepOr(d, s.stop, s.w.engine.closed)
}

// holdUp makes the other callers of this process wait, those in line and those that try, so that what comes
// back is gathered.
func (s *reservations) holdUp(v *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left || v.line != nil {
		return
	}
	sh := v.h.shard
	sh.lock()
	defer sh.unlock()
	v.line = sh.limiterLocked(v.h)
	v.line.gatherer = s
	v.line.rearmLocked()
	s.lines = append(s.lines, v.line)
}

// letGo lets all callers go on that are held up.
func (s *reservations) letGo() {
	s.mu.Lock()
	lines := s.lines
	s.lines = nil
	s.mu.Unlock()
	for _, l := range lines {
		s.goOn(l)
	}
}

func (s *reservations) goOn(l *limiter) {
	l.shard.lock()
	defer l.shard.unlock()
	if l.gatherer == s {
		l.gatherer, l.nextAskAt = nil, time.Time{}
		l.scheduleLocked()
		l.rearmLocked()
	}
}

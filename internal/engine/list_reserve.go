package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// This file is what a list does that would starve: limiters which are wanted by many refuse it in turns, or a
// peer in another process, which stands in no line of ours, always takes what the list waits for. It then
// reserves permits in Redis, one limiter after another, and is granted all of them when it has them.
//
// A reservation is a grant that is moved to the present instant until it is used, so the window that counts
// it is exact. Meanwhile its permits lie idle. That is bounded: by maxReserved at a time, and by idleShare
// in the long run.

const (
	// maxReserved is for how many intervals of a limiter a list reserves its permits, from when it begins to
	// gather them. Without peers in other processes they are there after one interval, and so are those of the
	// others.
	maxReserved = 4
	// idleShare is the part of a limiter's rate that may lie idle for lists, and the part of the time for which lists that
	// fail to gather its permits hold up its callers. After that the limiter is not reserved until the time is made up for.
	idleShare = 0.1
	// gatherSteps is in how many steps of an interval permits are gathered at most that come back one by one: each
	// is a call. In a long interval a step is maxGatherStep.
	gatherSteps   = 100
	maxGatherStep = 100 * time.Millisecond
)

// contenders are the lists of an Engine that would starve, by the time at which their callers came. A list may
// reserve when no older one in here wants a limiter that it wants: so no two can hold what the other waits
// for, and the oldest is never passed.
type contenders struct {
	mu    sync.Mutex
	lists []*listWaiter
	rests map[string]time.Time // by hash key: until when the limiter is not reserved
}

func (c *contenders) enter(w *listWaiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.contends {
		return
	}
	w.contends = true
	if w.next == nil {
		w.next = make(chan struct{}, 1)
		for _, p := range w.parts {
			w.wants = append(w.wants, p.h.key)
		}
	}
	i := len(c.lists)
	for i > 0 && c.lists[i-1].seq > w.seq {
		i--
	}
	c.lists = slices.Insert(c.lists, i, w)
}

// leave takes w out, and wakes those that have waited for it.
func (c *contenders) leave(w *listWaiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.contends {
		return
	}
	w.contends = false
	i := slices.Index(c.lists, w)
	c.lists = slices.Delete(c.lists, i, i+1)
	for i := range c.lists {
		if w.overlaps(c.lists[i]) && !c.behind(i) {
			select {
			case c.lists[i].next <- struct{}{}:
			default:
			}
		}
	}
}

// behind reports whether an older list wants a limiter that the i-th wants. The lock is held.
func (c *contenders) behind(i int) bool {
	return slices.ContainsFunc(c.lists[:i], c.lists[i].overlaps)
}

// mayReserve reports whether it is w's turn to reserve. Otherwise it has to wait for an older list, or until
// the instant at which the last of its limiters may be reserved again.
func (c *contenders) mayReserve(w *listWaiter) (ok bool, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.behind(slices.Index(c.lists, w)) {
		return false, time.Time{}
	}
	now := time.Now()
	for _, hash := range w.wants {
		until, rests := c.rests[hash]
		if rests && !until.After(now) {
			delete(c.rests, hash)
		} else if until.After(at) {
			at = until
		}
	}
	return at.IsZero(), at
}

// rest has the limiter not reserved before that instant.
func (c *contenders) rest(hash string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for hash, at := range c.rests {
		if !at.After(now) {
			delete(c.rests, hash)
		}
	}
	if c.rests == nil {
		c.rests = map[string]time.Time{}
	}
	if until.After(now) && until.After(c.rests[hash]) {
		c.rests[hash] = until
	}
}

func (c *contenders) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lists)
}

func (w *listWaiter) overlaps(o *listWaiter) bool {
	return slices.ContainsFunc(w.wants, func(hash string) bool { return slices.Contains(o.wants, hash) })
}

// starves reports whether the list that a has refused has been passed over: its limiters refuse in turns, or
// one has refused it for an interval, in which every permit came back once.
func (w *listWaiter) starves(a listReply) bool {
	return a.refused && (w.rebounds >= reboundsToReserve || a.rate.Interval > 0 && time.Since(w.boundSince) > a.rate.Interval)
}

// contend is what a starving list does between two answers, and the next answer: it reserves when it is its
// turn to, and otherwise waits for that, outside of all lines. ok is false when its time is up.
func (w *listWaiter) contend(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	if a.rate.Interval > 0 && a.Wait > a.rate.Interval {
		// A cool-down: nobody can have anything. The line is the place to wait for its end.
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
	// Trying now and then costs the others nothing; all lists together do so every other millisecond at most.
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

// A reservation is what a list has taken of one limiter before it has all.
type reservation struct {
	h       *Handle
	permits int64 // wanted
	typ     permit.Type
	id      permit.ID
	held    int64
	unsure  bool          // it may hold others than held: a call has been lost
	begun   time.Time     // when it began to be gathered; zero: what others leave is enough, so far
	due     time.Time     // when all of it can be there, as far as that is known
	wait    time.Duration // until then, when that was asked
	look    time.Time     // when there may be more, or it is time to begin
	moved   time.Time     // when it was last moved to the present
	rate    permit.Rate   // as last told, without the type
	idle    float64       // permits × seconds
	line    *limiter      // whose callers are held up meanwhile, nil for none
}

func (v *reservation) whole() bool        { return v.held == v.permits }
func (v *reservation) renewal() time.Time { return v.moved.Add(v.rate.Interval / 2) }

// reservations are those of one attempt of a list. They have a goroutine of their own, so that the caller can
// leave at once.
type reservations struct {
	w    *listWaiter
	list []reservation
	stop chan struct{} // closed when the caller has left
	done chan struct{} // closed when the attempt is over
	a    listReply
	err  error

	mu    sync.Mutex
	left  bool       // the caller has
	ended bool       // the attempt has
	lines []*limiter // that are held up
}

// reserve gathers the permits of all limiters that refuse, so that they are there at about the same time, until
// all are granted or what it has may be held no longer. What it has not been granted goes back at once.
func (w *listWaiter) reserve(ctx context.Context, a listReply) (next listReply, ok bool, err error) {
	s := &reservations{w: w, stop: make(chan struct{}), done: make(chan struct{}), list: make([]reservation, len(w.parts))}
	for i, p := range w.parts {
		s.list[i] = reservation{h: p.h, permits: p.permits, typ: p.h.Type(), id: w.engine.cfg.Backends.NewID().Run(0)}
	}
	background := context.WithoutCancel(ctx)
	if err := w.inBackground(func() { s.run(background) }); err != nil {
		return a, true, err
	}
	var timeUp <-chan time.Time
	if !w.deadline.IsZero() {
		t := time.NewTimer(time.Until(w.deadline) + Grace)
		defer t.Stop()
		timeUp = t.C
	}
	select {
	case <-s.done:
		return s.a, true, s.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.engine.closed:
		err = permit.ErrClosed
	case <-timeUp:
		err = fmt.Errorf("%w: reserve of %s: no answer in time", permit.ErrUnavailable, names(w.parts))
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

// attempt begins with the limiter that takes longest, and with each of the others when that takes no longer.
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

// last returns the place of the limiter that is due last, of those that refuse; -1 when none does.
func (s *reservations) last() int {
	last := -1
	for i := range s.list {
		if v := &s.list[i]; !v.whole() && !v.due.IsZero() && (last < 0 || v.due.After(s.list[last].due)) {
			last = i
		}
	}
	return last
}

// lookAll takes what has come back, moves what is held, and asks for how long the rest takes.
func (s *reservations) lookAll(ctx context.Context) error {
	for i := range 2 * len(s.list) { // first those that peers may be after at this instant
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

// takeAll moves what is held to the present and takes the rest, all or nothing of each limiter. When one
// refuses, only what has been gathered stays.
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
			v.look, v.wait = time.Now(), max(wait, time.Millisecond) // 0: healed meanwhile
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

// take takes as much as there is. When that is less than wanted, wait is how long it takes until there is more.
func (v *reservation) take(ctx context.Context) (wait time.Duration, err error) {
	for range 3 {
		if err := v.send(ctx, v.permits, false); err != nil || v.whole() {
			return 0, err
		}
		next := int64(1) // each as soon as it is back: a peer may be after it, too
		if v.rate.MinGap > 0 {
			next = v.permits - v.held
		}
		if wait, err = v.ask(ctx, next); err != nil || wait > 0 {
			return max(wait, min(v.rate.Interval/gatherSteps, maxGatherStep)), err
		}
	}
	return time.Millisecond, nil // others are always faster
}

// ask returns how long it takes until there are so many permits more.
func (v *reservation) ask(ctx context.Context, permits int64) (time.Duration, error) {
	a, err := (&part{h: v.h, permits: permits}).look(ctx)
	if err != nil {
		return 0, err
	}
	v.rate, v.typ = a.Rate, a.Rate.Type
	if a.Granted[0] > 0 {
		return 0, nil
	}
	return max(a.Wait, time.Millisecond), nil
}

// send makes the call, until there is a reply.
func (v *reservation) send(ctx context.Context, want int64, whole bool) error {
	v.h.Touch()
	defer v.h.Touch()
	for range permit.MaxTypeChanges {
		var held int64
		var rate permit.Rate
		answered := false
		err := v.h.gated(ctx, "reserve", func(replay bool) (err error) {
			v.unsure = v.unsure || replay
			held, rate, err = v.h.backend.Reserve(ctx, v.call(want, whole))
			_, lost := err.(*retry.Error)
			answered = !lost
			v.h.noteReply(err)
			return err
		})
		v.unsure = v.unsure || !answered
		if other, ok := err.(*permit.WrongTypeError); ok {
			// What it held was of the other type, whose keys nobody looks at any more.
			v.typ, v.held, v.unsure = other.Type, 0, false
			v.h.LearnType(other.Type)
			continue
		}
		if err != nil {
			return err
		}
		v.rate.Permits, v.rate.Interval = rate.Permits, rate.Interval
		v.count(held)
		v.unsure = false
		return nil
	}
	return permit.TypeKeepsChanging("reserve", v.h.name)
}

// call returns what asks for so many permits from now on.
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

// account has the limiters not reserved until what lay idle is made up for.
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

// refund returns what is held.
func (s *reservations) refund() {
	for i := range s.list {
		if v := &s.list[i]; v.held > 0 || v.unsure {
			v.refund()
		}
	}
}

// refund is done also when the Engine is closed. When it fails the permits are back after one interval.
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

// holdUp has the others of this process wait, those that are in line and those that try: what comes back
// is gathered.
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

// letGo has all go on that are held up.
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

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
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

// contenders are the lists of a Client that would starve, by the time at which their callers came. A list may
// reserve when no older one in here wants a limiter that it wants: so no two can hold what the other waits
// for, and the oldest is never passed.
type contenders struct {
	mu    sync.Mutex
	lists []*allWaiter
	rests map[string]time.Time // by hash key: until when the limiter is not reserved
}

func (c *contenders) enter(w *allWaiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.contends {
		return
	}
	w.contends = true
	if w.next == nil {
		w.next = make(chan struct{}, 1)
		for _, p := range w.parts {
			w.wants = append(w.wants, p.Limiter.keys.hash)
		}
	}
	i := len(c.lists)
	for i > 0 && c.lists[i-1].seq > w.seq {
		i--
	}
	c.lists = slices.Insert(c.lists, i, w)
}

// leave takes w out, and wakes those that have waited for it.
func (c *contenders) leave(w *allWaiter) {
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
func (c *contenders) mayReserve(w *allWaiter) (ok bool, at time.Time) {
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

func (w *allWaiter) overlaps(o *allWaiter) bool {
	return slices.ContainsFunc(w.wants, func(hash string) bool { return slices.Contains(o.wants, hash) })
}

// starves reports whether the list that a has refused has been passed over: its limiters refuse in turns, or
// one has refused it for an interval, in which every permit came back once.
func (w *allWaiter) starves(a allAnswer) bool {
	return a.refused && (w.moves >= movesToReserve || a.rate.Interval > 0 && time.Since(w.boundSince) > a.rate.Interval)
}

// contend is what a starving list does between two answers, and the next answer: it reserves when it is its
// turn to, and otherwise waits for that, outside of all lines. ok is false when its time is up.
func (w *allWaiter) contend(ctx context.Context, a allAnswer) (next allAnswer, ok bool, err error) {
	if a.rate.Interval > 0 && a.Wait > a.rate.Interval {
		// A cool-down: nobody can have anything. The line is the place to wait for its end.
		w.client.lists.leave(w)
		return w.standAndTry(ctx, a)
	}
	if i := w.olderAhead(); i >= 0 {
		a.bound, a.Limiter, a.Wait = i, w.parts[i].Limiter, time.Until(w.parts[i].Limiter.freeAt())
		return w.standAndTry(ctx, a)
	}
	w.client.lists.enter(w)
	may, at := w.client.lists.mayReserve(w)
	w.endTurns()
	if may {
		return w.reserve(ctx, a)
	}
	// Trying now and then costs the others nothing; all lists together do so every other millisecond at most.
	d := max(a.Wait, a.rate.Interval/8, 2*time.Millisecond*time.Duration(w.client.lists.count()))
	d = min(d, max(w.client.cfg.recheck, a.Wait))
	if !at.IsZero() {
		d = min(d, time.Until(at))
	}
	slept, err := w.sleep(ctx, d, w.next)
	if err != nil || slept && w.late(0) {
		return a, false, err
	}
	if !slept || w.behindOthers() {
		return a, true, nil
	}
	next, err = w.try(ctx)
	return next, true, err
}

// standAndTry asks for all when it is w's turn in the line of the limiter that bound. ok is false when its time is up.
func (w *allWaiter) standAndTry(ctx context.Context, a allAnswer) (next allAnswer, ok bool, err error) {
	if ok, err := w.stand(ctx, a); !ok || err != nil {
		return a, ok, err
	}
	next, err = w.try(ctx)
	return next, true, err
}

// behindOthers reports whether what is free of a limiter is being kept for somebody else.
func (w *allWaiter) behindOthers() bool {
	return slices.ContainsFunc(w.parts, func(p part) bool {
		p.Limiter.bucket.mu.Lock()
		defer p.Limiter.bucket.mu.Unlock()
		e := p.Limiter.bucket.find(p.Limiter.keys.hash)
		return e != nil && (e.held != nil || e.reserver != nil || e.yield())
	})
}

// olderAhead returns the place of the first limiter in whose line somebody stands who came before w, or -1.
func (w *allWaiter) olderAhead() int {
	return slices.IndexFunc(w.parts, func(p part) bool {
		p.Limiter.bucket.mu.Lock()
		defer p.Limiter.bucket.mu.Unlock()
		e := p.Limiter.bucket.find(p.Limiter.keys.hash)
		return e != nil && e.waiters.first != nil && e.waiters.first.seq < w.seq
	})
}

// A reservation is what a list has taken of one limiter before it has all.
type reservation struct {
	l       *RateLimiter
	permits int64 // wanted
	typ     RateType
	id      requestID
	held    int64
	unsure  bool          // it may hold others than held: a call has been lost
	begun   time.Time     // when it began to be gathered; zero: what others leave is enough, so far
	due     time.Time     // when all of it can be there, as far as that is known
	wait    time.Duration // until then, when that was asked
	look    time.Time     // when there may be more, or it is time to begin
	moved   time.Time     // when it was last moved to the present
	rate    Rate          // as last told, without the type
	idle    float64       // permits × seconds
	line    *engine       // whose callers are held up meanwhile, nil for none
}

func (v *reservation) whole() bool        { return v.held == v.permits }
func (v *reservation) renewal() time.Time { return v.moved.Add(v.rate.Interval / 2) }

// reservations are those of one attempt of a list. They have a goroutine of their own, so that the caller can
// leave at once.
type reservations struct {
	w    *allWaiter
	list []reservation
	stop chan struct{} // closed when the caller has left
	done chan struct{} // closed when the attempt is over
	a    allAnswer
	err  error

	mu    sync.Mutex
	left  bool      // the caller has
	ended bool      // the attempt has
	lines []*engine // that are held up
}

// reserve gathers the permits of all limiters that refuse, so that they are there at about the same time, until
// all are granted or what it has may be held no longer. What it has not been granted goes back at once.
func (w *allWaiter) reserve(ctx context.Context, a allAnswer) (next allAnswer, ok bool, err error) {
	s := &reservations{w: w, stop: make(chan struct{}), done: make(chan struct{}), list: make([]reservation, len(w.parts))}
	for i, p := range w.parts {
		s.list[i] = reservation{l: p.Limiter, permits: p.Permits, typ: p.Limiter.hint(), id: w.client.requestID().run(0)}
	}
	b := w.parts[0].Limiter.bucket
	b.mu.Lock()
	if b.closed { // Close waits for those that were counted before
		b.mu.Unlock()
		return a, true, ErrClosed
	}
	w.client.calls.Add(1)
	b.mu.Unlock()
	go s.run(context.WithoutCancel(ctx))
	var timeUp <-chan time.Time
	if !w.deadline.IsZero() {
		t := time.NewTimer(time.Until(w.deadline) + grace)
		defer t.Stop()
		timeUp = t.C
	}
	select {
	case <-s.done:
		return s.a, true, s.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.client.closed:
		err = ErrClosed
	case <-timeUp:
		err = fmt.Errorf("%w: reserve of %s: no answer in time", ErrUnavailable, names(w.parts))
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
	defer s.w.client.calls.Done()
	a, err := s.attempt(ctx)
	s.letGo()
	s.account(a.Granted)
	if err == nil && !a.Granted {
		s.giveBack()
	}
	s.mu.Lock()
	s.a, s.err = a, err
	s.ended = !s.left
	s.mu.Unlock()
	if s.ended {
		close(s.done)
	}
	if err != nil || !s.ended {
		s.giveBack()
	}
}

// attempt begins with the limiter that takes longest, and with each of the others when that takes no longer.
func (s *reservations) attempt(ctx context.Context) (allAnswer, error) {
	none := allAnswer{bound: -1}
	if err := s.w.client.payDebts(ctx, s.w.parts); err != nil {
		return none, err // it names the limiter that owes
	}
	for {
		if err := s.lookAll(ctx); err != nil {
			return none, err
		}
		last := s.last()
		if last < 0 {
			granted, err := s.takeAll(ctx)
			if err != nil {
				return none, err
			}
			if granted {
				return allAnswer{AllResult: AllResult{Granted: true}, bound: -1}, nil
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
			if tooLong || s.w.late(0) || s.hasLeft() {
				return refusal(s.w.parts, last, answer{wait: due.Sub(now), rate: s.list[last].rate}), nil
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
			v.l.changed()
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
	p := part{Demand: Demand{Limiter: v.l, Permits: permits}}
	a, err := p.ask(ctx, true)
	if err != nil {
		return 0, err
	}
	v.rate, v.typ = a.rate, a.rate.Type
	if a.granted[0] > 0 {
		return 0, nil
	}
	return max(a.wait, time.Millisecond), nil
}

// send makes the call, until Redis has answered it.
func (v *reservation) send(ctx context.Context, want int64, whole bool) error {
	for range maxFlips {
		raw, err := v.l.answered(ctx, reserveScript, func(replay bool) ([]any, error) {
			v.unsure = v.unsure || replay
			return v.command(want, whole)
		})
		if err != nil {
			v.unsure = true
			return err
		}
		held, err := v.readReserve(raw)
		var other *otherTypeError
		if errors.As(err, &other) {
			// What it held was of the other type, whose keys nobody looks at any more.
			v.typ, v.held, v.unsure = other.typ, 0, false
			v.l.learn(other.typ)
			continue
		}
		if err != nil {
			return err
		}
		v.count(held)
		v.unsure = false
		return nil
	}
	return v.l.flipping("reserve")
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
		s.w.client.lists.rest(v.l.keys.hash, v.begun.Add(time.Duration(d*float64(time.Second))))
	}
}

// giveBack returns what is held.
func (s *reservations) giveBack() {
	for i := range s.list {
		if v := &s.list[i]; v.held > 0 || v.unsure {
			v.giveBack()
		}
	}
}

// giveBack is done also when the Client is closed. When it fails the permits are back after one interval.
func (v *reservation) giveBack() {
	cmd, err := v.command(0, false)
	for tries := (redisscript.Attempts{Begin: time.Now()}); err == nil; tries.Pause(nil, nil) {
		_, failed := v.l.client.sendOnce(context.Background(), reserveScript, cmd)
		if failed == nil {
			v.held, v.unsure = 0, false
			v.l.changed()
			return
		}
		if _, again := tries.Failed(failed); !again {
			return
		}
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
	redisscript.Sleep(d, s.stop, s.w.client.closed)
}

// holdUp has the others of this process wait, those that are in line and those that try: what comes back
// is gathered.
func (s *reservations) holdUp(v *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left || v.line != nil {
		return
	}
	b := v.l.bucket
	b.mu.Lock()
	defer b.mu.Unlock()
	v.line = b.engine(v.l)
	v.line.reserver = s
	v.line.rest()
	s.lines = append(s.lines, v.line)
}

// letGo has all go on that are held up.
func (s *reservations) letGo() {
	s.mu.Lock()
	lines := s.lines
	s.lines = nil
	s.mu.Unlock()
	for _, e := range lines {
		s.goOn(e)
	}
}

func (s *reservations) goOn(e *engine) {
	e.bucket.mu.Lock()
	defer e.bucket.mu.Unlock()
	if e.reserver == s {
		e.reserver, e.askAt = nil, time.Time{}
		e.kick()
		e.rest()
	}
}

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// gather them, and thus for how long other callers of that limiter in this process are held up. Without
	// peers in other processes the permits of any list are there after one interval.
	maxReserved = 2
	// idleShare is the part of a limiter's rate that may lie idle for lists, and the part of the time for which lists that
	// fail to gather its permits hold up its callers. After that the limiter is not reserved until the time is made up for.
	idleShare = 0.1
	// gatherSteps is into how many steps the permits of a reservation are gathered at least, where they come
	// back one by one: each is a call.
	gatherSteps = 8
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
	for _, p := range w.parts {
		hash := p.Limiter.keys.hash
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
	for _, p := range w.parts {
		for _, q := range o.parts {
			if p.Limiter.keys.hash == q.Limiter.keys.hash {
				return true
			}
		}
	}
	return false
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
		if ok, err := w.stand(ctx, a, false); !ok || err != nil {
			return a, ok, err
		}
		next, err = w.try(ctx)
		return next, true, err
	}
	w.client.lists.enter(w)
	may, at := w.client.lists.mayReserve(w)
	if may {
		if ok, err := w.stand(ctx, a, true); !ok || err != nil {
			return a, ok, err
		}
		return w.reserve(ctx, a)
	}
	w.endTurns()
	// Trying now and then costs the others nothing; all lists together do so every other millisecond at most.
	d := max(a.Wait, a.rate.Interval/gatherSteps, 2*time.Millisecond*time.Duration(w.client.lists.count()))
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

// behindOthers reports whether what is free of a limiter is being kept for somebody else.
func (w *allWaiter) behindOthers() bool {
	return slices.ContainsFunc(w.parts, func(p part) bool {
		p.Limiter.bucket.mu.Lock()
		defer p.Limiter.bucket.mu.Unlock()
		e := p.Limiter.bucket.find(p.Limiter.keys.hash)
		return e != nil && (e.held != nil || e.yield())
	})
}

// A reservation is what a list has taken of one limiter before it has all. It is used by one goroutine at a
// time.
type reservation struct {
	l       *RateLimiter
	permits int64 // wanted
	typ     RateType
	id      requestID
	held    int64
	unsure  bool      // it may hold others than held: a call has been lost
	keeps   bool      // what it holds is kept while others refuse
	since   time.Time // when it began to be gathered
	moved   time.Time // when it was last moved to the present
	rate    Rate      // as last told, without the type
	idle    float64   // permits × seconds
}

// reservations are those of one attempt of a list.
type reservations struct {
	w    *allWaiter
	list []reservation
	lost chan error // of the step that was left alone, nil for none
}

// reserve gathers the permits of the limiter that bound, whose turn w has, then of each that refuses while it
// has those, until all are granted or what it holds may be held no longer. What it has not been granted
// goes back at once.
func (w *allWaiter) reserve(ctx context.Context, a allAnswer) (_ allAnswer, ok bool, err error) {
	s := &reservations{w: w, list: make([]reservation, len(w.parts))}
	for i, p := range w.parts {
		s.list[i] = reservation{l: p.Limiter, permits: p.Permits, typ: p.Limiter.hint(), id: newRequestID().run(0)}
	}
	b := w.parts[0].Limiter.bucket
	b.mu.Lock()
	if b.closed { // Close waits for those that were counted before
		b.mu.Unlock()
		return a, false, ErrClosed
	}
	w.client.calls.Add(1)
	b.mu.Unlock()
	granted := false
	defer func() { s.end(granted) }()
	for {
		v := &s.list[a.bound]
		v.since, v.keeps, v.rate = time.Now(), true, a.rate
		next, ok, err := s.gather(ctx, a)
		if err != nil || !ok || next.bound >= 0 {
			return next, ok, err
		}
		w.endTurns()
		if next, err = s.takeAll(ctx); err != nil {
			return next, true, err
		}
		if granted = next.Granted; granted {
			return next, true, nil
		}
		a = next
		if time.Now().Add(a.Wait).After(s.limit()) {
			return a, true, nil
		}
		if ok, err := s.stand(ctx, a); err != nil || !ok {
			return a, !w.late(0), err
		}
	}
}

// limit is until when what is held may be held.
func (s *reservations) limit() time.Time {
	var t time.Time
	for i := range s.list {
		if v := &s.list[i]; v.keeps {
			if at := v.since.Add(maxReserved * v.rate.Interval); t.IsZero() || at.Before(t) {
				t = at
			}
		}
	}
	return t
}

// gather takes the permits of the limiter that bound as they come back. The answer's bound is -1 when it has
// all; ok is false when the caller's time is up.
func (s *reservations) gather(ctx context.Context, a allAnswer) (_ allAnswer, ok bool, err error) {
	v := &s.list[a.bound]
	for {
		var wait time.Duration
		err := s.do(ctx, func(ctx context.Context) (err error) {
			if err = s.w.client.payDebts(ctx, s.w.parts); err == nil {
				wait, err = v.take(ctx, false)
			}
			return err
		})
		if err != nil {
			return a, true, err
		}
		if wait == 0 {
			return allAnswer{bound: -1}, true, nil
		}
		if time.Now().Add(wait).After(s.limit()) {
			return refused(s.w.parts, a.bound, wait, v.rate), true, nil
		}
		if s.w.late(0) {
			return a, false, nil
		}
		if _, err := s.rest(ctx, time.Now().Add(wait), nil); err != nil {
			return a, true, err
		}
	}
}

// rest sleeps until then, or the caller's time is up, or done gets something: woken is true then. Meanwhile what is held is
// moved on.
func (s *reservations) rest(ctx context.Context, until time.Time, done <-chan struct{}) (woken bool, err error) {
	for {
		next := until
		for i := range s.list {
			if v := &s.list[i]; v.held > 0 && v.renewal().Before(next) {
				next = v.renewal()
			}
		}
		slept, err := s.w.sleep(ctx, time.Until(next), done)
		if err != nil || !slept || s.w.late(0) || !time.Now().Before(until) {
			return err == nil && !slept, err
		}
		err = s.do(ctx, func(ctx context.Context) error {
			for i := range s.list {
				if v := &s.list[i]; v.held > 0 && !time.Now().Before(v.renewal()) {
					if err := v.send(ctx, v.held, false); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return false, err
		}
	}
}

func (v *reservation) renewal() time.Time { return v.moved.Add(v.rate.Interval / 2) }

// stand waits for the turn in the line of the limiter that bound, as long as what is held may be held; false
// when it has not come by then.
func (s *reservations) stand(ctx context.Context, a allAnswer) (bool, error) {
	w := s.w
	r, err := w.parts[a.bound].Limiter.stand(ctx, nil, w, a, true)
	if err != nil {
		return false, err
	}
	ended := r
	woken, err := s.rest(ctx, s.limit(), r.done)
	if !woken {
		var left error
		if ended, left = r.turn.leave(r, err); ended == nil {
			if err == nil {
				err = left
			}
			return false, err
		}
	}
	if ended.err != nil || !ended.granted {
		err := ended.err
		w.client.recycle(ended)
		return false, err
	}
	w.turns = append(w.turns, ended)
	return err == nil, err
}

// takeAll moves what is held to the present and takes the rest, all or nothing of each limiter. When one
// refuses, only what is kept stays.
func (s *reservations) takeAll(ctx context.Context) (a allAnswer, err error) {
	for range 3 { // a limiter may be healed meanwhile
		a = allAnswer{bound: -1}
		whole := true
		err = s.do(ctx, func(ctx context.Context) error {
			for i := range s.list {
				v := &s.list[i]
				wait, err := v.take(ctx, !v.keeps)
				if err != nil {
					return err
				}
				whole = whole && v.held == v.permits
				if wait > 0 && (a.bound < 0 || wait > a.Wait) {
					a = refused(s.w.parts, i, wait, v.rate)
				}
			}
			for i := range s.list {
				if v := &s.list[i]; !whole && !v.keeps && v.held > 0 {
					if err := v.send(ctx, 0, false); err != nil {
						return err
					}
					v.l.changed()
				}
			}
			return nil
		})
		if err != nil {
			return allAnswer{bound: -1}, err
		}
		if whole {
			return allAnswer{AllResult: AllResult{Granted: true}, bound: -1}, nil
		}
		if a.bound >= 0 {
			return a, nil
		}
	}
	i := slices.IndexFunc(s.list, func(v reservation) bool { return v.held < v.permits })
	return refused(s.w.parts, max(i, 0), time.Millisecond, s.list[max(i, 0)].rate), nil
}

func refused(parts []part, i int, wait time.Duration, rate Rate) allAnswer {
	return refusal(parts, i, answer{wait: wait, rate: rate})
}

// take takes as much as there is, or with whole all or nothing. When that is less than wanted, wait is how
// long it takes until there is more; 0 when there may be at once.
func (v *reservation) take(ctx context.Context, whole bool) (wait time.Duration, err error) {
	for range 3 {
		if err := v.send(ctx, v.permits, whole); err != nil || v.held == v.permits {
			return 0, err
		}
		missing := v.permits - v.held
		p := part{Demand: Demand{Limiter: v.l, Permits: missing}}
		if step := max(1, v.permits/gatherSteps); !whole && v.rate.MinGap == 0 {
			// At random, so as not to keep step with a peer that is always a little faster.
			p.Permits = min(missing, 1+rand.Int64N(3*step))
		}
		a, err := p.ask(ctx, true)
		if err != nil {
			return 0, err
		}
		v.rate.MinGap = a.rate.MinGap
		if a.granted[0] == 0 {
			return max(a.wait, time.Millisecond), nil
		}
	}
	return time.Millisecond, nil // others are always faster
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

// do runs f in a goroutine, so that the caller can leave: then end waits for it.
func (s *reservations) do(ctx context.Context, f func(ctx context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(context.WithoutCancel(ctx)) }()
	var timeUp <-chan time.Time
	if w := s.w; !w.deadline.IsZero() {
		t := time.NewTimer(time.Until(w.deadline) + grace)
		defer t.Stop()
		timeUp = t.C
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		s.lost = done
		return ctx.Err()
	case <-s.w.client.closed:
		s.lost = done
		return ErrClosed
	case <-timeUp:
		s.lost = done
		return fmt.Errorf("%w: reserve of %s: no answer in time", ErrUnavailable, names(s.w.parts))
	}
}

// end accounts for what lay idle, and gives back what is held unless it was granted.
func (s *reservations) end(granted bool) {
	c := s.w.client
	finish := func() {
		now := time.Now()
		for i := range s.list {
			v := &s.list[i]
			if v.rate.Permits == 0 || v.since.IsZero() {
				continue
			}
			v.count(v.held)
			d := v.idle / idleShare / float64(v.rate.Permits)
			if !granted {
				d = max(d, now.Sub(v.since).Seconds()/idleShare)
			}
			c.lists.rest(v.l.keys.hash, v.since.Add(time.Duration(d*float64(time.Second))))
		}
	}
	held := slices.ContainsFunc(s.list, func(v reservation) bool { return v.held > 0 || v.unsure })
	if s.lost == nil && (granted || !held) {
		finish()
		c.calls.Done()
		return
	}
	lost, list := s.lost, s.list
	if lost == nil {
		finish()
	}
	go func() {
		defer c.calls.Done()
		if lost != nil {
			<-lost
			finish()
		}
		for i := range list {
			list[i].giveBack()
		}
	}()
}

// giveBack returns what is held. When that fails it is back after one interval.
func (v *reservation) giveBack() {
	if v.held == 0 && !v.unsure {
		return
	}
	for tries := (redisscript.Attempts{Begin: time.Now()}); ; tries.Pause(nil, nil) {
		cmd, err := v.command(0, false)
		if err != nil {
			return
		}
		_, err = v.l.client.sendOnce(context.Background(), reserveScript, cmd)
		if err == nil {
			v.l.changed()
			return
		}
		if _, again := tries.Failed(err); !again {
			return
		}
		v.unsure = v.unsure || tries.Replay
	}
}

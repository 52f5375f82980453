package ratelimiter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// A Demand is a number of permits of one limiter.
type Demand struct {
	Limiter *RateLimiter
	Permits int64
}

// An AllResult is the answer to a TryAcquireAll.
type AllResult struct {
	// Granted says whether all permits were acquired.
	Granted bool
	// Limiter is the one that bound: of those that refused, the one with the longest wait. It is nil
	// when Granted.
	Limiter *RateLimiter
	// Wait is how long until Limiter could grant its part, if nobody else acquires first. It is 0 when
	// Granted.
	Wait time.Duration
	// Degraded says that Redis was away and an outage policy decided at least one part.
	Degraded bool
}

// TryAcquireAll acquires permits of several limiters, all of them or none, waiting at most timeout; with
// timeout <= 0 it asks once. The answer names the limiter that bound. Demands of the same limiter are
// added up.
//
// Where all keys are in one hash slot (or the Redis is no cluster and no ring), and there are at most 6
// limiters, one script decides at one instant. Otherwise the limiters are asked one after another, in the
// order of their keys, and what was granted is given back when one refuses: then others may for a moment be
// refused what nobody gets.
//
// A caller that waits stands in the line of the limiter that bound, among that limiter's other callers
// of this Client, by the time at which it came; the permits of the other limiters are free for others
// meanwhile. A list that is passed over, because its limiters refuse it in turns or one has refused it for
// longer than an interval, reserves its permits: it gathers them in Redis as they come back, and is granted
// all of them when it has them. They count in the window from the instant of the grant on.
//
// That is bounded for others. While permits of a limiter are gathered, its other callers of this Client wait:
// for an interval of that limiter at most, and where other processes take permits of it too, for four. What
// has been gathered is kept for four intervals at most, counted from the beginning, and goes back at once
// when another limiter is known to take longer, as in a cool-down. In the long run no more than a tenth of a limiter's
// rate lies idle for the lists of a Client: afterwards the limiter is left alone until that is made up for,
// at most ten times as long as the attempt took, 40 intervals.
//
// Of lists that want the same limiter one at a time does so, the oldest first. Where only callers of this
// Client compete, an attempt takes about an interval. Where other processes do too, a list competes with them
// for each permit as it comes back, and keeps those that it has got; it is not promised to win. A process that
// takes every permit at the instant at which it comes back can keep a list waiting for as long as it does so.
//
// When ctx is done it returns at once; what was granted or reserved at that moment goes back.
//
// Errors are those of TryAcquire, and ErrInvalidArgument when there is no demand or a limiter is of
// another Client. Then nothing is kept.
func (c *Client) TryAcquireAll(ctx context.Context, timeout time.Duration, demands ...Demand) (AllResult, error) {
	if timeout <= 0 {
		return c.acquireAll(ctx, false, time.Time{}, demands)
	}
	return c.acquireAll(ctx, true, time.Now().Add(timeout), demands)
}

// AcquireAll acquires permits of several limiters, all of them or none, waiting as long as it takes. It
// answers nil when it has them. Everything else is as TryAcquireAll has it.
func (c *Client) AcquireAll(ctx context.Context, demands ...Demand) error {
	_, err := c.acquireAll(ctx, true, time.Time{}, demands)
	return err
}

// A part is what is asked of one limiter.
type part struct {
	Demand
	typ     RateType
	id      requestID // of the grant
	changes int       // the engine's, before it was asked
}

// parts are the demands, each limiter once, in the order of the keys.
func (c *Client) parts(ctx context.Context, demands []Demand) ([]part, error) {
	if len(demands) == 0 {
		return nil, invalid("there is no demand")
	}
	if len(demands) > maxParts {
		return nil, invalid("%d demands are more than %d", len(demands), maxParts)
	}
	var parts []part
	for _, d := range demands {
		if d.Limiter == nil {
			return nil, invalid("a demand without a limiter")
		}
		if d.Limiter.client != c {
			return nil, invalid("%q is a limiter of another client", d.Limiter.name)
		}
		if err := d.Limiter.checkPermits(ctx, d.Permits); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(parts, func(p part) bool { return p.Limiter.keys.hash == d.Limiter.keys.hash })
		if i < 0 {
			parts = append(parts, part{Demand: d})
			continue
		}
		parts[i].Permits += d.Permits
		if err := d.Limiter.checkPermits(ctx, parts[i].Permits); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.Limiter.keys.hash, b.Limiter.keys.hash) })
	return parts, nil
}

// maxParts bounds the demands of one call; each is a round trip where the limiters are apart.
const maxParts = 64

// An allWaiter is a caller of several limiters on its way through their lines.
type allWaiter struct {
	client   *Client
	parts    []part
	deadline time.Time // zero for none
	seq      uint64
	since    time.Time  // since when it waits
	turns    []*request // that of the limiter that bound, if it has it
	moves    int        // how often another limiter bound

	boundSince time.Time // since when the one that bound has done so
	contends   bool      // it is among the Client's contenders, which may read the following
	wants      []string  // hash keys
	next       chan struct{}
}

// movesToReserve is after how many moves from line to line a waiter reserves permits.
const movesToReserve = 2

func (c *Client) acquireAll(ctx context.Context, blocking bool, deadline time.Time, demands []Demand) (AllResult, error) {
	parts, err := c.parts(ctx, demands)
	if err != nil {
		return AllResult{}, err
	}
	if len(parts) == 1 {
		return parts[0].alone(ctx, blocking, deadline)
	}
	w := &allWaiter{client: c, parts: parts, deadline: deadline}
	if !blocking {
		if a, decided, err := w.withoutRedis(ctx); decided {
			return a, err
		}
		a, err := w.try(ctx)
		if errors.Is(err, ErrUnavailable) {
			if a, decided, err := w.withoutRedis(ctx); decided {
				return a, err
			}
		}
		return a.AllResult, err
	}
	defer w.leaveLines()
	w.seq, w.since = c.seq.Add(1), time.Now()
	bound := w.busy()
	a := allAnswer{bound: bound}
	if bound >= 0 {
		a.Limiter = parts[bound].Limiter
	}
	for {
		if r, decided, err := w.withoutRedis(ctx); decided {
			if err != nil || r.Granted || c.cfg.refuseEarly && w.late(r.Wait) {
				return r, err
			}
			w.leaveLines()
			a = allAnswer{bound: -1}
			if ok, err := w.waitWithoutRedis(ctx, r.Wait); err != nil {
				return AllResult{}, err
			} else if !ok {
				return r, nil
			}
			continue
		}
		var next allAnswer
		var err error
		if a.bound >= 0 { // it refused, or others wait for it
			if a.refused && (w.late(0) || c.cfg.refuseEarly && w.late(a.Wait)) {
				return a.AllResult, nil
			}
			asked := time.Now()
			var ok bool
			if w.starves(a) {
				next, ok, err = w.contend(ctx, a)
			} else if ok, err = w.stand(ctx, a); ok {
				next, err = w.try(ctx)
			}
			if !ok && err != nil {
				return AllResult{}, err
			}
			if !ok {
				if !a.refused { // its time was up before it could ask
					a.Wait = time.Until(a.Limiter.freeAt())
				}
				a.Wait = max(a.Wait-time.Since(asked).Truncate(time.Millisecond), time.Millisecond)
				return a.AllResult, nil
			}
		} else {
			next, err = w.try(ctx)
		}
		switch {
		case err == nil && next.Granted:
			return next.AllResult, nil
		case err == nil:
			if a.refused && next.bound != a.bound {
				w.moves++
			}
			if !a.refused || next.bound != a.bound {
				w.boundSince = time.Now()
			}
			a = next
		case errors.Is(err, ErrUnavailable) && time.Since(w.since) < c.cfg.outageLimit && !w.late(0):
			w.leaveLines()
			a = allAnswer{bound: -1}
			if w.degradable() {
				continue
			}
			if err := w.endure(ctx, err); err != nil {
				return AllResult{}, err
			}
		default:
			return AllResult{}, err
		}
	}
}

// alone is a list of one limiter: its own line, its own answer.
func (p part) alone(ctx context.Context, blocking bool, deadline time.Time) (AllResult, error) {
	r, err := p.Limiter.ask(ctx, wish{permits: p.Permits, blocking: blocking, wantsWait: true}, timeout(deadline))
	switch {
	case err != nil:
		return AllResult{}, err
	case r.granted:
		return AllResult{Granted: true, Degraded: r.degraded}, nil
	}
	return AllResult{Limiter: p.Limiter, Wait: r.wait, Degraded: r.degraded}, nil
}

// late says that the caller's time is up before d is over.
func (w *allWaiter) late(d time.Duration) bool {
	return !w.deadline.IsZero() && time.Until(w.deadline) <= d
}

// timeout is the time that is left, as await takes it: 0 for no end.
func timeout(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// endure waits while Redis is away.
func (w *allWaiter) endure(ctx context.Context, err error) error {
	next, over := time.Now().Add(probePause()), (<-chan struct{})(nil)
	for _, p := range w.parts {
		if at, ch, away := p.Limiter.outage().look(); away {
			next, over = at, ch
			break
		}
	}
	slept, stopped := w.sleep(ctx, time.Until(next), over)
	if stopped != nil {
		return stopped
	}
	if slept && w.late(0) {
		return err
	}
	return nil
}

// sleep sleeps until d or the caller's time is up, or over is closed; slept is false then. Errors say that
// the caller waits no longer.
func (w *allWaiter) sleep(ctx context.Context, d time.Duration, over <-chan struct{}) (slept bool, err error) {
	if !w.deadline.IsZero() {
		d = min(d, time.Until(w.deadline))
	}
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true, nil
	case <-over:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.client.closed:
		return false, ErrClosed
	}
}

// busy is the first of the limiters whose line is not empty, -1 when there is none: who comes later does
// not ask before those who wait.
func (w *allWaiter) busy() int {
	return slices.IndexFunc(w.parts, func(p part) bool {
		p.Limiter.bucket.mu.Lock()
		defer p.Limiter.bucket.mu.Unlock()
		e := p.Limiter.bucket.find(p.Limiter.keys.hash)
		return e != nil && (e.waiters.n > 0 || e.held != nil || e.reserver != nil)
	})
}

// stand waits in the line of the limiter that bound until it is this caller's turn. It answers false
// when the caller's time is up.
func (w *allWaiter) stand(ctx context.Context, a allAnswer) (bool, error) {
	var r *request // the turn that it has there
	for i := len(w.turns) - 1; i >= 0; i-- {
		if w.turns[i].place == a.bound {
			r = w.turns[i]
			w.turns = slices.Delete(w.turns, i, i+1)
		} else {
			w.endTurn(i)
		}
	}
	r, err := w.parts[a.bound].Limiter.stand(ctx, r, w, a)
	if err != nil {
		return false, err
	}
	ended, err := r.turn.await(ctx, r, timeout(w.deadline))
	if ended == nil {
		return false, err
	}
	if ended.err != nil || !ended.granted {
		err := ended.err
		w.client.recycle(ended)
		return false, err
	}
	w.turns = append(w.turns, ended)
	return true, nil
}

func (w *allWaiter) leaveLines() {
	w.endTurns()
	w.client.lists.leave(w)
	w.moves = 0
}

func (w *allWaiter) endTurns() {
	for i := len(w.turns) - 1; i >= 0; i-- {
		w.endTurn(i)
	}
}

func (w *allWaiter) endTurn(i int) {
	r := w.turns[i]
	w.turns = slices.Delete(w.turns, i, i+1)
	r.turn.endTurn(r)
	w.client.recycle(r)
}

// An allAnswer is an AllResult with the place in the list of the limiter that bound.
type allAnswer struct {
	AllResult
	bound   int // -1 for none
	refused bool
	rate    Rate // of the limiter that bound
}

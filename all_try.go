package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/redisscript"
	"github.com/redis/go-redis/v9"
)

// scriptParts is how many limiters acquire_all takes: its keys are written out.
const scriptParts = 6

// try asks for all parts once. When ctx is done, or the caller's time up, it returns at once, and what is granted then
// goes back.
func (w *allWaiter) try(ctx context.Context) (allAnswer, error) {
	for i := range w.parts {
		w.parts[i].changes = w.parts[i].Limiter.changesSeen()
	}
	if ctx.Done() == nil && w.deadline.IsZero() {
		return w.client.tryAll(ctx, w.parts)
	}
	type result struct {
		a   allAnswer
		err error
	}
	var (
		mu    sync.Mutex
		left  bool
		done  = make(chan result, 1)
		parts = append([]part(nil), w.parts...) // the caller may go on with its own
	)
	b := parts[0].Limiter.bucket
	b.mu.Lock()
	if b.closed { // Close waits for those that were counted before
		b.mu.Unlock()
		return allAnswer{bound: -1}, ErrClosed
	}
	w.client.calls.Add(1)
	b.mu.Unlock()
	go func() {
		defer w.client.calls.Done()
		ctx := context.WithoutCancel(ctx)
		a, err := w.client.tryAll(ctx, parts)
		mu.Lock()
		defer mu.Unlock()
		if !left {
			done <- result{a, err}
		} else if err == nil && a.Granted {
			w.client.giveBackAll(ctx, parts)
		}
	}()
	leave := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left = len(done) == 0
		return left
	}
	var timeUp <-chan time.Time
	if !w.deadline.IsZero() {
		t := time.NewTimer(time.Until(w.deadline) + grace)
		defer t.Stop()
		timeUp = t.C
	}
	select {
	case r := <-done:
		return r.a, r.err
	case <-ctx.Done():
		if leave() {
			return allAnswer{}, ctx.Err()
		}
	case <-timeUp:
		if leave() {
			return allAnswer{}, fmt.Errorf("%w: acquire_all of %s: no answer in time", ErrUnavailable, names(w.parts))
		}
	}
	r := <-done
	return r.a, r.err
}

// tryAll asks until Redis has answered.
func (c *Client) tryAll(ctx context.Context, parts []part) (allAnswer, error) {
	if err := c.payDebts(ctx, parts); err != nil {
		return allAnswer{bound: -1}, err
	}
	if !c.oneScript(parts) {
		return c.tryInTurn(ctx, parts)
	}
	for i := range parts {
		// acquire_all takes what is plainly there and checks nothing.
		if check, lowered := parts[i].Limiter.checkIsDue(); check {
			if _, err := parts[i].askChecking(ctx, true, true, lowered); err != nil {
				return allAnswer{bound: -1}, err
			}
		}
	}
	for i := range parts {
		parts[i].typ = parts[i].Limiter.hint()
		parts[i].id = c.requestID().run(0)
	}
	for rounds := 0; ; rounds++ {
		refused, err := c.takeAll(ctx, parts)
		if err != nil {
			return allAnswer{bound: -1}, err
		}
		if len(refused) == 0 {
			return allAnswer{AllResult: AllResult{Granted: true}, bound: -1}, nil
		}
		bound := allAnswer{bound: -1}
		for _, i := range refused {
			a, err := parts[i].ask(ctx, true)
			if err != nil {
				return allAnswer{bound: -1}, err
			}
			if a.granted[0] == 0 && (bound.bound < 0 || a.wait > bound.Wait) {
				bound = refusal(parts, i, a)
			}
		}
		if bound.bound >= 0 {
			return bound, nil
		}
		// Reclaimed or healed meanwhile. Where others are always faster, that is a refusal too.
		if rounds == 3 {
			return allAnswer{AllResult: AllResult{Limiter: parts[refused[0]].Limiter, Wait: time.Millisecond},
				bound: refused[0], refused: true}, nil
		}
	}
}

func refusal(parts []part, i int, a answer) allAnswer {
	return allAnswer{AllResult: AllResult{Limiter: parts[i].Limiter, Wait: max(a.wait, time.Millisecond)},
		bound: i, refused: true, rate: a.rate}
}

// oneScript: one script can have all the keys.
func (c *Client) oneScript(parts []part) bool {
	if len(parts) > scriptParts {
		return false
	}
	for _, p := range parts[1:] {
		if c.sharded && hashTag(p.Limiter.keys.hash) != hashTag(parts[0].Limiter.keys.hash) {
			return false
		}
	}
	return true
}

// takeAll answers which of the parts refuse; none when all are granted.
func (c *Client) takeAll(ctx context.Context, parts []part) ([]int, error) {
	touched := func() {
		for _, p := range parts {
			p.Limiter.touched()
		}
	}
	touched()
	defer touched()
	for flips := 0; ; flips++ {
		raw, err := parts[0].Limiter.answered(ctx, acquireAllScript, func(replay bool) ([]any, error) {
			return c.acquireAllCommand(parts, replay)
		})
		if err != nil {
			return nil, err
		}
		refused, err := c.readAcquireAll(parts, raw)
		var other *otherTypeError
		if !errors.As(err, &other) {
			return refused, err
		}
		if flips == maxFlips*len(parts) {
			return nil, parts[0].Limiter.flipping("acquire_all")
		}
	}
}

// tryInTurn asks one limiter after the other, and gives back what it got when one refuses.
func (c *Client) tryInTurn(ctx context.Context, parts []part) (allAnswer, error) {
	for i := range parts {
		a, err := parts[i].ask(ctx, false)
		if err == nil && a.granted[0] == 1 {
			continue
		}
		if err != nil {
			i++ // it may have been granted
		}
		c.giveBackAll(ctx, parts[:i])
		if err != nil {
			return allAnswer{bound: -1}, err
		}
		bound := refusal(parts, i, a)
		for j := i + 1; j < len(parts); j++ {
			a, err := parts[j].ask(ctx, true)
			if err != nil {
				return allAnswer{bound: -1}, err
			}
			if a.granted[0] == 0 && a.wait > bound.Wait {
				bound = refusal(parts, j, a)
			}
		}
		return bound, nil
	}
	return allAnswer{AllResult: AllResult{Granted: true}, bound: -1}, nil
}

// giveBackAll returns what was granted as if it had not been asked for.
func (c *Client) giveBackAll(ctx context.Context, parts []part) {
	for _, p := range parts {
		if p.id != (requestID{}) {
			p.Limiter.giveBack(ctx, p.typ, orphan{id: p.id, had: p.Permits})
			p.Limiter.changed()
		}
	}
}

// maxAsks bounds the calls for one answer: each step of a walk or of a reclaim is one.
const maxAsks = 10_000

// ask asks for the part alone, without taking it when it is a probe, until the answer is whole.
func (p *part) ask(ctx context.Context, probe bool) (answer, error) {
	check, lowered := false, false
	if !probe {
		check, lowered = p.Limiter.checkIsDue()
	}
	return p.askChecking(ctx, probe, check, lowered)
}

// askChecking is ask that first has value and the permits in use make up the rate, if check says so.
func (p *part) askChecking(ctx context.Context, probe, check, lowered bool) (answer, error) {
	l := p.Limiter
	a := ask{typ: l.hint(), runs: []run{{permits: p.Permits, count: 1}}, probe: probe, check: check, lowered: lowered}
	audited, flips := false, 0
	for range maxAsks {
		begin := time.Now()
		a.id = l.client.requestID()
		p.id, p.typ = a.id.run(0), a.typ
		raw, err := l.answered(ctx, acquireScript, func(replay bool) ([]any, error) {
			a.replay = replay && !probe
			return l.acquireCommand(&a)
		})
		if err != nil {
			return answer{}, err
		}
		got, err := l.readAcquire(&a, raw)
		var other *otherTypeError
		if errors.As(err, &other) {
			if flips++; flips > maxFlips {
				return answer{}, l.flipping("acquire")
			}
			a.typ = other.typ
			l.learn(other.typ)
			continue
		}
		if err != nil {
			return answer{}, err
		}
		if got.granted[0] < 0 {
			return answer{}, l.exceeds(p.Permits, got.rate.Permits)
		}
		l.told(&got, begin)
		a.walked, a.walkedPermits = 0, 0
		switch {
		case got.granted[0] > 0 && got.again == againAudit && a.check:
			_ = l.audit(ctx, a.typ, a.lowered) // granted is granted
			return got, nil
		case got.granted[0] > 0:
			return got, nil
		case got.again == againRest:
		case got.again == againWalk:
			a.walked, a.walkedPermits = got.walked, got.walkedPermits
		case got.again == againAudit && !audited:
			audited, a.check = true, false
			if err := l.audit(ctx, a.typ, a.lowered); err != nil {
				return answer{}, err
			}
		case got.again == againNot && !a.check && !audited && l.auditIsDue(got.rate.Interval):
			a.check = true
		default:
			return got, nil
		}
	}
	return answer{}, fmt.Errorf("ratelimiter: acquire of %q: its permits change faster than they can be counted", l.name)
}

// auditIsDue says whether lost permits should be looked for, and if so, that somebody does.
func (l *RateLimiter) auditIsDue(interval time.Duration) bool {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	e, now := l.bucket.engine(l), time.Now()
	if now.Before(e.nextAudit) {
		return false
	}
	e.nextAudit = now.Add(auditEvery(interval))
	e.nextCheck = e.nextAudit
	return true
}

// checkIsDue is takeCheck for a list, each check of which is a call of its own. The limiter has an engine from then on
// that knows when the next is due.
func (l *RateLimiter) checkIsDue() (check, lowered bool) {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	e, now := l.bucket.engine(l), time.Now()
	check, lowered = e.takeCheck(now, 4*checkSample)
	if e.nextCheck.IsZero() {
		e.nextCheck = now.Add(time.Second) // no answer has told the interval
	}
	return check, lowered
}

func (l *RateLimiter) told(a *answer, begin time.Time) {
	l.bucket.mu.Lock()
	defer l.bucket.mu.Unlock()
	l.bucket.engine(l).told(a, begin)
}

// answered sends a script until Redis has answered, as a replay where it may have run before. While
// Redis is known to be away it does not reach the network, but for the probe.
func (l *RateLimiter) answered(ctx context.Context, s *script, command func(replay bool) ([]any, error)) (any, error) {
	l.touched()
	defer l.touched()
	for tries := (redisscript.Attempts{Begin: time.Now()}); ; tries.Pause(nil, l.client.closed) {
		if err := l.ready(ctx); err != nil {
			return nil, err
		}
		next, _, err := l.outage().enter()
		if err != nil {
			return nil, l.failed(s.Name, redisscript.Unknown, err)
		}
		cmd, err := command(tries.Replay)
		if err != nil {
			return nil, err
		}
		raw, err := l.client.sendOnce(ctx, s, cmd)
		if err == nil {
			l.there()
			return raw, nil
		}
		what, again := tries.Failed(err)
		var re redis.Error
		if what == redisscript.Executed {
			if errors.As(err, &re) {
				l.there()
			}
			return nil, l.failed(s.Name, what, err)
		}
		if again && next.IsZero() {
			continue
		}
		if !errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted) {
			l.away(err)
		}
		return nil, l.failed(s.Name, what, err)
	}
}

func names(parts []part) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", p.Limiter.name)
	}
	return b.String()
}

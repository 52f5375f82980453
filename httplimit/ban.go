// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/http/rates"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// A ban is a cool-down of a limiter that this process knows of, because it met it or because its requests waited for
// it in Redis. Redis makes the fleet wait for its end, but can lose it: by FLUSHALL, by a restart without data, by a
// failover. So this process keeps the ban until its end. If Redis grants permits before that, the process asks it
// whether somebody lifted the cool-down; if the cool-down was lost, it tells Redis again.
//
// A lifted cool-down and a lost one look the same: the limiter has none. Therefore the process that tells Redis of a
// ban also leaves a trace, the hash of a limiter that nobody acquires from, which expires a little later than the
// ban. LiftCoolDown and Delete leave the trace alone, and whatever loses the cool-down loses the trace as well. The
// trace is written after the cool-down, so a replica that has the trace has both. Its number of permits is the end of
// the ban, in seconds since the epoch, which shows whether a replica has only the trace of an earlier ban.
//
// Until its end a ban is in one of these states, which the replies of Redis change (noteReply, confirm):
//
//   - begun: neither told nor in doubt. This process has met it and is telling Redis.
//   - told: Redis holds up the requests of the fleet. If a request gets its permits all the same, it is not sent before Redis
//     has been asked (mayGo): either the ban was lifted, and this process forgets it, or it was lost, and Redis is told again.
//   - in doubt, told or not: Redis did not reply. No request is sent (held), and one of them tells or asks Redis again,
//     not more often than once in askAgain. If Redis was never told, it is told without a request as well (tellLater).
//
// The lock of the limiter guards it.
type ban struct {
	until  time.Time
	reopen time.Duration
	told   bool      // Redis was told of it once, or told this process of it, and there is a trace
	trace  int64     // the number of permits of that trace
	doubt  bool      // Redis has to be told or asked before anything is sent
	ask    time.Time // in doubt: Redis is not told or asked again before then
}

const (
	// tellTime bounds how long a response is held up to tell Redis of a cool-down.
	tellTime = 2 * time.Second
	// askAgain is how often Redis is asked again if it did not reply.
	askAgain = time.Second
	// watchAfter is how long a request waits for its permits before the process looks whether a ban is the reason;
	// after that it looks once in askAgain.
	watchAfter = 50 * time.Millisecond
	// traceSlack is by how many seconds the trace may show an earlier end: processes that meet a ban together leave
	// one trace, and their clocks differ.
	traceSlack = 2
	// slack is by how much the same end may seem earlier: Redis counts whole milliseconds, and its reply takes a
	// while.
	slack = 100 * time.Millisecond
)

// traceLimiter returns the limiter whose hash is the trace of l's ban, in the hash slot of l.
func (l *limiter) traceLimiter() *ratelimiter.RateLimiter {
	return l.client.RateLimiter(redisson.Suffixed(l.name, "told"))
}

// banLeft returns how long the ban lasts that this process knows of.
func (l *limiter) banLeft() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.ban.until)
}

// coolDown begins a cool-down of d. When Redis cannot be told this process obeys on its own, and goes on trying.
func (c *roundTrip) coolDown(d *demand, until time.Time) error {
	d.mu.Lock()
	if until.After(d.ban.until) {
		d.ban = ban{until: until, reopen: d.reopen}
	}
	b := d.ban
	d.mu.Unlock()
	c.t.limiters.keep(d.limiter)
	if d.alone {
		return nil
	}
	ctx, cancel := c.context(tellTime)
	defer cancel()
	err := d.tell(ctx, b)
	if err != nil {
		c.tellLater(d.limiter)
	}
	return err
}

// tellLater tells Redis of a ban that it could not be told of, once in askAgain until it knows, the ban is over or the
// client is closed. This process may send nothing more, and the fleet has to wait all the same.
func (c *roundTrip) tellLater(l *limiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.telling || l.ban.told || time.Until(l.ban.until) <= 0 {
		return
	}
	l.telling = true
	time.AfterFunc(askAgain, func() {
		l.mu.Lock()
		b := l.ban // a longer one, if that came meanwhile
		l.telling = false
		l.ban.ask = time.Now().Add(askAgain)
		l.mu.Unlock()
		var err error
		if !b.told && time.Until(b.until) > 0 {
			c.t.contain(&c.event, "telling Redis of a cool-down", func() {
				ctx, cancel := c.context(tellTime)
				defer cancel()
				err = l.tell(ctx, b)
			})
		}
		if !errors.Is(err, ratelimiter.ErrClosed) {
			c.tellLater(l) // if it is still to be told
		}
	})
}

// noteReply puts b in doubt if err shows that Redis did not reply, and otherwise takes it out of doubt, unless a longer ban
// has come meanwhile.
func (l *limiter) noteReply(b ban, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ban.until.Equal(b.until) {
		return
	}
	if l.ban.doubt = err != nil; err != nil {
		l.ban.ask = time.Now().Add(askAgain)
	}
}

// tell tells Redis of the ban.
func (l *limiter) tell(ctx context.Context, b ban) error {
	err := l.tellOnce(ctx, b)
	if err == nil {
		l.mu.Lock()
		if l.ban.until.Equal(b.until) {
			l.ban.told, l.ban.trace = true, b.until.Unix()
		}
		l.mu.Unlock()
	}
	l.noteReply(b, err)
	return err
}

func (l *limiter) tellOnce(ctx context.Context, b ban) error {
	var opts []ratelimiter.CoolDownOption
	if b.reopen > 0 {
		opts = append(opts, ratelimiter.Reopen(b.reopen))
	}
	err := l.handle.CoolDown(ctx, b.until, opts...)
	if errors.Is(err, ratelimiter.ErrNotInitialized) && l.rate != (ratelimiter.Rate{}) {
		if _, err = l.handle.TrySetRate(ctx, l.rate); err == nil {
			err = l.handle.CoolDown(ctx, b.until, opts...)
		}
	}
	if err != nil {
		return err
	}
	_, err = l.leaveTrace(ctx, b.until)
	return err
}

// leaveTrace writes the trace of a ban, unless there is that of a longer one, and returns its number.
func (l *limiter) leaveTrace(ctx context.Context, until time.Time) (int64, error) {
	end := until.Unix()
	if there, err := l.readTrace(ctx); err != nil || there >= end {
		return there, err
	}
	// It outlives the ban, since clocks run at different rates.
	left := max(time.Until(until), 0)
	keep := (left + left/8 + time.Minute).Truncate(time.Millisecond)
	return end, l.traceLimiter().SetRate(ctx, ratelimiter.Rate{Permits: min(max(end, 1), rates.MaxPermits), Interval: time.Millisecond, KeepAlive: keep})
}

// readTrace returns the number of the trace, 0 when there is none.
func (l *limiter) readTrace(ctx context.Context) (int64, error) {
	r, err := l.traceLimiter().Rate(ctx)
	return r.Permits, ignore(err, ratelimiter.ErrNotInitialized)
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// held returns the limiter that the request has to wait for in this process the longest, and how long. The reason is
// a ban of one host, or a ban that Redis has to be asked about while it does not reply.
func (c *roundTrip) held(ctx context.Context, end time.Time) (longest *limiter, wait time.Duration, reason Reason) {
	for i := range c.plan.demands {
		d := &c.plan.demands[i]
		if !d.whole {
			if left := d.hostLeft(c.plan.host, time.Now()); left > wait {
				longest, wait, reason = d.limiter, left, ReasonHost
			}
		}
		if left := d.banLeft(); d.alone && left > wait {
			longest, wait, reason = d.limiter, left, ReasonCoolDown
		} else if d.alone {
			continue
		}
		if left := d.doubted(ctx, end); left > wait {
			longest, wait, reason = d.limiter, left, ReasonCoolDown
		}
	}
	return longest, wait, reason
}

// doubted returns how long the ban lasts if Redis has to be asked about it. It asks Redis at most once in askAgain.
func (l *limiter) doubted(ctx context.Context, end time.Time) time.Duration {
	now := time.Now()
	l.mu.Lock()
	b := l.ban
	left := b.until.Sub(now)
	try := b.doubt && left > 0 && !now.Before(b.ask)
	if try {
		l.ban.ask = now.Add(askAgain)
	}
	l.mu.Unlock()
	if !b.doubt || left <= 0 {
		return 0
	}
	if try {
		bounded, cancel := within(ctx, end)
		defer cancel()
		if l.confirm(bounded, b) == nil {
			return 0
		}
	}
	return left
}

// confirm asks Redis whether the ban still lasts. Afterwards either Redis makes the fleet wait for its end, or it was
// lifted and this process forgets it. If Redis does not reply, confirm returns the error and the ban lasts.
func (l *limiter) confirm(ctx context.Context, b ban) error {
	if !b.told {
		return l.tell(ctx, b)
	}
	until, err := l.handle.Admin().CoolDownUntil(ctx)
	err = ignore(err, ratelimiter.ErrNotInitialized)
	if err != nil || !until.Before(b.until.Add(-slack)) {
		l.noteReply(b, err)
		return err
	}
	trace, err := l.readTrace(ctx)
	if err != nil {
		l.noteReply(b, err)
		return err
	}
	if trace < b.trace-traceSlack {
		return l.tell(ctx, b)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ban.until.Equal(b.until) { // until is zero, or the end of a shorter one
		l.ban = ban{until: until, reopen: b.reopen, told: true, trace: trace}
	}
	return nil
}

// mayGo reports whether a request that got its permits may be sent: no ban that this process knows of lasts. Without
// one it costs nothing; otherwise Redis is asked whether it was lifted.
func (c *roundTrip) mayGo(ctx context.Context, end time.Time, degraded bool) bool {
	if c.t.cfg.dryRun {
		return true
	}
	for _, d := range c.plan.demands {
		for !d.alone && d.banLeft() > 0 {
			if degraded { // Redis is unavailable: held waits until it is back or the ban is over
				d.mu.Lock()
				d.ban.doubt, d.ban.ask = true, time.Now().Add(askAgain)
				d.mu.Unlock()
				return false
			}
			select {
			case d.asking <- struct{}{}:
			case <-ctx.Done():
				return false
			}
			d.mu.Lock()
			b := d.ban
			d.mu.Unlock()
			if time.Until(b.until) <= 0 { // somebody else has asked, and it was lifted
				<-d.asking
				continue
			}
			bounded, cancel := within(ctx, end)
			_ = d.confirm(bounded, b) // an error leaves it in doubt, for which held waits
			cancel()
			<-d.asking
			if d.banLeft() > 0 {
				return false
			}
		}
	}
	return true
}

// A watch finds out, while a request waits for its permits, whether it waits because of a ban that another process
// met. If so, this process keeps the ban as well.
type watch struct {
	trip    *roundTrip
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// watch begins to look, and returns the function that ends it.
func (c *roundTrip) watch() (stop func()) {
	w := &watch{trip: c}
	w.mu.Lock()
	w.timer = time.AfterFunc(watchAfter, w.look)
	w.mu.Unlock()
	return w.stop
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

func (w *watch) look() {
	w.mu.Lock()
	stopped := w.stopped
	w.mu.Unlock()
	if stopped {
		return
	}
	c := w.trip
	c.t.contain(&c.event, "asking Redis for a cool-down", func() {
		ctx, cancel := c.context(tellTime)
		defer cancel()
		for _, d := range c.plan.demands {
			if !d.alone {
				c.t.limiters.look(ctx, d.limiter)
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer.Reset(askAgain)
	}
}

// look asks Redis for a cool-down of l, at most once in askAgain. It does not ask while Redis is unavailable.
func (s *limiters) look(ctx context.Context, l *limiter) {
	now := time.Now()
	s.mu.Lock()
	away := now.Before(s.away)
	s.mu.Unlock()
	l.mu.Lock()
	due := !away && !now.Before(l.looked.Add(askAgain))
	if due {
		l.looked = now
	}
	l.mu.Unlock()
	if !due {
		return
	}
	if err := s.learn(ctx, l); errors.Is(err, ratelimiter.ErrUnavailable) || errors.Is(err, ratelimiter.ErrOverloaded) {
		s.mu.Lock()
		s.away = time.Now().Add(askAgain)
		s.mu.Unlock()
	}
}

// learn keeps the cool-down that Redis has for l, if it has one that this process does not know of.
func (s *limiters) learn(ctx context.Context, l *limiter) error {
	until, err := l.coolDownUntil(ctx)
	if err != nil || time.Until(until) < slack || l.banLeft() >= time.Until(until)-slack {
		return err
	}
	// Its trace may be missing, since not every cool-down is a Transport's. And it may end before there is one.
	trace, err := l.leaveTrace(ctx, until)
	if err != nil {
		return err
	}
	if until, err = l.coolDownUntil(ctx); err != nil || until.IsZero() {
		return err
	}
	l.mu.Lock()
	if until.After(l.ban.until.Add(slack)) {
		l.ban = ban{until: until, told: true, trace: trace}
	}
	l.mu.Unlock()
	s.keep(l)
	return nil
}

// coolDownUntil returns the end of the cool-down in Redis, early by the duration of the call, so this process does
// not hold up a request beyond the end.
func (l *limiter) coolDownUntil(ctx context.Context) (time.Time, error) {
	begin := time.Now()
	until, err := l.handle.Admin().CoolDownUntil(ctx)
	if err != nil || until.IsZero() {
		return time.Time{}, err
	}
	return until.Add(-time.Since(begin)), nil
}

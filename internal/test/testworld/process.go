// SPDX-License-Identifier: Apache-2.0

package testworld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// A Process is one process. It implements the Backends of an Engine.
type Process struct {
	server *Server
	conn   *redisson.Conn
	client string

	mu     sync.Mutex
	next   []Fault
	always Fault
	hook   func(Call) Fault
	calls  []Call
	inTurn bool
	failed bool // a call has
	probes int
	shard  func(key string) string
}

// Process returns a new process.
func (s *Server) Process() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	return &Process{server: s, conn: s.conn(), client: client(s.clients)}
}

func (p *Process) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Next sets the faults of the next calls, one fault per call.
func (p *Process) Next(f ...Fault) { p.locked(func() { p.next = append(p.next, f...) }) }

// Forget drops the faults set by Next that no call has met yet.
func (p *Process) Forget() { p.locked(func() { p.next = nil }) }

// Always sets the fault of every call for which Next has set none.
func (p *Process) Always(f Fault) { p.locked(func() { p.always = f }) }

// Cut makes every call fail with err without being carried out.
func (p *Process) Cut(err *retry.Error) { p.Always(Fault{Err: err}) }

// RejectWrites makes every call that would write fail with err, while the others work.
func (p *Process) RejectWrites(err *retry.Error) { p.Always(Fault{Err: err, Reads: true}) }

// Fix undoes Cut, RejectWrites and Always.
func (p *Process) Fix() { p.Always(Fault{}) }

// Hook sets a function that is called before each call for which Next has set no fault, and returns the fault of that
// call. The function may block. A nil f removes it.
func (p *Process) Hook(f func(Call) Fault) { p.locked(func() { p.hook = f }) }

// Calls returns the calls that the process has made so far.
func (p *Process) Calls() (calls []Call) {
	p.locked(func() { calls = slices.Clone(p.calls) })
	return calls
}

// Sent returns the number of calls that the process has made so far.
func (p *Process) Sent() (n int) {
	p.locked(func() { n = len(p.calls) })
	return n
}

// Probes returns the number of probes that the witness has made so far.
func (p *Process) Probes() (n int) {
	p.locked(func() { n = p.probes })
	return n
}

// InTurn makes the engine decide lists of limiters in turn.
func (p *Process) InTurn() { p.locked(func() { p.inTurn = true }) }

// Divide sets the function that returns the address of the server that holds a key.
func (p *Process) Divide(shard func(key string) (addr string)) { p.locked(func() { p.shard = shard }) }

// send makes a call, which carry carries out unless a fault prevents it.
func (p *Process) send(c Call, carry func() error) (Fault, error) {
	c.At = time.Now()
	p.mu.Lock()
	if c.Replay && !p.failed {
		p.server.t.Errorf("a call for %q is a replay although none has failed", c.Key)
	}
	p.calls = append(p.calls, c)
	f, hook := p.always, p.hook
	if len(p.next) > 0 {
		f, p.next, hook = p.next[0], p.next[1:], nil
	}
	p.mu.Unlock()
	if hook != nil {
		if h := hook(c); h.Err != nil || h.Before > 0 || h.After > 0 || h.Reply != nil {
			f = h
		}
	}
	time.Sleep(f.Before)
	var err error
	reads := f.Reads && c.reads != nil && c.reads()
	if f.Err == nil && f.Reply == nil || f.Runs || reads {
		err = carry()
	}
	time.Sleep(f.After)
	if f.Err != nil && !reads {
		p.locked(func() { p.failed = true })
		failure := *f.Err
		return f, &failure
	}
	return f, err
}

// NewID returns an ID that no call has used.
func (p *Process) NewID() permit.ID { return p.conn.NewID() }

// unwrapped returns parts as the Conn knows them.
func unwrapped(parts []permit.Part) []permit.Part {
	list := slices.Clone(parts)
	for i := range list {
		list[i].Limiter = parts[i].Limiter.(*Limiter).redis
	}
	return list
}

// InOneCall reports whether AcquireAll can decide the parts in one call.
func (p *Process) InOneCall(parts []permit.Part) (ok bool) {
	p.locked(func() { ok = !p.inTurn })
	return ok && p.conn.InOneCall(unwrapped(parts))
}

// Server returns the result of the function set by Divide.
func (p *Process) Server(key string) (addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shard == nil {
		return ""
	}
	return p.shard(key)
}

// AcquireAll takes all parts at one instant, or none of them.
func (p *Process) AcquireAll(ctx context.Context, parts []permit.Part, replay bool) (rejected []int, err error) {
	list, first := unwrapped(parts), parts[0].Limiter.(*Limiter)
	_, err = p.send(Call{Op: "acquire_all", Key: first.key, ID: parts[0].ID, Replay: replay}, func() error {
		for _, part := range parts {
			part.Limiter.(*Limiter).requireNew(part.ID, replay)
		}
		rejected, err = p.conn.AcquireAll(context.WithoutCancel(ctx), list, replay)
		for _, part := range parts {
			if err == nil && len(rejected) == 0 {
				part.Limiter.(*Limiter).granted(Grant{ID: part.ID, At: now(), Permits: part.Permits}, replay)
			}
		}
		return err
	})
	if _, lost := err.(*retry.Error); lost {
		return nil, err
	}
	for i := range parts {
		parts[i].Type = list[i].Type
	}
	return rejected, err
}

// A Limiter is a limiter of a Server as one process reaches it. It implements the Backend of a Handle.
type Limiter struct {
	p     *Process
	key   string
	redis *redisson.Limiter
}

// Limiter returns the limiter with that key.
func (p *Process) Limiter(key string) *Limiter {
	return &Limiter{p, key, p.server.limiter(p.conn, key, p.client)}
}

func (l *Limiter) ledger() *ledger { return l.p.server.ledger(l.key, l.p.client) }

// granted enters g. What a replay is granted was perhaps granted before: Redis has the instant, and nothing if that has
// expired, as a part of a list may have while others are in use.
func (l *Limiter) granted(g Grant, replay bool) {
	if replay {
		key := l.redis.Keys.Permits[l.p.server.rate(l.key).Type]
		score, err := l.p.server.Redis.ZScore(context.Background(), key, string(redisson.Member(l.redis.LongLength, g.ID, uint32(g.Permits)))).Result()
		if err != nil {
			return
		}
		g.At = time.UnixMilli(int64(score))
	}
	l.ledger().add(g)
}

// requireNew tells the test of a call that was carried out and is sent again without being a replay.
func (l *Limiter) requireNew(id permit.ID, replay bool) {
	if !replay && l.ledger().has(id) {
		l.p.server.t.Errorf("a call for %q that was carried out is sent again without being a replay", l.key)
	}
}

// Acquire makes one attempt at b.
func (l *Limiter) Acquire(ctx context.Context, b *permit.Batch) (a permit.Reply, err error) {
	ctx = context.WithoutCancel(ctx)
	c := Call{Op: "acquire", Key: l.key, ID: b.ID, Replay: b.Replay, Batch: *b}
	c.Batch.Runs = slices.Clone(b.Runs)
	if err := check(b); err != nil {
		l.p.server.t.Errorf("acquire of %q: %v", l.key, err)
	}
	c.reads = func() bool {
		dry := *b
		dry.DryRun = true
		a, err := l.redis.Acquire(ctx, &dry)
		return b.DryRun || err != nil || slices.Max(a.Granted) < 1
	}
	f, err := l.p.send(c, func() (err error) {
		for i := range b.Runs {
			if !b.DryRun {
				l.requireNew(b.ID.Run(i), b.Replay)
			}
		}
		a, err = l.redis.Acquire(ctx, b)
		at := now()
		if !b.At.IsZero() {
			at = time.UnixMilli(b.At.UnixMilli())
		}
		for i, n := range a.Granted {
			if !b.DryRun {
				l.granted(Grant{ID: b.ID.Run(i), At: at, Permits: n * b.Runs[i].Permits, told: !b.At.IsZero()}, b.Replay)
			}
		}
		return err
	})
	if err != nil {
		return permit.Reply{}, err
	}
	if f.Reply != nil {
		a = permit.Reply{Granted: make([]int64, len(b.Runs)), Wait: time.Second, Now: now(), Rate: l.p.server.rate(l.key)}
		f.Reply(&a)
	}
	return a, nil
}

// check returns an error if a batch is invalid.
func check(b *permit.Batch) error {
	for _, r := range b.Runs {
		if r.Permits < 1 || r.Permits > permit.Max || r.Count < 1 {
			return fmt.Errorf("a run of %d times %d permits", r.Count, r.Permits)
		}
	}
	switch n := b.Requests(); {
	case len(b.Runs) == 0 || len(b.Runs) > permit.MaxRuns || n > permit.MaxRequests:
		return fmt.Errorf("%d requests in %d runs", n, len(b.Runs))
	case b.ID == (permit.ID{}):
		return errors.New("no ID")
	}
	return nil
}

// Refund makes one attempt at a refund.
func (l *Limiter) Refund(ctx context.Context, typ permit.Type, g permit.Grant) error {
	_, err := l.p.send(Call{Op: "refund", Key: l.key, ID: g.ID, Grant: g}, func() error {
		err := l.redis.Refund(context.WithoutCancel(ctx), typ, g)
		if err == nil {
			l.ledger().refund(g.ID, g.Keep)
		}
		return err
	})
	return err
}

// Reserve makes one attempt at a reservation.
func (l *Limiter) Reserve(ctx context.Context, v permit.Reservation) (a permit.Reserved, err error) {
	_, err = l.p.send(Call{Op: "reserve", Key: l.key, ID: v.ID, Replay: v.Unsure, Part: v.Part}, func() (err error) {
		a, err = l.redis.Reserve(context.WithoutCancel(ctx), v)
		held := a.Held
		if a.Lacking > 0 {
			held = 0 // nobody's grant yet
		}
		if err == nil {
			l.ledger().hold(v.ID, held)
		}
		return err
	})
	return a, err
}

// Probe reaches the server on a connection of its own: the faults of single calls, which Next sets, are not for it, and it is
// no call of the process. What Always and Hook set is.
func (l *Limiter) Probe(patience time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- l.probe() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return &retry.Error{Err: fmt.Errorf("no reply from Redis within %v", patience), Outcome: retry.NotExecuted, Silent: true}
	}
}

func (l *Limiter) probe() error {
	l.p.mu.Lock()
	l.p.probes++
	f, hook := l.p.always, l.p.hook
	l.p.mu.Unlock()
	if hook != nil {
		f = hook(Call{Op: "probe", Key: l.key, At: time.Now()})
	}
	time.Sleep(f.Before + f.After)
	if f.Err != nil {
		failure := *f.Err
		return &failure
	}
	return nil
}

// Sweep does nothing: a process has no connections beside those of its calls.
func (l *Limiter) Sweep() {}

// Spares implements link.Backend.
func (l *Limiter) Spares() bool { return true }

// Shortage returns nil.
func (l *Limiter) Shortage() error { return nil }

// CheckDue returns why the state should be checked now, or Unchecked.
func (l *Limiter) CheckDue(permits int64) permit.HealCause { return l.redis.CheckDue(permits) }

// Heal heals the limiter, in one call.
func (l *Limiter) Heal(typ permit.Type, c permit.HealCause) permit.Op[struct{}] {
	return permit.Op[struct{}]{Name: "heal", Step: func(ctx context.Context) (_ struct{}, more bool, err error) {
		_, err = l.p.send(Call{Op: "heal", Key: l.key}, func() error {
			_, err := l.redis.Heal(typ, c).Run(context.WithoutCancel(ctx))
			return err
		})
		return struct{}{}, false, err
	}}
}

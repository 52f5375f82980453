// Package enginetest provides a fake server for tests of an Engine, in place of Redis. The limiters of a [Server]
// are exact sliding logs in memory that count in whole milliseconds of time.Now, so they can run in the virtual
// time of a testing/synctest bubble. The calls that a [Process] makes can be delayed, refused and lost.
package enginetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// These are the ways in which a call can fail. Each failed call gets its own copy of the error.
var (
	// Refused means that the server could not be reached.
	Refused = &retry.Error{Err: errors.New("connection refused"), Outcome: retry.NotExecuted}
	// Lost means that no reply arrived.
	Lost = &retry.Error{Err: errors.New("connection reset"), Outcome: retry.Unknown}
	// Exhausted means that the process had no free connection.
	Exhausted = &retry.Error{Err: errors.New("connection pool timeout"), Outcome: retry.NotExecuted, Local: true}
	// Loading means that the server is up but not ready.
	Loading = &retry.Error{Err: errors.New("LOADING"), Outcome: retry.NotExecuted, Answered: true}
	// OutOfMemory means that the server refuses to write.
	OutOfMemory = &retry.Error{Err: errors.New("OOM"), Outcome: retry.NotExecuted, Answered: true, ReadOnly: true}
	// Denied means that the server refuses the call, however often it is sent.
	Denied = &retry.Error{Err: errors.New("NOPERM"), Outcome: retry.Executed, Answered: true}
)

// A TB is a test. It is told when an Engine breaks the rules of its backend.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// A Server holds limiters that several processes share.
type Server struct {
	t TB

	mu        sync.Mutex
	limiters  map[string]*limiter
	processes int
	seq       uint64 // the number of the last ID
}

// New returns a Server without limiters.
func New(t TB) *Server { return &Server{t: t, limiters: map[string]*limiter{}} }

func now() int64 { return time.Now().UnixMilli() }

// SetRate sets the rate of a limiter and frees all of its permits.
func (s *Server) SetRate(key string, r permit.Rate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiters[key] = &limiter{name: key, rate: r, logs: map[int]*slidingLog{}}
}

// ChangeRate sets the rate of a limiter and leaves its permits in use as they are.
func (s *Server) ChangeRate(key string, r permit.Rate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limiters[key]
	l.rate, l.changed = r, true
}

// Delete deletes a limiter.
func (s *Server) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.limiters, key)
}

// Spoil makes every call to a limiter fail with err, or with nil ends that.
func (s *Server) Spoil(key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiters[key].err = err
}

// CoolDown makes a limiter grant nothing before until.
func (s *Server) CoolDown(key string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiters[key].cool = until.UnixMilli()
}

// Release returns permits of an Overall limiter.
func (s *Server) Release(key string, permits int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiters[key].log(0).release(now(), permits)
}

// Redisson takes permits of an Overall limiter in the way of Redisson, which reclaims the tripwires of others. It
// returns how long to wait before the next attempt, or 0 if it got the permits.
func (s *Server) Redisson(key string, permits int64) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.limiters[key].log(0)
	g.reclaim(now() - g.interval())
	if short := permits - g.value(); short > 0 {
		n, _ := g.wait(now(), short, 0, 0)
		return ms(n)
	}
	g.add(s.newIDLocked(0), now(), permits, 0)
	return 0
}

func (s *Server) ofAll(key string, f func(*slidingLog) int64) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.limiters[key].logs {
		n += f(g)
	}
	return n
}

// Used returns the permits in use, summed over all processes.
func (s *Server) Used(key string) int64 {
	return s.ofAll(key, func(g *slidingLog) int64 { return g.used(now()) })
}

// Available returns the free permits of an Overall limiter.
func (s *Server) Available(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limiters[key]
	return max(0, l.rate.Permits-l.log(0).used(now()))
}

// Granted returns the permits ever granted, summed over all processes, without those that were returned.
func (s *Server) Granted(key string) int64 {
	return s.ofAll(key, func(g *slidingLog) (n int64) {
		for _, e := range g.ever {
			n += e.granted
		}
		return n
	})
}

// GrantedBetween is Granted for the grants that were made at from or later, and at until or before. Redis counts whole
// milliseconds.
func (s *Server) GrantedBetween(key string, from, until time.Time) int64 {
	return s.ofAll(key, func(g *slidingLog) (n int64) {
		for _, e := range g.ever {
			if e.at >= from.UnixMilli() && e.at <= until.UnixMilli() {
				n += e.granted
			}
		}
		return n
	})
}

// CheckWindows returns an error if a limiter has granted more than its rate within any interval. Permits that were
// returned do not count, and reconciled grants count only if told is set. Limiters whose rate was changed are not
// checked.
func (s *Server) CheckWindows(told bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, l := range s.limiters {
		for _, g := range l.logs {
			if most := g.worst(told); most > l.rate.Permits && !l.changed {
				errs = append(errs, fmt.Errorf("%q granted %d permits within an interval: %v", l.name, most, l.rate))
			}
		}
	}
	return errors.Join(errs...)
}

// A Grant is a grant whose permits are in use.
type Grant struct {
	At      time.Time
	Permits int64
}

// Grants returns the grants of an Overall limiter that are in use, oldest first.
func (s *Server) Grants(key string) (list []Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.limiters[key].log(0)
	for _, e := range g.entries {
		if e.at > now()-g.interval() {
			list = append(list, Grant{time.UnixMilli(e.at), e.left})
		}
	}
	return list
}

// Audits returns how many audits of a limiter were made.
func (s *Server) Audits(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limiters[key].audit
}

func (s *Server) newIDLocked(tag int) (id permit.ID) {
	s.seq++
	id[0] = byte(tag)
	binary.LittleEndian.PutUint64(id[8:], s.seq)
	return id
}

// findLocked returns the limiter that a call of that type is for, or the error that the call gets.
func (s *Server) findLocked(key string, typ permit.Type) (*limiter, error) {
	l := s.limiters[key]
	switch {
	case l == nil:
		return nil, fmt.Errorf("%w: %q has no rate", permit.ErrNotInitialized, key)
	case l.err != nil:
		return nil, l.err
	case l.rate.Type != typ:
		return nil, &permit.WrongTypeError{Type: l.rate.Type}
	}
	return l, nil
}

// A Call is a call that a process made.
type Call struct {
	Op     string    // "acquire", "refund", "reserve", "audit", "acquire_all", "probe"
	Key    string    // of the first limiter
	ID     permit.ID // of what is granted or returned, on the first limiter; zero for an audit
	At     time.Time
	Replay bool
	Batch  permit.Batch       // for an acquire
	Grant  permit.Grant       // for a refund
	Held   permit.Reservation // for a reserve

	reads bool // it writes nothing
}

// A Fault is what happens to a call. With the zero Fault nothing goes wrong.
type Fault struct {
	Before, After time.Duration       // the time until the call is carried out, and from then until the reply
	Err           *retry.Error        // what the process gets in place of a reply
	Reply         func(*permit.Reply) // turns a refusal into the reply to an acquire, which is not carried out
	Runs          bool                // the call is carried out even if Err is set
	Reads         bool                // the call is carried out in spite of Err if it writes nothing
}

// LostReply is the fault of a call that is carried out, but whose reply is lost.
var LostReply = Fault{Err: Lost, Runs: true}

// A Process is one process. It implements the Backends of an Engine.
type Process struct {
	server *Server
	tag    int

	mu     sync.Mutex
	next   []Fault
	always Fault
	hook   func(Call) Fault
	calls  []Call
	inTurn bool
	shard  func(key string) (any, bool)
}

// Process returns a new process.
func (s *Server) Process() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes++
	return &Process{server: s, tag: s.processes}
}

// Next sets the faults of the next calls, one fault per call.
func (p *Process) Next(f ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = append(p.next, f...)
}

// Forget drops the faults set by Next that no call has met yet.
func (p *Process) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = nil
}

// Always sets the fault of every call for which Next has set none.
func (p *Process) Always(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.always = f
}

// Cut makes every call fail with err without being carried out.
func (p *Process) Cut(err *retry.Error) { p.Always(Fault{Err: err}) }

// RefuseWrites makes every call that would write fail with err, while the others work.
func (p *Process) RefuseWrites(err *retry.Error) { p.Always(Fault{Err: err, Reads: true}) }

// Mend undoes Cut, RefuseWrites and Always.
func (p *Process) Mend() { p.Always(Fault{}) }

// Hook sets a function that is called before each call for which Next has set no fault, and returns the fault of that
// call. The function may block. A nil f removes it.
func (p *Process) Hook(f func(Call) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = f
}

// Calls returns the calls that the process has made so far.
func (p *Process) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Sent returns the number of calls that the process has made so far.
func (p *Process) Sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// InTurn makes the engine decide lists of limiters in turn.
func (p *Process) InTurn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inTurn = true
}

// Divide sets the function that returns the part of the server that holds a key.
func (p *Process) Divide(shard func(key string) (any, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shard = shard
}

// send makes a call, which carry carries out unless a fault prevents it.
func (p *Process) send(c Call, carry func() error) (Fault, error) {
	c.At = time.Now()
	p.mu.Lock()
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
	reads := f.Reads && c.reads
	if f.Err == nil && f.Reply == nil || f.Runs || reads {
		p.server.mu.Lock()
		err = carry()
		p.server.mu.Unlock()
	}
	time.Sleep(f.After)
	if f.Err != nil && !reads {
		failure := *f.Err
		return f, &failure
	}
	return f, err
}

// NewID returns an ID that no call has used.
func (p *Process) NewID() permit.ID {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.server.newIDLocked(p.tag)
}

// Joint reports whether AcquireAll can decide the parts in one call.
func (p *Process) Joint(parts []permit.Part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.inTurn && len(parts) <= 6
}

// Shard returns the result of the function set by Divide.
func (p *Process) Shard(key string) (any, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shard == nil {
		return nil, false
	}
	return p.shard(key)
}

// AcquireAll takes all parts at one instant, or none of them.
func (p *Process) AcquireAll(_ context.Context, parts []permit.Part, replay bool) (refused []int, err error) {
	s := p.server
	types := make([]permit.Type, len(parts))
	for i := range parts {
		types[i] = parts[i].Type
	}
	_, err = p.send(Call{Op: "acquire_all", Key: parts[0].Limiter.(*Limiter).key, ID: parts[0].ID, Replay: replay}, func() error {
		logs, ran := make([]*slidingLog, len(parts)), false
		for i := range parts {
			v := &parts[i]
			l, err := s.findLocked(v.Limiter.(*Limiter).key, v.Type)
			if other, ok := err.(*permit.WrongTypeError); ok {
				types[i] = other.Type
			}
			if err != nil {
				return err
			}
			if v.Permits > l.rate.Permits {
				return permit.Exceeds(l.name, v.Permits, l.rate.Permits)
			}
			g := l.log(p.tag)
			logs[i] = g
			before := g.find(v.ID) != nil
			if ran = ran || before; before && !replay {
				s.t.Errorf("a call for several limiters is sent again without being a replay")
			}
			if l.cool > now() || g.pause(now(), nil) > 0 || g.rate.Permits-g.used(now()) < v.Permits {
				refused = append(refused, i)
			}
		}
		if ran && replay {
			refused = nil
			return nil
		}
		if len(refused) == 0 {
			for i, v := range parts {
				logs[i].reclaim(now() - logs[i].interval())
				logs[i].add(v.ID, now(), v.Permits, p.tag)
			}
		}
		return nil
	})
	if _, lost := err.(*retry.Error); lost {
		return nil, err
	}
	for i := range parts {
		parts[i].Type = types[i]
	}
	return refused, err
}

// A Limiter is a limiter of a Server as one process reaches it. It implements the Backend of a Handle.
type Limiter struct {
	p   *Process
	key string
}

// Limiter returns the limiter with that key.
func (p *Process) Limiter(key string) *Limiter { return &Limiter{p, key} }

// Acquire makes one attempt at b.
func (l *Limiter) Acquire(_ context.Context, b *permit.Batch) (a permit.Reply, err error) {
	s := l.p.server
	c := Call{Op: "acquire", Key: l.key, ID: b.ID, Replay: b.Replay, Batch: *b}
	c.Batch.Runs = slices.Clone(b.Runs)
	if err := check(b); err != nil {
		s.t.Errorf("acquire of %q: %v", l.key, err)
	}
	c.reads = l.onlyReads(b)
	f, err := l.p.send(c, func() error {
		state, err := s.findLocked(l.key, b.Type)
		if err != nil {
			return err
		}
		g, at := state.log(l.p.tag), now()
		if !b.At.IsZero() {
			at = b.At.UnixMilli()
		}
		for i := range b.Runs {
			if !b.Replay && !b.DryRun && g.find(b.ID.Run(i)) != nil {
				s.t.Errorf("acquire of %q: a call that was carried out is sent again without being a replay", l.key)
			}
		}
		before := len(g.ever)
		a = g.acquire(b, at, state.cool, l.p.tag)
		for _, e := range g.ever[before:] {
			e.told = !b.At.IsZero()
		}
		return nil
	})
	if err != nil {
		return permit.Reply{}, err
	}
	if f.Reply != nil {
		s.mu.Lock()
		a = permit.Reply{Granted: make([]int64, len(b.Runs)), Wait: time.Second, Now: time.UnixMilli(now()), Rate: s.limiters[l.key].rate}
		s.mu.Unlock()
		f.Reply(&a)
	}
	return a, nil
}

// onlyReads reports whether b would be refused, and nothing reclaimed for it. What is reclaimed would let the rest of
// a script write, too, even if the server is out of memory.
func (l *Limiter) onlyReads(b *permit.Batch) bool {
	s := l.p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := s.findLocked(l.key, b.Type)
	if err != nil || b.DryRun {
		return true
	}
	g := state.log(l.p.tag)
	free := g.value()
	for _, r := range b.Runs {
		if r.Permits <= free && state.cool <= now() {
			return false
		}
	}
	return true
}

// Probe makes one attempt at a call that is refused if a write is.
func (l *Limiter) Probe(context.Context, permit.Type) error {
	_, err := l.p.send(Call{Op: "probe", Key: l.key}, func() error { return nil })
	return err
}

// Refund makes one attempt to return the unclaimed permits of g.
func (l *Limiter) Refund(_ context.Context, typ permit.Type, g permit.Grant) error {
	if g.Keep < 0 || g.Keep >= g.Permits {
		l.p.server.t.Errorf("refund of %q: %d of %d permits are kept", l.key, g.Keep, g.Permits)
	}
	_, err := l.p.send(Call{Op: "refund", Key: l.key, ID: g.ID, Grant: g}, func() error {
		state, err := l.p.server.findLocked(l.key, typ)
		if err == nil {
			state.log(l.p.tag).refund(g)
		}
		return err
	})
	return err
}

// Reserve makes one attempt at v.
func (l *Limiter) Reserve(_ context.Context, v permit.Reservation) (a permit.Reserved, err error) {
	_, err = l.p.send(Call{Op: "reserve", Key: l.key, ID: v.ID, Held: v}, func() error {
		state, err := l.p.server.findLocked(l.key, v.Type)
		if err != nil {
			return err
		}
		if v.Want > state.rate.Permits {
			return permit.Exceeds(state.name, v.Want, state.rate.Permits)
		}
		a = state.log(l.p.tag).reserve(v, now(), state.cool, l.p.tag)
		a.Rate = permit.Rate{Permits: state.rate.Permits, Interval: state.rate.Interval}
		return nil
	})
	return a, err
}

// Audit only counts the audits, because an exact log never loses permits.
func (l *Limiter) Audit(_ context.Context, typ permit.Type, _ bool) error {
	_, err := l.p.send(Call{Op: "audit", Key: l.key}, func() error {
		state, err := l.p.server.findLocked(l.key, typ)
		if err == nil {
			state.audit++
		}
		return err
	})
	return err
}

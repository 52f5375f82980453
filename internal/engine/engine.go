package engine

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// An Engine has the limiters of one client. While nobody acquires it has no goroutine. Its methods, and those of
// its handles, are safe for concurrent use.
type Engine struct {
	cfg    Config
	closed chan struct{}

	seed     maphash.Seed
	shards   [512]shard
	health   outage.Health // of the one Redis, when it is not divided
	healths  sync.Map      // of *outage.Health, by what Backends.Shard returns
	requests sync.Pool     // of *request; not a global one, because channels must not leave a test's bubble
	calls    sync.WaitGroup

	seq        atomic.Uint64 // of callers that may wait, by their coming
	contenders contenders
}

// New returns an Engine. Closed is closed when it is.
func New(cfg Config) *Engine {
	return &Engine{cfg: cfg, closed: make(chan struct{}), seed: maphash.MakeSeed()}
}

// Closed returns a channel that is closed when the Engine is.
func (e *Engine) Closed() <-chan struct{} { return e.closed }

// Close fails the callers that wait, and every later call, with ErrClosed. It waits a second at most for the end of
// calls in the air, and for refunds. It is called once.
func (e *Engine) Close() {
	close(e.closed)
	for i := range e.shards {
		e.shards[i].close()
	}
	ended := make(chan struct{})
	go func() {
		e.calls.Wait()
		close(ended)
	}()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

func (e *Engine) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// ready returns why a call must not be made: context first.
func (e *Engine) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.isClosed() {
		return permit.ErrClosed
	}
	return nil
}

func (e *Engine) newRequest() *request {
	if r, ok := e.requests.Get().(*request); ok {
		return r
	}
	return &request{done: make(chan struct{}, 1)}
}

// recycle takes a request back that has ended and been woken.
func (e *Engine) recycle(r *request) {
	*r = request{done: r.done, timer: r.timer}
	e.requests.Put(r)
}

func (e *Engine) shardOf(key string) *shard {
	return &e.shards[maphash.String(e.seed, key)%uint64(len(e.shards))]
}

// Touch notes that a call for a limiter begins or has ended that is not its line's; see [Handle.Touch].
func (e *Engine) Touch(key string) {
	s := e.shardOf(key)
	s.lock()
	defer s.unlock()
	if l := s.findLocked(key); l != nil {
		l.sharing.touched = time.Now()
	}
}

// A Handle is one limiter's. It holds nothing of the limiter; handles of one key are the same limiter's.
type Handle struct {
	engine  *Engine
	shard   *shard
	key     string
	name    string
	backend Backend
}

// Handle returns that of the limiter of a key. name is what errors call it.
func (e *Engine) Handle(key, name string, b Backend) Handle {
	return Handle{engine: e, shard: e.shardOf(key), key: key, name: name, backend: b}
}

// Acquire takes a request through the limiter, and returns how it ended. Each copy of a request is felt
// where hundreds ask at once: there is none.
func (h *Handle) Acquire(ctx context.Context, want Request) (Outcome, error) {
	e, s := h.engine, h.shard
	r := e.newRequest()
	r.ctx, r.permits, r.blocking, r.tellWait, r.policy = ctx, want.Permits, want.Wait, want.TellWait, want.Policy
	if want.Wait {
		r.seq = e.seq.Add(1)
		if want.Timeout > 0 {
			r.deadline = time.Now().Add(want.Timeout)
		}
	}
	endless := ctx.Done() == nil && r.deadline.IsZero() // nothing ends the call before Redis does

	s.lock()
	if s.closed {
		s.unlock()
		return Outcome{}, permit.ErrClosed
	}
	l := s.limiterLocked(h)
	if r.policy != nil && l.tryLocalLocked(r) {
		s.unlock()
		got := r.Outcome
		e.recycle(r)
		return got, got.Err
	}
	var inline *flight
	refused := l.addLocked(r) // an endless request is never refused: it has no deadline that could be too early
	if endless && !r.Degraded {
		inline = l.takeInlineLocked(r)
	} else {
		l.scheduleLocked()
	}
	s.unlock()
	if refused {
		return Outcome{}, nil
	}
	if inline != nil {
		inline.flyInline()
	}
	ended, err := l.await(ctx, r, want.Timeout)
	if ended == nil {
		return Outcome{}, err
	}
	got := ended.Outcome
	e.recycle(ended)
	return got, got.Err
}

// Peek returns what a request would be told, and takes nothing.
func (h *Handle) Peek(ctx context.Context, permits int64) (permit.Reply, error) {
	return (&part{h: h, permits: permits}).look(ctx)
}

// Grace is how long a caller whose time is up waits for a reply that is on its way: so that a
// timeout shorter than a round trip is a try, and one that ends just when the permits come back is
// served.
const Grace = 10 * time.Millisecond

// await waits for the outcome of a request that a limiter has. When the caller's time is up or ctx is
// done it returns at once, whatever is in the air; the limiter passes on what was granted.
func (l *limiter) await(ctx context.Context, r *request, timeout time.Duration) (*request, error) {
	var timeUp <-chan time.Time
	if r.blocking && !r.deadline.IsZero() {
		if r.timer == nil {
			r.timer = time.NewTimer(timeout)
		} else {
			r.timer.Reset(timeout)
		}
		timeUp = r.timer.C
		defer r.timer.Stop()
	}
	if timeUp == nil && ctx.Done() == nil {
		<-r.done
		return r, nil
	}
	for {
		select {
		case <-r.done:
			return r, nil
		case <-ctx.Done():
			return l.leave(r, ctx.Err())
		case <-timeUp:
			if timeUp = l.graceFor(r); timeUp == nil {
				return l.leave(r, nil)
			}
		}
	}
}

// graceFor starts the grace of a request whose time is up, once, where a reply is on its way.
func (l *limiter) graceFor(r *request) <-chan time.Time {
	l.shard.lock()
	defer l.shard.unlock()
	if r.overdue || r.Degraded || l.lastErr != nil {
		return nil
	}
	if !time.Now().Before(l.grantableAt) {
		l.scheduleLocked() // the permits may be due at this very instant
	}
	if !r.ended && !l.lineInFlight {
		return nil
	}
	r.overdue = true
	r.timer.Reset(Grace)
	return r.timer.C
}

// leave takes out a request whose caller waits no longer: because of err, or because its time is up.
// An outcome that came first counts.
func (l *limiter) leave(r *request, err error) (*request, error) {
	l.shard.lock()
	var ended []*request
	if r.Degraded && !r.ended && err == nil {
		ended = l.serveLineLocked(false, nil) // its share may be due at this very instant
		l.rearmLocked()
	}
	if r.ended {
		l.shard.unlock()
		wake(ended)
		<-r.done
		return r, nil
	}
	r.gone = true
	if err == nil && !r.Degraded && (l.lineInFlight && !r.refused && r.turn == nil || l.lastErr != nil || l.h.Health().Down()) {
		// Nobody knows whether it was refused.
		err = fmt.Errorf("%w: acquire of %q: no answer in time", permit.ErrUnavailable, l.h.name)
		if l.lastErr != nil {
			err = fmt.Errorf("%w: %w", err, l.lastErr)
		}
	}
	l.abandonLocked(r)
	if r.Degraded {
		ended = l.serveLineLocked(false, ended) // who stood behind it
		l.rearmLocked()
	}
	l.shard.unlock()
	wake(ended)
	return nil, err
}

// Health returns that of the Redis in which the limiter lives: of a ring its shard. Which node of a cluster that is,
// is not known, nor always which shard: then it is that of the limiters whose keys hash alike.
func (h *Handle) Health() *outage.Health {
	e := h.engine
	if !e.cfg.Divided {
		return &e.health
	}
	shard, ok := e.cfg.Backends.Shard(h.key)
	if !ok {
		return &h.shard.health
	}
	o, ok := e.healths.Load(shard)
	if !ok {
		o, _ = e.healths.LoadOrStore(shard, new(outage.Health))
	}
	return o.(*outage.Health)
}

// markDown and markUp tell the observer what is news.
func (h *Handle) markDown(err error) {
	if h.Health().MarkDown(err) && h.engine.cfg.Observe != nil {
		h.engine.cfg.Observe(Event{Limiter: h.name, Time: time.Now(), Err: err})
	}
}

func (h *Handle) markUp() {
	if ended, lasted, granted := h.Health().MarkUp(); ended && h.engine.cfg.Observe != nil {
		h.engine.cfg.Observe(Event{Ended: true, Limiter: h.name, Time: time.Now(), Duration: lasted, Granted: granted})
	}
}

// Changed lets those who wait for the limiter in this process ask again at once.
func (h *Handle) Changed() {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		l.changes++
		l.nextAskAt = time.Time{}
		l.scheduleLocked()
	}
}

// changesSeen returns how often this process has changed the limiter, for a caller that is about to ask.
func (h *Handle) changesSeen() int {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		return l.changes
	}
	return 0
}

// grantableAt returns when the first in line can be served at the soonest, as far as that is known.
func (h *Handle) grantableAt() time.Time {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil && !l.grantableAt.IsZero() {
		return l.grantableAt
	}
	return time.Now()
}

// Touch notes that a call of this process which is not of the line begins or has ended. It may reclaim the line's
// tripwire, whose absence then says nothing of others.
func (h *Handle) Touch() {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		l.sharing.touched = time.Now()
	}
}

// Type returns the type that the limiter had when it was last seen. Without one it is Overall;
// being wrong costs a round trip.
func (h *Handle) Type() permit.Type {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		return l.typ
	}
	return permit.Overall
}

// LearnType notes that the limiter has a new rate, or another type than was thought. Lost permits may be looked for
// again.
func (h *Handle) LearnType(typ permit.Type) {
	h.shard.lock()
	defer h.shard.unlock()
	if typ != permit.Overall || h.shard.findLocked(h.key) != nil {
		l := h.shard.limiterLocked(h)
		l.typ, l.checks.nextAudit, l.noTTLUntil = typ, time.Time{}, time.Time{}
	}
}

// ForgetTTL notes that the limiter may have got a TTL.
func (h *Handle) ForgetTTL() {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		l.noTTLUntil = time.Time{}
	}
}

// NoteCoolDown has the policies of this process obey a cool-down, until Redis has been told of it too; the zero time
// ends it.
func (h *Handle) NoteCoolDown(until time.Time) {
	h.shard.lock()
	defer h.shard.unlock()
	h.shard.limiterLocked(h).localShareLocked().NoteCoolDown(until)
}

// ToldCoolDown notes that Redis has been told of a cool-down, and may from now on say that it is over.
func (h *Handle) ToldCoolDown(until time.Time) {
	h.shard.lock()
	defer h.shard.unlock()
	h.shard.limiterLocked(h).localShareLocked().ToldCoolDown(until)
}

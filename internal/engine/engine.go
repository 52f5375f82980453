package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// An Engine holds the limiters of one client. While nobody acquires it has no goroutine. Its methods, and those
// of its handles, are safe for concurrent use.
type Engine struct {
	cfg    Config
	closed chan struct{}

	seed     maphash.Seed
	shards   [512]shard
	health   outage.Health // of the only Redis, if it is not divided
	healths  sync.Map      // *outage.Health by the value that Backends.Shard returns
	requests sync.Pool     // of *request; not global, because channels must not leave the bubble of a test
	flights  sync.Pool     // of *flight
	calls    sync.WaitGroup
	slowed   broadcast // a health is down because of slow replies
}

// New returns an Engine.
func New(cfg Config) *Engine {
	return &Engine{cfg: cfg, closed: make(chan struct{}), seed: maphash.MakeSeed()}
}

// Closed returns a channel that is closed when the Engine is closed.
func (e *Engine) Closed() <-chan struct{} { return e.closed }

// Close makes the callers that wait, and every later call, fail with ErrClosed. It waits for the end of calls
// in the air and for refunds, for one second at most. It must be called only once.
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

// Config returns what the Engine was made with.
func (e *Engine) Config() *Config { return &e.cfg }

// Slowed returns a channel that is closed when the next outage because of slow replies begins.
func (e *Engine) Slowed() <-chan struct{} { return e.slowed.next() }

// Background runs f in a goroutine of its own, for which Close waits. It returns ErrClosed if the Engine is closed.
func (h *Handle) Background(f func()) error {
	h.shard.lock()
	defer h.shard.unlock()
	if h.shard.closed { // Close waits only for those counted before
		return permit.ErrClosed
	}
	h.engine.calls.Add(1)
	go func() {
		defer h.engine.calls.Done()
		f()
	}()
	return nil
}

// IsClosed reports whether Close has been called.
func (e *Engine) IsClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// ready returns the reason why a call cannot be made, if any. An error of the context comes first.
func (e *Engine) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.IsClosed() {
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

// recycle keeps a request for reuse that has ended and whose caller has been woken.
func (e *Engine) recycle(r *request) {
	*r = request{done: r.done, timer: r.timer}
	e.requests.Put(r)
}

func (e *Engine) shardOf(key string) *shard {
	return &e.shards[maphash.String(e.seed, key)%uint64(len(e.shards))]
}

// Touch records that a call for a limiter begins or has ended that does not come from its line; see
// [Handle.Touch].
func (e *Engine) Touch(key string) { (&Handle{shard: e.shardOf(key), key: key}).Touch() }

// A Handle is how a caller reaches one limiter. It holds no state of the limiter; handles with the same key
// share one.
type Handle struct {
	engine  *Engine
	shard   *shard
	key     string
	name    string
	backend Backend
}

// Handle returns a Handle of the limiter with that key. Errors call the limiter name.
func (e *Engine) Handle(key, name string, b Backend) Handle {
	return Handle{engine: e, shard: e.shardOf(key), key: key, name: name, backend: b}
}

// Acquire passes a request through the limiter, and returns how it ended. It avoids copies of the request,
// because each costs a measurable time when hundreds of callers ask at once.
func (h *Handle) Acquire(ctx context.Context, want Request) (Outcome, error) {
	e, s := h.engine, h.shard
	r := e.newRequest()
	r.ctx, r.want = ctx, want
	if want.Wait {
		r.came = time.Now()
	}
	endless := ctx.Done() == nil && !r.hasDeadline() // nothing but Redis ends the call

	s.lock()
	if s.closed {
		s.unlock()
		return Outcome{}, permit.ErrClosed
	}
	if r.isKnown() && !h.Health().Down() { // during an outage nothing is known
		if got, refused := s.refusals.refuseLocked(h.key, &want); refused {
			s.unlock()
			e.recycle(r)
			return got, nil
		}
	}
	l := s.limiterLocked(h)
	if want.Policy != nil && l.tryLocalLocked(r) {
		s.unlock()
		got := r.Outcome
		e.recycle(r)
		return got, got.Err
	}
	var inline *flight
	refused := l.addLocked(r)          // an endless request is never refused, since it has no deadline
	if endless && want.Policy == nil { // a policy may decide it while the call is on its way
		if inline = l.takeInlineLocked(r); inline != nil {
			inline.inline = true
		}
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
	ended, err := l.await(ctx, s, r, want.Timeout)
	if ended == nil {
		return Outcome{}, err
	}
	got := ended.Outcome
	e.recycle(ended)
	return got, got.Err
}

// Grace is how long a caller whose time is up waits for a reply that is on its way. It makes a timeout shorter
// than a round trip act as one try, and serves a caller whose timeout ends just when the permits come back.
const Grace = 10 * time.Millisecond

// await waits for the outcome of a request. When the caller's time is up or ctx is done it returns at once,
// whatever is in the air; the limiter passes on permits that are granted to the request afterwards. Once the
// request has its outcome the limiter may be made anew for another name, so its fields, such as the shard s, are
// not to be read without the lock.
func (l *limiter) await(ctx context.Context, s *shard, r *request, timeout time.Duration) (*request, error) {
	var timeUp <-chan time.Time
	if r.hasDeadline() {
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
			return l.leave(s, r, ctx.Err())
		case <-timeUp:
			if timeUp = l.graceFor(s, r); timeUp == nil {
				return l.leave(s, r, nil)
			}
		}
	}
}

// graceFor starts the grace of a request whose time is up if a reply is on its way. Each request gets it only
// once.
func (l *limiter) graceFor(s *shard, r *request) <-chan time.Time {
	s.lock()
	defer s.unlock()
	if r.overdue || r.Degraded || l.lastErr != nil {
		return nil
	}
	if !time.Now().Before(l.first.grantableAt) {
		l.scheduleLocked() // the permits may fall due at this very instant
	}
	if r.state != hasEnded && l.flights.ofLine() == 0 {
		return nil
	}
	r.overdue = true
	r.timer.Reset(Grace)
	return r.timer.C
}

// leave removes a request whose caller no longer waits, because of err or because its time is up. If the
// request has an outcome already, that counts.
func (l *limiter) leave(s *shard, r *request, err error) (*request, error) {
	s.lock()
	var ended []*request
	if r.Degraded && r.state != hasEnded && err == nil {
		ended = l.serveLineLocked(false, nil) // its share may fall due at this very instant
		l.rearmLocked()
	}
	if r.state == hasEnded {
		s.unlock()
		wake(ended)
		<-r.done
		return r, nil
	}
	r.state = hasLeft
	err = l.whyLeftLocked(r, err)
	l.abandonLocked(r)
	if r.Degraded {
		ended = l.serveLineLocked(false, ended) // the callers behind it
		l.rearmLocked()
	}
	s.unlock()
	wake(ended)
	return nil, err
}

// whyLeftLocked returns the error of a request whose caller leaves because of err, or because its time is up.
// The error wraps ErrUnavailable if Redis is known to be down, if the last attempt has failed, or if nobody knows
// whether the request was refused.
func (l *limiter) whyLeftLocked(r *request, err error) error {
	if r.Degraded {
		return err
	}
	_, down := l.h.Health().Since()
	if down != nil {
		down = withLast(down, l.lastErr)
		if err != nil {
			down = fmt.Errorf("%w: %w", err, down)
		}
		return permit.Unavailable("acquire", l.h.name, down)
	}
	var waited time.Duration // for a call that is on its way
	for _, f := range l.flights {
		waited = max(waited, time.Since(f.begin))
	}
	if waited == 0 && r.want.Wait {
		waited = time.Since(r.came)
	}
	// It is on its way, or stands behind a call that is.
	asks := (l.flights.ofLine() > 0 || !r.want.Wait) && !r.refused && r.place == nil
	if l.lastErr != nil || asks && (err == nil || waited >= permit.Patience) {
		return permit.NoReply(permit.Of("acquire", l.h.name), waited, l.lastErr, err)
	}
	return err
}

// Health returns the health of the Redis that holds the limiter, on a ring that of its shard. On a cluster the
// node is not known, nor is the shard of a ring always; then it is the health shared by the limiters whose keys
// hash alike.
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

// observePanic tells the observer of a call that ended with a panic.
func (h *Handle) observePanic(err error) {
	var p *retry.Panic
	if errors.As(err, &p) {
		h.observe(Event{Kind: Panicked, Err: err})
	}
}

// observe calls the observer. If the observer panics, observe tells it so, once: a panic must neither end the
// process nor leave a flight in the air.
func (h *Handle) observe(ev Event) {
	if h.engine.cfg.Observe == nil {
		return
	}
	ev.Limiter, ev.Time = h.name, time.Now()
	tell := func() { h.engine.cfg.Observe(ev) }
	if err := retry.Contain(tell); err != nil {
		ev = Event{Kind: Panicked, Limiter: h.name, Time: ev.Time, Err: fmt.Errorf("the observer %w", err)}
		_ = retry.Contain(tell)
	}
}

// Changed lets the callers in this process that wait for the limiter ask again at once, and forgets its refusals.
func (h *Handle) Changed() {
	h.shard.lock()
	defer h.shard.unlock()
	h.shard.refusals.forgetLocked(h.key)
	if l := h.shard.findLocked(h.key); l != nil {
		l.changes++
		l.first.askAt = time.Time{}
		l.scheduleLocked()
	}
}

// Key returns the key of the limiter.
func (h *Handle) Key() string { return h.key }

// Name returns what errors call the limiter.
func (h *Handle) Name() string { return h.name }

// Backend returns where the permits of the limiter are.
func (h *Handle) Backend() Backend { return h.backend }

// Touch records that a call of this process begins or has ended that does not come from the line. Such a call
// may reclaim the line's tripwire, whose absence then does not prove that another process took part.
func (h *Handle) Touch() {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		l.share.Touch(time.Now())
	}
}

// Type returns the type that the limiter had when it was last seen, or Overall. A wrong type costs a round
// trip.
func (h *Handle) Type() permit.Type {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		return l.rate.Type
	}
	return permit.Overall
}

// LearnType records that the limiter has a new rate, or another type than expected. The next refusal may look
// for lost permits again.
func (h *Handle) LearnType(typ permit.Type) {
	h.shard.lock()
	defer h.shard.unlock()
	if typ != permit.Overall || h.shard.findLocked(h.key) != nil {
		l := h.shard.limiterLocked(h)
		l.rate.Type, l.checks.nextAudit, l.checks.noTTLUntil = typ, time.Time{}, time.Time{}
	}
}

// ForgetTTL records that the limiter may have got a TTL.
func (h *Handle) ForgetTTL() {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(h.key); l != nil {
		l.checks.noTTLUntil = time.Time{}
	}
}

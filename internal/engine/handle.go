// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

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

// Touch records that a call for a limiter begins or has ended that does not come from its line; see
// [Handle.Touch].
func (e *Engine) Touch(key string) { (&Handle{shard: e.shardOf(key), line: line{key: key}}).Touch() }

// A Handle is how a caller reaches one limiter. It holds no state of the limiter; handles with the same key
// share one.
type Handle struct {
	line
	engine  *Engine
	shard   *shard
	name    string
	backend Backend
}

// A line identifies a wait queue: one limiter has one for all requests, and one more for each lower class of them.
type line struct {
	key   string // of the limiter
	floor int64  // permits that its requests leave free
}

// Handle returns a Handle of the limiter with that key. Errors call the limiter name.
func (e *Engine) Handle(key, name string, b Backend) Handle {
	return Handle{line: line{key: key}, engine: e, shard: e.shardOf(key), name: name, backend: b}
}

// Lower returns a Handle of the same limiter for a lower class of requests, which are granted only if that many permits
// stay free. They have a wait queue of their own, reserve nothing, and during an outage are like any others.
func (h *Handle) Lower(floor int64) Handle {
	low := *h
	low.floor = floor
	return low
}

// Floor returns how many permits the requests leave free.
func (h *Handle) Floor() int64 { return h.floor }

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

// observe calls the observer, which does not panic.
func (h *Handle) observe(ev Event) {
	if h.engine.cfg.Observe != nil {
		ev.Limiter, ev.Time = h.name, time.Now()
		h.engine.cfg.Observe(ev)
	}
}

// Changed lets the callers in this process that wait for the limiter ask again at once, and forgets its rejections.
func (h *Handle) Changed() {
	h.shard.lock()
	defer h.shard.unlock()
	h.shard.rejections.forgetLimiterLocked(h.key)
	for _, l := range h.shard.limiters {
		if l.h.key == h.key {
			l.changes++
			l.first.askAt = time.Time{}
			l.scheduleLocked()
		}
	}
}

// Key returns the key of the limiter.
func (h *Handle) Key() string { return h.key }

// Name returns what errors call the limiter.
func (h *Handle) Name() string { return h.name }

// Backend returns where the permits of the limiter are.
func (h *Handle) Backend() Backend { return h.backend }

// Touch records that a call of this process begins or has ended that does not come from the queue. Such a call
// may reclaim the queue's tripwire, whose absence then does not prove that another process took part.
func (h *Handle) Touch() {
	h.shard.lock()
	defer h.shard.unlock()
	if l := h.shard.findLocked(line{key: h.key}); l != nil {
		l.share.Touch(time.Now())
	}
}

// lowerYield is how much later than its permits are free the queue of a lower class asks for them, so that callers of the
// others, who wait for the same instant, come first.
const lowerYield = 10 * time.Millisecond

func (h *Handle) yield(r permit.Rate) time.Duration {
	if h.floor == 0 {
		return 0
	}
	return min(lowerYield, r.Interval/10)
}

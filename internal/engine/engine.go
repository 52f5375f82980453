// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/permit"
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
	slowed   outage.Broadcast // a health is down because of slow replies
}

// New returns an Engine.
func New(cfg Config) *Engine {
	return &Engine{cfg: cfg, closed: make(chan struct{}), seed: maphash.MakeSeed()}
}

// Closed returns a channel that is closed when the Engine is closed.
func (e *Engine) Closed() <-chan struct{} { return e.closed }

// Close makes the callers that wait, and every later call, fail with ErrClosed. It waits for the end of calls
// in flight and for refunds, for one second at most. It must be called only once.
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
func (e *Engine) Slowed() <-chan struct{} { return e.slowed.Next() }

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

// SPDX-License-Identifier: Apache-2.0

// Package engine decides which callers wait for the permits of a limiter, which of them share a call, and what
// happens during an outage. It knows neither Redis nor the keys of the limiter; it makes its calls through a [link.Link].
//
// State decides, under the lock of its shard: limiter.go, and schedule.go, land.go, local.go and others, each for
// one part of it. A method that needs the lock has a name that ends in Locked, or belongs to a type that says so.
// Flights make calls, without the lock and through package link: flight.go, attempt.go. So does gather.go. Callers wait:
// acquire.go, and place.go for those that want more than one limiter; package list is a client of these.
// docs/design/engine.md explains the words, and in which order to read.
package engine

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/outage"
)

// A Config configures an Engine.
type Config struct {
	Backends    link.Backends
	Recheck     time.Duration    // the longest sleep of the queue before it asks again
	OutageLimit time.Duration    // how long callers wait during an outage
	RejectEarly bool             // reject a caller as soon as its time is known to be too short
	Observe     func(link.Event) // called without locks; may be nil
}

// An Engine holds the limiters of one client. While nobody acquires it has no goroutine. Its methods, and those
// of its handles, are safe for concurrent use.
type Engine struct {
	cfg    Config
	system link.System

	seed     maphash.Seed
	shards   [512]shard
	requests sync.Pool // of *request; not global, because channels must not leave the bubble of a test
	flights  sync.Pool // of *flight
	calls    sync.WaitGroup
	began    outage.Broadcast // an outage
}

// New returns an Engine.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, seed: maphash.MakeSeed()}
	e.system = link.System{Backends: cfg.Backends, Closed: make(chan struct{}), Observe: cfg.Observe, Began: e.decideAll}
	for i := range e.shards {
		e.shards[i].engine = e
	}
	return e
}

// Closed returns a channel that is closed when the Engine is closed.
func (e *Engine) Closed() <-chan struct{} { return e.system.Closed }

// IsClosed reports whether Close has been called.
func (e *Engine) IsClosed() bool { return e.system.IsClosed() }

// Close makes the callers that wait, and every later call, fail with ErrClosed. It waits for the end of calls
// in flight and for refunds, for one second at most. It must be called only once.
func (e *Engine) Close() {
	close(e.system.Closed)
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

// Replied records that Redis has replied to a call which is not of a limiter, and so has let this user in.
func (e *Engine) Replied() { e.system.Replied() }

// OutageBegins returns a channel that is closed when the next outage begins.
func (e *Engine) OutageBegins() <-chan struct{} { return e.began.Next() }

func (e *Engine) shardOf(key string) *shard {
	return &e.shards[maphash.String(e.seed, key)%uint64(len(e.shards))]
}

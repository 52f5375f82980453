// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// A Dispatcher is a [Sender] that lets script calls share round trips, even calls of different limiters. Each master
// of a cluster and each shard of a ring has a lane of its own. A call that arrives while little is in flight leaves
// at once and alone. Calls that arrive while others are in flight leave together, in
// one pipeline. See lane.go for when calls leave.
//
// Every other command, and a script that is [Script.Alone], leaves at once and alone.
//
// While no call is in flight a Dispatcher has no goroutine, and no timer for longer than [clientPatience].
type Dispatcher struct {
	rdb    redis.UniversalClient
	sender Sender // of what leaves by itself: rdb, or a ring that is pinned

	single   *lane // of a client with one node; nil for a cluster and a ring
	ring     *pinnedRing
	cluster  masters
	looks    looks
	separate atomic.Bool // see [Separate]
	era      atomic.Pointer[era]
	settled  atomic.Bool // the cluster's client knows its masters, so that asking it for one does not block

	mu    sync.RWMutex
	lanes map[*redis.Client]*lane
	sweep int // how many lanes there must be before those that are empty are dropped

	free sync.Pool // of *call
}

// Masters is the part of a redis.ClusterClient that knows its nodes.
type masters interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// dispatchers holds the Dispatcher of each redis client of the process, without keeping either alive.
var dispatchers struct {
	sync.Mutex
	of map[any]weak.Pointer[Dispatcher]
}

// IsNil reports whether rdb is nil, or a pointer that is.
func IsNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Of returns the Dispatcher of rdb. All callers that use the same redis.Client, ClusterClient or Ring share one. For
// any other type, such as one that embeds a client, each call returns a new one. The comment of [Pin] about rings
// applies to it.
//
// For a cluster and a ring it adds a hook to rdb; see [detour].
func Of(rdb redis.UniversalClient) *Dispatcher {
	var key any
	switch c := rdb.(type) {
	case *redis.Client:
		key = weak.Make(c)
	case *redis.ClusterClient:
		key = weak.Make(c)
	case *redis.Ring:
		key = weak.Make(c)
	default:
		return newDispatcher(rdb)
	}
	dispatchers.Lock()
	defer dispatchers.Unlock()
	if d := dispatchers.of[key].Value(); d != nil {
		return d
	}
	for k, d := range dispatchers.of {
		if d.Value() == nil {
			delete(dispatchers.of, k)
		}
	}
	if dispatchers.of == nil {
		dispatchers.of = map[any]weak.Pointer[Dispatcher]{}
	}
	d := newDispatcher(rdb)
	dispatchers.of[key] = weak.Make(d)
	return d
}

func newDispatcher(rdb redis.UniversalClient) *Dispatcher {
	d := &Dispatcher{rdb: rdb, sender: Pin(rdb), sweep: 16}
	d.ring, _ = d.sender.(*pinnedRing)
	if d.ring == nil {
		d.cluster, _ = rdb.(masters)
	}
	if d.ring == nil && d.cluster == nil {
		d.single = newLane(d, nil)
	} else if c, ok := rdb.(*redis.ClusterClient); !ok || c != nil {
		rdb.AddHook(detour{})
	}
	return d
}

// Alone returns a Sender like s that lets no calls share round trips.
func Alone(s Sender) Sender {
	if d, ok := s.(*Dispatcher); ok {
		return d.sender
	}
	return s
}

// Separate makes each script call that s sends a command of its own, from now on, for all that use the redis client
// of s.
func Separate(s Sender) {
	d, ok := s.(*Dispatcher)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.separate.Store(true)
	if d.single != nil {
		d.single.joins.never()
	}
	for _, l := range d.lanes {
		l.joins.never()
	}
}

// Process sends one command at once and by itself.
func (d *Dispatcher) Process(ctx context.Context, cmd redis.Cmder) error {
	return d.sender.Process(d.bound(ctx), cmd)
}

// laneOf returns the lane of the first of some keys, or nil if it is not known.
func (d *Dispatcher) laneOf(ctx context.Context, keys ...any) (*lane, error) {
	if d.single != nil {
		return d.single, nil
	}
	var key string
	if len(keys) > 0 {
		key, _ = keys[0].(string)
	}
	if d.ring != nil {
		shard, err := d.ring.shard(key)
		if err != nil {
			return nil, err
		}
		return d.laneTo(shard), nil
	}
	if !d.settled.Load() {
		return nil, nil
	}
	master, err := d.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, nil // the cluster's client says itself what is wrong
	}
	return d.laneTo(master), nil
}

// laneTo returns the lane of a node.
func (d *Dispatcher) laneTo(node *redis.Client) *lane {
	d.mu.RLock()
	l := d.lanes[node]
	d.mu.RUnlock()
	if l != nil {
		return l
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l = d.lanes[node]; l != nil {
		return l
	}
	if len(d.lanes) >= d.sweep { // some may be of nodes that have left
		for n, l := range d.lanes {
			if l.empty() {
				delete(d.lanes, n)
			}
		}
		d.sweep = max(16, 2*len(d.lanes))
	}
	if d.lanes == nil {
		d.lanes = map[*redis.Client]*lane{}
	}
	l = newLane(d, node)
	d.lanes[node] = l
	return l
}

// A detour is the hook of a cluster's or a ring's client that takes a pipeline of ours to the node it is for. On
// their own these clients would run it in goroutines of theirs, where a hook that panics ends the process, and
// before go-redis 9.22 the pipeline of a cluster took a push message of Redis for the reply to a command. A command that
// [Pin] sends to a shard takes it too, because the ring would choose a shard once more. The hook is the last of those that
// the client has when the Dispatcher is made: the others see the pipeline or the command, as do the hooks of the node.
type detour struct{}

// toNode is the key of the node in the context of what takes the detour.
type toNode struct{}

func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

func (detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if node, ok := ctx.Value(toNode{}).(*redis.Client); ok {
			return node.Process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		node, ok := ctx.Value(toNode{}).(*redis.Client)
		if !ok {
			return next(ctx, cmds)
		}
		return exec(ctx, node, cmds)
	}
}

// exec sends cmds in one pipeline. If a hook panics, the error wraps a *[retry.Panic].
func exec(ctx context.Context, rdb interface{ Pipeline() redis.Pipeliner }, cmds []redis.Cmder) (err error) {
	defer retry.Recover(&err, aHook)
	p := rdb.Pipeline()
	_ = p.BatchProcess(ctx, cmds...) // only queues them
	_, err = p.Exec(ctx)
	return err
}

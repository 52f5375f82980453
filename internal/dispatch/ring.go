// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A Sender sends one command. Every command of this module goes through a Sender, so that what [Pin] does applies to all of them.
type Sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Pin returns a Sender that uses rdb. If rdb is a redis.Ring, or a type that embeds one, the Sender sends no key to another
// shard because its own is down. For every other client the Sender is rdb itself.
//
// A Ring drops a shard that has failed three heartbeats and sends its keys to the shards that are left. These know nothing of the
// keys: a limiter has no rate there, and gets a second burst if somebody sets one. A pinned command fails instead, with an error
// whose outcome is NotExecuted and without reaching the network. A Ring tells only the names and addresses that it was made with.
// So once SetAddrs has changed these, every key goes where the Ring sends it.
func Pin(rdb redis.UniversalClient) Sender {
	r, ok := rdb.(ring)
	if none, isRing := rdb.(*redis.Ring); !ok || isRing && none == nil || r.Options() == nil {
		return rdb
	}
	p := &pinnedRing{ring: r, addrs: maps.Clone(r.Options().Addrs), seen: map[*redis.Client]bool{}}
	if hash := r.Options().NewConsistentHash; hash != nil {
		p.hash = hash(slices.Collect(maps.Keys(p.addrs)))
	}
	p.moved.Store(p.hash == nil || len(p.addrs) == 0)
	p.look("")
	return p
}

// A ring is the part of a redis.Ring that concerns its shards.
type ring interface {
	Sender
	Options() *redis.RingOptions
	Len() int
	GetShardClients() []*redis.Client
	GetShardClientForKey(key string) (*redis.Client, error)
}

type pinnedRing struct {
	ring
	addrs map[string]string    // of the shards that the ring was made with, by their names
	hash  redis.ConsistentHash // over all names
	moved atomic.Bool          // SetAddrs has changed the shards

	mu   sync.Mutex
	seen map[*redis.Client]bool // shards that have been up
}

// Process sends cmd to the shard of its first key, by way of the ring's hooks if the ring has a [detour].
func (r *pinnedRing) Process(ctx context.Context, cmd redis.Cmder) error {
	shard, err := r.shard(firstKey(cmd))
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	return r.ring.Process(context.WithValue(ctx, toNode{}, shard), cmd)
}

// errShardDown reports that the shard of a key is not in the ring at the moment. Nothing was sent.
var errShardDown = errors.New("redis: the shard of the ring that holds the key is down")

// shard returns the shard of a key, or an error that wraps errShardDown.
func (r *pinnedRing) shard(key string) (*redis.Client, error) {
	shard, err := r.GetShardClientForKey(key)
	if errors.Is(err, redis.ErrClosed) || err == nil && (r.moved.Load() || r.owns(shard, key)) {
		return shard, err
	}
	r.look(key)
	if shard, err = r.GetShardClientForKey(key); err == nil && (r.moved.Load() || r.owns(shard, key)) {
		return shard, nil
	}
	return nil, fmt.Errorf("%w: %d of %d shards are up", errShardDown, r.Len(), len(r.addrs))
}

// owns reports whether a key belongs to shard while all shards are up.
func (r *pinnedRing) owns(shard *redis.Client, key string) bool {
	return shard.Options().Addr == r.addrs[r.hash.Get(hashTag(key))]
}

// look finds out whether SetAddrs has changed the shards since the ring was made: a shard has another address, or was closed, or
// all are up and do not go by their names.
func (r *pinnedRing) look(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live, known := r.GetShardClients(), slices.Collect(maps.Values(r.addrs))
	for _, shard := range live {
		r.seen[shard] = true
		if !slices.Contains(known, shard.Options().Addr) {
			r.moved.Store(true)
		}
	}
	for shard := range r.seen {
		if !slices.Contains(live, shard) && isClosed(shard) {
			r.moved.Store(true)
		}
	}
	whole := func() bool { return len(live) == len(r.addrs) && r.Len() == len(live) }
	if !r.moved.Load() && whole() {
		if shard, err := r.GetShardClientForKey(key); err == nil && !r.owns(shard, key) && whole() {
			r.moved.Store(true)
		}
	}
}

// isClosed reports whether a client was closed. A context that is done keeps the command from being sent.
func isClosed(s Sender) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Is(Process(ctx, s, redis.NewStatusCmd(ctx, "ping")), redis.ErrClosed)
}

// addrOf returns the address of the shard that a key belongs to, whether or not it is up, or "" if that is not known.
func (r *pinnedRing) addrOf(key string) string {
	if !r.moved.Load() {
		return r.addrs[r.hash.Get(hashTag(key))]
	}
	shard, err := r.GetShardClientForKey(key)
	if err != nil {
		return ""
	}
	return shard.Options().Addr
}

// firstKey returns the first key of an EVAL, of an EVALSHA, or of a command whose first argument is a key.
func firstKey(cmd redis.Cmder) string {
	args, i := cmd.Args(), 1
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		i = 3
	}
	if i >= len(args) {
		return ""
	}
	key, _ := args[i].(string)
	return key
}

// hashTag returns the part of the key that a ring hashes.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

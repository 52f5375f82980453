// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// A Sender sends one command. Every command of this module goes through a Sender, so that what [Pin] does
// applies to all of them.
type Sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Pin returns a Sender that uses rdb. If rdb is a redis.Ring, or a type that embeds one, the Sender never sends
// a key to another shard than its own because that shard is down. For every other client the Sender is rdb
// itself.
//
// A Ring drops a shard that has failed three heartbeats and sends its keys to the shards that are left. These
// know nothing of the keys: a limiter has no rate there, and gets a second burst if somebody sets one. A pinned
// command fails instead, with an error whose outcome is NotExecuted and without reaching the network. Pin
// follows changes made by SetAddrs: afterwards a key belongs to the shard that the Ring sends it to while all
// shards are up.
func Pin(rdb redis.UniversalClient) Sender {
	r, ok := rdb.(ring)
	if !ok {
		return rdb
	}
	if none, ok := rdb.(*redis.Ring); ok && none == nil {
		return rdb
	}
	if r.Options() == nil { // not one of go-redis
		return rdb
	}
	return &pinnedRing{rdb, pinsOf(r)}
}

// A ring is the part of a redis.Ring that concerns its shards.
type ring interface {
	Options() *redis.RingOptions
	Len() int
	GetShardClients() []*redis.Client
	GetShardClientForKey(key string) (*redis.Client, error)
	OnNewNode(fn func(rdb *redis.Client))
}

type pinnedRing struct {
	rdb  redis.UniversalClient
	pins *pins
}

// Process sends cmd to the shard of its first key. The Ring chooses a shard once more, after its hooks; the
// guard of a shard rejects a command that is pinned to another.
func (r *pinnedRing) Process(ctx context.Context, cmd redis.Cmder) error {
	shard, err := r.pins.shard(firstKey(cmd))
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	return r.rdb.Process(ctx, pinned{cmd, shard})
}

// A Shard identifies a shard of a ring without keeping it alive. Shards are comparable.
type Shard = weak.Pointer[redis.Client]

// ShardOf returns the shard of a ring that a key belongs to, whether or not it is up. It reports false if s
// does not send to a ring, or if the shard is not known.
func ShardOf(s Sender, key string) (Shard, bool) {
	if d, ok := s.(*Dispatcher); ok {
		s = d.sender
	}
	r, ok := s.(*pinnedRing)
	if !ok {
		return Shard{}, false
	}
	r.pins.mu.RLock()
	defer r.pins.mu.RUnlock()
	owner := r.pins.owner(hashTag(key))
	return weak.Make(owner), owner != nil
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

// A pinned command may run on one shard only.
type pinned struct {
	redis.Cmder
	shard *redis.Client
}

// Clone implements redis.Cmder.
func (p pinned) Clone() redis.Cmder { return pinned{p.Cmder.Clone(), p.shard} }

// A guard is the hook of a shard that rejects commands pinned to other shards.
type guard struct{ shard *redis.Client }

func (guard) DialHook(next redis.DialHook) redis.DialHook { return next }
func (guard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g guard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p, ok := cmd.(pinned); ok && p.shard != g.shard {
			err := fmt.Errorf("%w: it went down while the command was on its way", errShardDown)
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// errShardDown reports that the shard of a key is not in the ring at the moment. Nothing was sent.
var errShardDown = errors.New("redis: the shard of the ring that holds the key is down")

// A pins knows which shard each key of a ring belongs to. A ring hashes by the names of its shards, but it
// tells only the names that it was made with. So there are two states:
//
//   - The names that the ring was made with are the names of its shards. Then owners is not nil and holds the
//     shard of each name, as it was found while all shards were up. A key belongs to the shard whose name the
//     ring's own hash over all names gives.
//   - SetAddrs has changed the names, and owners is nil. Then a key belongs to the shard that the ring sends it
//     to while all shards are up, and seen remembers that shard. As long as a shard is down, keys that were not
//     seen since the last change belong to no shard.
type pins struct {
	ring   ring
	hash   redis.ConsistentHash // over all names
	probes map[string][]string  // some keys of each name

	mu      sync.RWMutex
	members map[*redis.Client]bool // shards that have been in the ring, have a guard, and were not closed
	live    int                    // how many of them were up at the last look
	owners  map[string]*redis.Client
	failed  bool // the members do not go by these names
	seen    map[string]*redis.Client
}

const (
	probesOfAName = 8
	maxSeen       = 10_000
)

// allPins has one entry for each ring of the process. The key is the ring's options, which no other ring
// shares. The entries are shared because a hook cannot be removed from a ring or a shard.
var allPins struct {
	sync.Mutex
	byRing map[weak.Pointer[redis.RingOptions]]weak.Pointer[pins]
}

func pinsOf(r ring) *pins {
	allPins.Lock()
	defer allPins.Unlock()
	key := weak.Make(r.Options())
	if p := allPins.byRing[key].Value(); p != nil {
		return p
	}
	for k := range allPins.byRing {
		if k.Value() == nil {
			delete(allPins.byRing, k)
		}
	}
	if allPins.byRing == nil {
		allPins.byRing = map[weak.Pointer[redis.RingOptions]]weak.Pointer[pins]{}
	}
	p := newPins(r)
	allPins.byRing[key] = weak.Make(p)
	return p
}

func newPins(r ring) *pins {
	p := &pins{ring: r, members: map[*redis.Client]bool{}}
	r.OnNewNode(p.joined)
	p.mu.Lock()
	defer p.mu.Unlock()
	o := r.Options()
	if len(o.Addrs) > 0 && o.NewConsistentHash != nil {
		names := make([]string, 0, len(o.Addrs))
		for name := range o.Addrs {
			names = append(names, name)
		}
		p.hash, p.probes = o.NewConsistentHash(names), map[string][]string{}
		for i, missing := 0, probesOfAName*len(names); missing > 0 && i < 64*probesOfAName*len(names); i++ {
			key := strconv.Itoa(i)
			if name := p.hash.Get(key); len(p.probes[name]) < probesOfAName {
				p.probes[name] = append(p.probes[name], key)
				missing--
			}
		}
	}
	p.refresh()
	p.learn()
	if p.owners == nil && p.live < len(o.Addrs) {
		p.learnByAddress(o.Addrs)
	}
	return p
}

// joined is called with a shard that SetAddrs is about to add.
func (p *pins) joined(shard *redis.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(shard)
	p.owners, p.seen, p.failed = nil, nil, false
}

func (p *pins) add(shard *redis.Client) {
	if !p.members[shard] {
		shard.AddHook(guard{shard})
		p.members[shard] = true
	}
}

// refresh adds the shards that are up, and drops those that SetAddrs has removed, which are closed.
func (p *pins) refresh() {
	live := p.ring.GetShardClients()
	up := make(map[*redis.Client]bool, len(live))
	for _, shard := range live {
		p.add(shard)
		up[shard] = true
	}
	p.live = len(live)
	for shard := range p.members {
		if !up[shard] && isClosed(shard) {
			delete(p.members, shard)
			p.owners, p.seen, p.failed = nil, nil, false
		}
	}
}

// isClosed reports whether shard was closed. A context that is done keeps the command from being sent.
func isClosed(shard *redis.Client) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Is(shard.Ping(ctx).Err(), redis.ErrClosed)
}

// whole reports whether all shards are up.
func (p *pins) whole() bool { return p.live == len(p.members) && p.ring.Len() == p.live }

// learn finds the shard of each name, provided that all shards are up and the names are still theirs: all keys
// of a name must go to one shard, and the keys of another name to another shard.
func (p *pins) learn() {
	if p.failed || p.hash == nil || p.live != len(p.ring.Options().Addrs) || !p.whole() {
		return
	}
	owners, names := make(map[string]*redis.Client, len(p.probes)), make(map[*redis.Client]string, len(p.probes))
	for name, keys := range p.probes {
		for _, key := range keys {
			shard, err := p.ring.GetShardClientForKey(key)
			if other, ok := names[shard]; err != nil || ok && other != name || owners[name] != nil && owners[name] != shard {
				p.failed = p.whole()
				return
			}
			owners[name], names[shard] = shard, name
		}
	}
	if p.whole() {
		p.owners, p.seen = owners, nil
	}
}

// learnByAddress is learn for a ring with shards that are down from the start. The shards that are up are found
// by their addresses, unless SetAddrs has changed them.
func (p *pins) learnByAddress(addrs map[string]string) {
	names := map[string]string{}
	for name, addr := range addrs {
		names[addr] = name
	}
	owners := map[string]*redis.Client{}
	for shard := range p.members {
		name, ok := names[shard.Options().Addr]
		if !ok || owners[name] != nil {
			return
		}
		owners[name] = shard
	}
	if len(names) == len(addrs) {
		p.owners = owners
	}
}

// shard returns the shard of a key, or an error that says that it is down.
func (p *pins) shard(key string) (*redis.Client, error) {
	tag := hashTag(key)
	live := p.ring.Len()
	current, err := p.ring.GetShardClientForKey(key)
	if errors.Is(err, redis.ErrClosed) {
		return nil, err
	}
	if err == nil {
		p.mu.RLock()
		known := live == p.live && p.owner(tag) == current
		p.mu.RUnlock()
		if known {
			return current, nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	if current, err = p.ring.GetShardClientForKey(key); err != nil {
		current = nil // all are down
	}
	if current == nil || p.owner(tag) != current {
		p.learn()
		if p.failed && p.owners != nil { // all are up, and have other names
			p.owners = nil
		}
		if current != nil && p.members[current] && p.whole() {
			p.see(tag, current)
		}
	}
	if current == nil || p.owner(tag) != current {
		return nil, fmt.Errorf("%w: %d of %d shards are up", errShardDown, p.live, max(len(p.members), p.live, p.named()))
	}
	return current, nil
}

// see records that the ring, all of whose shards are up, sends the keys with that tag to shard.
func (p *pins) see(tag string, shard *redis.Client) {
	if p.owners == nil {
		if p.seen == nil || len(p.seen) >= maxSeen {
			p.seen = map[string]*redis.Client{}
		}
		p.seen[tag] = shard
		return
	}
	// A name with so few keys that none was found for it.
	if name := p.hash.Get(tag); len(p.probes[name]) == 0 && p.live == p.named() {
		p.owners[name] = shard
	}
}

// owner returns the shard that the keys with that tag belong to, or nil if it is not known.
func (p *pins) owner(tag string) *redis.Client {
	if p.owners == nil {
		return p.seen[tag]
	}
	return p.owners[p.hash.Get(tag)]
}

// named returns how many shards have known names.
func (p *pins) named() int {
	if p.owners == nil {
		return 0
	}
	return len(p.ring.Options().Addrs)
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

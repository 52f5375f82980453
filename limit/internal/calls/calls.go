// SPDX-License-Identifier: Apache-2.0

// Package calls has the way of a call of a shared limiter of package limit, in this order:
//
//	calls.go   a request comes in, for one key
//	known.go   it is rejected without a call, if that is known
//	queue.go   it waits, first come, first served
//	line.go    requests of one key that come while a call is in flight share the next
//	batch.go   that call is made, and its callers get their outcomes
//	outage.go  while Redis is down, a policy decides
//	send.go    the script is sent until there is a reply, under an id of ids.go
//	reply.go   the reply of the script becomes the outcomes of the requests
//
// The script decides. What it replies is the state that it found, and what of it was granted; from the same state the same arithmetic in Go
// says what each of the requests is told: what is left, and how long it has to wait. A Local
// decides by that arithmetic alone. model.go has what an algorithm tells of itself, and what a request and its outcome are.
package calls

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/redis/go-redis/v9"
)

// A Limiter is what the limiters of all keys of one name share.
type Limiter struct {
	rdb           dispatch.Sender
	Name          string
	signature     string                  // of the algorithm, which is part of the Redis keys
	Current       atomic.Pointer[Setting] // by which requests are decided, as far as is known
	fleet         Fleet                   // nil if the parameters never change
	Clock         func() time.Time        // nil for that of Redis
	WithoutReplay bool
	WithoutKnown  bool
	Hooks         []ratelimiter.Hook
	outages       outages

	IDs    ids
	Lines  lines
	Known  known
	Queues queues
}

// A Fleet follows the parameters that the processes of a name have set.
type Fleet interface {
	// Follow makes the setting that is in force the current one, if it is the first call, and otherwise sees to it that this is done
	// from time to time. It returns an error if none is known.
	Follow(ctx context.Context, s *Shared) error
}

// Init makes c the limiter of a name, whose Redis keys have the signature in them. If fleet is not nil, the setting changes.
func (c *Limiter) Init(rdb dispatch.Sender, name, signature string, n *Setting, fleet Fleet) {
	c.rdb, c.Name, c.signature, c.fleet = rdb, name, signature, fleet
	c.Current.Store(n)
}

// SetOutagePolicy sets the policy that decides requests in an outage of Redis.
func (c *Limiter) SetOutagePolicy(p outage.Policy) { c.outages.policy = p }

// Now returns the setting by which requests are decided, as far as is known.
func (c *Limiter) Now() *Setting { return c.Current.Load() }

// ofFleet returns n if the parameters change.
func (c *Limiter) ofFleet(n *Setting) *Setting {
	if c.fleet == nil {
		return nil
	}
	return n
}

// A Shared is the limiter of one key.
type Shared struct {
	config *Limiter
	key    string
	keys   []string
	slot   string   // where what is known of the key is kept, and its queue
	own    *Setting // of a handle with a setting of its own; nil for that of config
}

// Of returns the limiter of a key.
func (c *Limiter) Of(key string) Shared {
	keys := RedisKeys(c.Name, key, c.signature, c.Now().Script.Keys)
	return Shared{config: c, key: key, keys: keys, slot: keys[0]}
}

// With is Of for requests that are decided by the setting own. They have one Redis key with the signature each in it, whatever own
// is, but what is known of it is kept apart for own, whose signature is the last.
func (c *Limiter) With(key string, own *Setting, each, signature string) Shared {
	keys := RedisKeys(c.Name, key, each, 1)
	return Shared{config: c, key: key, keys: keys, slot: keys[0] + " " + signature, own: own}
}

// Limiter returns what s shares with other keys.
func (s *Shared) Limiter() *Limiter { return s.config }

// Keys returns the Redis keys of s.
func (s *Shared) Keys() []string { return slices.Clone(s.redisKeys(s.Now())) }

// Now returns the setting by which the requests of s are decided, as far as is known.
func (s *Shared) Now() *Setting {
	if s.own != nil {
		return s.own
	}
	return s.config.Now()
}

// Request makes a request and tells the Hooks of it.
func (s *Shared) Request(ctx context.Context, op ratelimiter.Operation, q Demand) (ratelimiter.Result, error) {
	if len(s.config.Hooks) == 0 { // asked would do the same, but a rejection that is known takes a fifth less time so
		return s.Ask(ctx, q)
	}
	return s.config.asked(ctx, op, q.N, func() (ratelimiter.Result, error) { return s.Ask(ctx, q) })
}

// Ask is Request without the Hooks.
func (s *Shared) Ask(ctx context.Context, q Demand) (ratelimiter.Result, error) {
	if err := ContextError(ctx); err != nil {
		return ratelimiter.Result{}, err
	}
	if err := q.Check(&s.Now().Model); err != nil {
		return ratelimiter.Result{}, err
	}
	if r, _, ok := s.config.Rejected(s.slot, q); ok && !s.down() {
		return r, nil
	}
	return s.batch(ctx, q)
}

// inForce returns the setting by which q is decided.
func (s *Shared) inForce(ctx context.Context, q Demand) (*Setting, error) {
	if s.config.fleet == nil {
		return s.Now(), nil
	}
	if err := s.config.fleet.Follow(ctx, s); err != nil {
		return nil, err
	}
	n := s.Now()
	if q.N > 0 {
		return n, q.Check(&n.Model)
	}
	return n, nil
}

// Settle makes a settlement, unless it gives back what was granted by other parameters: its mark is in the parts and the windows of these.
func (s *Shared) Settle(ctx context.Context, x *Settlement) error {
	if x.By < 0 && x.Mark.By != nil && x.Mark.By != s.config.Now() {
		return nil
	}
	_, err := s.batch(ctx, Demand{Spend: true, settlement: x})
	return err
}

// Reset deletes the keys of the limiter.
func (s *Shared) Reset(ctx context.Context) error {
	if err := ContextError(ctx); err != nil {
		return err
	}
	n, err := s.inForce(ctx, Demand{})
	if err != nil {
		return err
	}
	args := []any{"unlink"}
	for _, k := range s.redisKeys(n) {
		args = append(args, k)
	}
	err = s.untilDone(ctx, "to reset "+s.Label(), func() error {
		err := dispatch.Send(ctx, s.config.rdb, dispatch.Once{Cmder: redis.NewIntCmd(ctx, args...)})
		if err != nil && ctx.Err() == nil {
			dispatch.ReloadAfter(ctx, s.config.rdb, err) // the master may be another one
		}
		return err
	})
	if err == nil {
		s.config.Known.forget(s.slot)
		s.config.Queues.again(s.slot)
	}
	return err
}

// Text has a script run that may run twice, and returns the text that it replies. Errors say what it is for.
func (s *Shared) Text(ctx context.Context, what string, script *dispatch.Script, keys []string, args ...any) (text string, err error) {
	cmd, err := script.Command(keys, args...)
	if err != nil {
		return "", err
	}
	var reply any
	err = s.untilDone(ctx, what, func() (err error) {
		sent := time.Now()
		reply, err = script.Once(ctx, s.config.rdb, cmd)
		s.config.called(script.Name, 1, sent, err)
		return err
	})
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", s.unexpected(reply)
	}
	return text, nil
}

// Label returns what errors call the limiter: its name and, since the key may be long or a secret, the first digits
// of the key's SHA-256.
func (s *Shared) Label() string {
	if s.key == "" {
		return s.String()
	}
	sum := sha256.Sum256([]byte(s.key))
	return fmt.Sprintf("%q for a key of hash %x", s.config.Name, sum[:4])
}

// String returns the name of the limiter and its key.
func (s *Shared) String() string {
	if s.key == "" {
		return fmt.Sprintf("%q", s.config.Name)
	}
	return fmt.Sprintf("%q for %q", s.config.Name, s.key)
}

// redisKeys returns the Redis keys of the state by a setting.
func (s *Shared) redisKeys(n *Setting) []string {
	if n.Generation == "" {
		return s.keys
	}
	return RedisKeys(s.config.Name, s.key, s.config.signature+":"+n.Generation, len(s.keys))
}

// Layout is part of the Redis keys and is raised when all of what they hold is written in another way, so that
// processes of the old and the new version do not read each other's.
const Layout = "limit2"

// RedisKeys returns the Redis keys of the limiter of one key. Their hash tag is that key, or the name if it is
// empty, so that they share a slot. The parameters are part of the Redis keys, since the state of one limiter
// means nothing to a limiter with others, unless WithFleetParameters. Of the second, which few algorithms have, is what was granted to
// which process; the others have that in the first.
func RedisKeys(name, key, signature string, count int) []string {
	state := Layout + ":{" + name + "}:" + signature
	if key != "" {
		state = Layout + ":" + name + ":{" + braces.Replace(key) + "}:" + signature
	}
	if count == 1 {
		return []string{state}
	}
	return []string{state, state + ":grants"}
}

// braces escapes what would end a hash tag early. With an empty tag the keys would be in different slots.
var braces = strings.NewReplacer("%", "%25", "}", "%7D")

// SPDX-License-Identifier: Apache-2.0

// Package redisson reads and writes a limiter in Redis: its keys, its members, and the arguments and replies of
// its scripts. It does not wait, and starts no goroutine.
//
// Only this package knows the order of KEYS and ARGV, milliseconds, and the meaning of the numbers in a reply.
// The header of each script documents the same.
package redisson

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// A Config says how the limiters of one client are asked and written.
type Config struct {
	Scripts     *Scripts
	ClientID    string               // from which the tag of the client follows
	Divided     bool                 // the limiters are spread over the parts of a cluster or a ring
	ClientClock bool                 // the time is that of this process and not that of Redis
	SharedClock bool                 // all clients use the same clock: that of Redis, or that of a test
	LongLength  bool                 // members are written in the format Lc0I
	KeyTTL      time.Duration        // of this client's permits, if the limiter has no TTL
	Separate    bool                 // each call is a command of its own; see [dispatch.Separate]
	Called      func(permit.Call)    // called after each attempt at a script call; may be nil
	Mixed       func(limiter string) // called once for a limiter with members in two layouts that no Redisson both reads; may be nil
}

// A Conn connects the limiters of one client to Redis.
type Conn struct {
	Config
	sender dispatch.Sender
	tag    int
	hints  *hintTable

	mu    sync.Mutex
	mixed map[string]bool // by the key of a limiter that Mixed was called for
}

// maxMixed bounds the limiters that Mixed is called for, since a client may use millions of them.
const maxMixed = 100

// otherLayout records that a call met a member that the readers of our layout cannot read, or the other way round.
func (l *Limiter) otherLayout() {
	if l.Mixed == nil {
		return
	}
	l.mu.Lock()
	tell := !l.mixed[l.Keys.Hash] && len(l.mixed) < maxMixed
	if tell {
		if l.mixed == nil {
			l.mixed = map[string]bool{}
		}
		l.mixed[l.Keys.Hash] = true
	}
	l.mu.Unlock()
	if tell {
		l.Mixed(l.Name)
	}
}

// NewConn returns a Conn that uses rdb.
func NewConn(rdb redis.UniversalClient, cfg Config) *Conn {
	c := &Conn{Config: cfg, sender: dispatch.Of(rdb), tag: newTag(cfg.ClientID, cfg.LongLength), hints: &hintTable{seed: maphash.MakeSeed()}}
	if cfg.Separate {
		dispatch.Separate(c.sender)
	}
	return c
}

// Shard returns the shard of a ring that holds a key. It reports false if the client is not a ring, or if the
// shard is not known.
func (c *Conn) Server(key string) string { return dispatch.ServerOf(c.sender, key) }

// A Limiter is one limiter in Redis. Its methods make one attempt, and those that need more calls return a [permit.Op].
type Limiter struct {
	*Conn
	Name string // for errors: as the caller knows it
	Keys Keys

	hints *hints
}

// Limiter returns the limiter with the given key; errors call it name. In PerClient limiters it uses the permits of
// clientID, which is always the same for one Conn.
func (c *Conn) Limiter(key, name, clientID string) Limiter {
	return Limiter{Conn: c, Name: name, Keys: NewKeys(key, clientID), hints: c.hints.of(key)}
}

// Type returns the type that the limiter had when it was last seen, or Overall. A wrong type costs a round trip.
func (l *Limiter) Type() (typ permit.Type) {
	l.hints.locked(func() { typ = l.hints.typ })
	return typ
}

// one returns the operation that f carries out in one call of s.
func one[T any](s *Script, f func(ctx context.Context) (T, error)) permit.Op[T] {
	return permit.Op[T]{Name: s.op(), Step: func(ctx context.Context) (result T, more bool, err error) {
		result, err = f(ctx)
		return result, false, err
	}}
}

// readOnly is one for a call that only reads.
func readOnly[T any](s *Script, f func(ctx context.Context) (T, error)) permit.Op[T] {
	op := one(s, f)
	op.Reads = true
	return op
}

// typed returns the operation whose calls f makes with the type of the limiter, and again with the other one if it has that.
func typed[T any](l *Limiter, s *Script, f func(ctx context.Context, typ permit.Type) (result T, more bool, err error)) permit.Op[T] {
	typ, changes := l.Type(), 0
	return permit.Op[T]{Name: s.op(), Step: func(ctx context.Context) (T, bool, error) {
		result, more, err := f(ctx, typ)
		again, err := l.hasOtherType(s.op(), err, &typ, &changes)
		return result, more || again, err
	}}
}

// hasOtherType reports whether a call with typ has to be made again, because it ended with err and that says that the limiter
// has the other type, which typ is then. It counts the changes, of which there may be a few.
func (l *Limiter) hasOtherType(op string, err error, typ *permit.Type, changes *int) (again bool, _ error) {
	other, wrong := err.(*permit.WrongTypeError)
	switch {
	case !wrong:
		return false, err
	case *changes == permit.MaxTypeChanges:
		return false, permit.TypeKeepsChanging(op, l.Name)
	}
	*changes++
	*typ = other.Type
	l.hints.learnType(*typ)
	return true, nil
}

// now returns the instant that is passed to scripts; an empty string stands for the time of Redis.
func (c *Conn) now() any {
	if c.ClientClock {
		return time.Now().UnixMilli()
	}
	return ""
}

// wire returns the type in the form in which the hash holds it.
func wire(t permit.Type) string { return strconv.Itoa(int(t)) }

// wires are what wire returns, as arguments.
var wires = [2]any{wire(permit.Overall), wire(permit.PerClient)}

// ms returns n ms as a Duration, or the longest Duration if that is shorter: Java can set an interval of 1e13
// ms.
func ms(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}

// once makes one attempt at a command of s that the given number of requests share. The command may share a round trip
// with others unless alone is set.
func (l *Limiter) once(ctx context.Context, s *Script, cmd []any, requests int64, alone bool) (any, error) {
	to := l.sender
	if alone {
		to = dispatch.Alone(to)
	}
	var begin time.Time
	if l.Called != nil {
		begin = time.Now()
	}
	raw, err := s.Once(ctx, to, cmd)
	if err != nil {
		raw, err = nil, dispatch.Failure(err)
	}
	if l.Called == nil {
		return raw, err
	}
	call := permit.Call{Script: s.Name, Limiter: l.Name, Requests: requests, Duration: time.Since(begin), Err: err}
	if err == nil {
		switch s {
		case l.Scripts.Heal:
			call.Healed = healedOf(raw)
		case l.Scripts.GiveBack:
			call.Refunded = refunded(raw, cmd)
		}
	}
	l.Called(call)
	return raw, err
}

// send makes one attempt at a script, and returns its raw reply. It uses a script even if one plain command would suffice: a
// cluster's client may send a read-only command to a replica, which lags behind, but sends a script only to the master.
func (l *Limiter) send(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	cmd, err := s.Command(keys, args...)
	if err != nil {
		return nil, err
	}
	raw, err := l.once(ctx, s, cmd, 1, false)
	if failure, ok := err.(*retry.Error); ok {
		failure.Final = failure.Final || failure.Outcome == retry.Unknown && s.resend != ResendAlways
	}
	return raw, err
}

// run is send for a reply that consists of numbers.
func (l *Limiter) run(ctx context.Context, s *Script, keys []string, args ...any) ([]int64, error) {
	raw, err := l.send(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	return l.numbers(s, raw)
}

// isOne returns the operation of one call of s, which replies with 1 for true.
func (l *Limiter) isOne(s *Script, keys []string, args ...any) permit.Op[bool] {
	return one(s, func(ctx context.Context) (bool, error) {
		n, err := l.run(ctx, s, keys, args...)
		return err == nil && n[0] == 1, err
	})
}

// numbers parses a reply that is a number or a list of numbers.
func (l *Limiter) numbers(s *Script, raw any) ([]int64, error) {
	if n, ok := raw.(int64); ok {
		return []int64{n}, nil
	}
	f := readerOf(raw)
	r := f.numbers()
	if f.bad || len(r) == 0 {
		return nil, l.badReply(s, raw)
	}
	return r, nil
}

func (l *Limiter) notInitialized() error {
	return fmt.Errorf("%w: %q has no rate; TrySetRate sets one, and so do the acquiring calls of a handle that carries one, see WithRate", permit.ErrNotInitialized, l.Name)
}

// statusError returns the error that the first number of a reply stands for, or nil for statusOK.
func (l *Limiter) statusError(r []int64) error {
	switch r[0] {
	case statusOK:
		return nil
	case statusNotInitialized:
		return l.notInitialized()
	case statusOtherType:
		if len(r) > 1 && (r[1] == int64(permit.Overall) || r[1] == int64(permit.PerClient)) {
			return &permit.WrongTypeError{Type: permit.Type(r[1])}
		}
		return fmt.Errorf("%w: the type of %q is neither OVERALL nor PER_CLIENT", permit.ErrMalformed, l.Name)
	case statusMalformed:
		return fmt.Errorf("%w: the rate or interval of %q is not a whole number from 1 to 2^53, or its keepAliveTime is a fraction or above 2^53; Rate tells which, and SetRate replaces them",
			permit.ErrMalformed, l.Name)
	}
	return fmt.Errorf("ratelimiter: %q: unexpected status in reply %v", l.Name, r)
}

func (l *Limiter) badReply(s *Script, r any) error {
	return fmt.Errorf("ratelimiter: %s of %q: unexpected reply %v", s.op(), l.Name, r)
}

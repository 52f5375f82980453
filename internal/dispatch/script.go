// SPDX-License-Identifier: Apache-2.0

// Package dispatch sends Lua scripts to Redis and tells the sender whether each may have been executed. What a
// script does, and whether it may run twice, is the concern of its users.
//
// Its functions are safe for concurrent use.
package dispatch

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/stack"
	"github.com/redis/go-redis/v9"
)

// A Script is one embedded file together with the numbers of keys and arguments that its wrapper sends.
type Script struct {
	Name       string
	Src        string
	Sha        string
	Keys, Args int
	Optional   int  // how many of the last arguments may be left out
	Integers   bool // every reply is a list of integers
	Alone      bool // its calls share no round trip, because they may keep Redis busy for long or are rare
	Micros     int  // what a call takes Redis, in µs; 0 for the usual

	// Clock returns when Redis ran a call, by its own clock, from the reply. It reports false if the reply does not
	// say. It may be nil.
	Clock func(reply []any) (time.Time, bool)

	// Missing reports whether a call has found nothing of what its keys name, and so has done nothing. It may be nil.
	Missing func(reply []any) bool

	sha    any // Sha, as an argument
	joints *joints
}

// New returns a script that takes the given numbers of keys and arguments.
func New(name, src string, keys, args int) *Script {
	sum := sha1.Sum([]byte(src))
	s := &Script{Name: name, Src: src, Sha: hex.EncodeToString(sum[:]), Keys: keys, Args: args}
	s.sha = s.Sha
	s.joints = newJoints(s)
	return s
}

// OptionalArgs allows the last n arguments to be left out, because each costs a tenth of a microsecond in Redis.
func (s *Script) OptionalArgs(n int) { s.Optional = n }

// Command returns the EVALSHA command of the script. It returns an error if the numbers of keys and arguments
// are not those of the script.
func (s *Script) Command(keys []string, args ...any) ([]any, error) {
	if len(keys) != s.Keys || len(args) != s.Args && len(args) != s.Args-s.Optional {
		return nil, fmt.Errorf("ratelimiter: %s takes %d keys and %d arguments, got %d and %d",
			s.Name, s.Keys, s.Args, len(keys), len(args))
	}
	cmd := s.Begin(len(args))
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	return append(cmd, args...), nil
}

// Begin returns the beginning of an EVALSHA command; append the keys and then args arguments to it. It is for calls
// whose allocations count; see [Script.Complete].
func (s *Script) Begin(args int) []any {
	return s.BeginIn(make([]any, 0, 3+s.Keys+args))
}

// BeginIn is like Begin, in memory of the caller.
func (s *Script) BeginIn(cmd []any) []any {
	return append(cmd, "evalsha", s.sha, s.Keys)
}

// Complete checks a command that was made with [Script.Begin], as [Script.Command] does.
func (s *Script) Complete(cmd []any) ([]any, error) {
	if args := len(cmd) - 3 - s.Keys; args != s.Args && args != s.Args-s.Optional {
		return nil, fmt.Errorf("ratelimiter: %s takes %d keys and %d arguments, got %d of both",
			s.Name, s.Keys, s.Args, len(cmd)-3)
	}
	return cmd, nil
}

// instant returns when Redis ran cmd, if the reply says.
func (s *Script) instant(cmd redis.Cmder) (time.Time, bool) {
	if c, ok := cmd.(OnceCmd); ok && s.Clock != nil {
		if reply, ok := c.Val().([]any); ok {
			return s.Clock(reply)
		}
	}
	return time.Time{}, false
}

// Once makes one attempt at a command that [Script.Command] returned. When ctx is done it returns ctx.Err(). In
// that case, and after an error whose outcome is Unknown, the script may have been executed. A [Dispatcher] may
// send the command together with others.
//
// The reply to a script of Integers may be an [Integers].
//
// If the attempt fails without a reply, the client of a cluster looks up the masters again; see [Reload].
func (s *Script) Once(ctx context.Context, rdb Sender, evalsha []any) (reply any, err error) {
	var by trip
	to, landed, missing := rdb, false, false
	d, _ := rdb.(*Dispatcher)
	if d != nil {
		to = d.sender
		if !s.Alone {
			by.lane, err = d.laneOf(ctx, evalsha[3:3+s.Keys]...)
		}
		if by.lane != nil {
			var c *call
			if by.departure, c = by.lane.enter(ctx, s, evalsha); c != nil {
				reply, landed, err = by.lane.await(ctx, c)
				missing = !landed && reply != nil
			}
		}
	}
	switch {
	case landed || err != nil:
	case ctx.Done() == nil:
		reply, err = s.send(d.bound(ctx), to, evalsha, by)
	default:
		c, inner := d.blankCall(), ctx
		if e, ok := ctx.(endable); ok {
			inner = d.bound(e.Endless())
		}
		c.script, c.ctx, c.evalsha, c.to, c.by = s, inner, evalsha, to, by
		go c.carry()
		select {
		case <-c.done:
			reply, err = c.reply, c.err
			d.recycle(c)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		if !errors.Is(err, context.Canceled) { // who leaves says nothing about the masters
			ReloadAfter(ctx, rdb, err)
		}
		return reply, Naming(err, s.Name, evalsha[3:3+s.Keys])
	}
	if d != nil && by.lane == nil {
		d.settled.Store(true)
	}
	if missing && !s.missing(reply) {
		by.lane.joins.rejected() // another server has it
	}
	return reply, nil
}

func (s *Script) missing(reply any) bool {
	list, ok := List(reply).([]any)
	return ok && s.Missing != nil && s.Missing(list)
}

// An endable is a context that ends when a call is given up. Then the caller leaves, but the redis client goes on.
type endable interface{ Endless() context.Context }

// carried is send for a caller who waits for c, and may leave.
func (c *call) carried() {
	stack.Grow()
	c.err = errGone // unless a hook lets the call return
	defer c.wake()
	c.reply, c.err = c.script.send(c.ctx, c.to, c.evalsha, c.by)
}

// send makes one attempt at a command by itself, and waits for the reply even if ctx is done. If by is not zero, the
// command leaves as that departure of a lane, which lands with it.
func (s *Script) send(ctx context.Context, to Sender, evalsha []any, by trip) (reply any, err error) {
	if by.n != 0 {
		err = errGone // unless a hook lets the call return
		defer func() { by.lane.landed(by.departure, err) }()
	}
	cmd := s.newCmd(ctx, evalsha)
	if err = Process(ctx, to, cmd); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// EVAL carries the text and leaves it in the script cache. A SCRIPT LOAD first would not do, because
		// another SCRIPT FLUSH can come between it and the EVALSHA.
		cmd = s.newCmd(ctx, s.eval(evalsha))
		err = Process(ctx, to, cmd)
	}
	if once, ok := cmd.(OnceCmd); ok {
		return once.Val(), err
	}
	return cmd, err
}

// newCmd returns a command that runs s: an Integers or a OnceCmd.
func (s *Script) newCmd(ctx context.Context, args []any) redis.Cmder {
	if s.Integers {
		return Integers{redis.NewIntSliceCmd(ctx, args...)}
	}
	return OnceCmd{redis.NewCmd(ctx, args...)}
}

func (s *Script) eval(evalsha []any) []any {
	return append([]any{"eval", s.Src}, evalsha[2:]...)
}

// A OnceCmd is a command that go-redis sends only once. The retries of go-redis, and the redirect loop of its cluster
// client, send a command again with the same arguments, but only the user of a script knows whether it may run twice.
type OnceCmd struct{ *redis.Cmd }

// NoRetry tells go-redis not to send the command again.
func (OnceCmd) NoRetry() bool { return true }

// An Integers is a OnceCmd whose reply go-redis reads as a list of integers, in one allocation instead of one for each. It
// is also that reply, as [Script.Once] returns it. It leaves by itself: if a pipeline breaks, a list that has been read
// half cannot be told from a whole one.
type Integers struct{ *redis.IntSliceCmd }

// NoRetry tells go-redis not to send the command again.
func (Integers) NoRetry() bool { return true }

// List returns a reply as go-redis reads it without Integers.
func List(reply any) any {
	x, ok := reply.(Integers)
	if !ok {
		return reply
	}
	list := make([]any, len(x.Val()))
	for i, n := range x.Val() {
		list[i] = n
	}
	return list
}

// A Once is a OnceCmd of any type.
type Once struct{ redis.Cmder }

// NoRetry tells go-redis not to send the command again.
func (Once) NoRetry() bool { return true }

const aHook = "a hook of the redis client" // that panics

// Process sends one command, and returns its error. If a hook of the redis client panics, the error wraps a
// *[retry.Panic].
func Process(ctx context.Context, to Sender, cmd redis.Cmder) (err error) {
	defer retry.Recover(&err, aHook)
	if err = to.Process(ctx, cmd); err != nil {
		err = cmp.Or(poolFull(to, err), err)
	}
	return err
}

// Send is like [Process], but returns ctx.Err() when ctx is done. Then cmd may still be in use.
func Send(ctx context.Context, to Sender, cmd redis.Cmder) error {
	_, err := Leavable(ctx, func() (struct{}, error) { return struct{}{}, Process(ctx, to, cmd) })
	return err
}

// ClassifyError returns the meaning of an error of a command that was sent to s, and calls [ReloadAfter].
func ClassifyError(ctx context.Context, s Sender, err error) *retry.Error {
	ReloadAfter(ctx, s, err)
	return Failure(err)
}

// ReloadAfter calls [Reload] if err, the error of a command that was sent to s, says that Redis may be elsewhere now.
func ReloadAfter(ctx context.Context, s Sender, err error) {
	if Classify(err) != retry.Executed && !local(err) {
		Reload(ctx, s)
	}
}

// Reload is like [Refresh] but does not wait. While a master does not reply, the client of a cluster itself looks up
// the masters only once a minute, so it would find the replica that took over up to a minute late.
func Reload(ctx context.Context, s Sender) {
	switch s := s.(type) {
	case *Dispatcher:
		if s.cluster != nil && s.looks.reloading.CompareAndSwap(false, true) {
			go func() {
				defer s.looks.reloading.Store(false)
				Refresh(ctx, s)
			}()
		}
	case interface{ ReloadState(ctx context.Context) }: // a call that goes by itself
		s.ReloadState(ctx)
	}
}

const (
	refreshPatience = 100 * time.Millisecond // how long a look at the masters takes, unless the node does not reply
	refreshTries    = 3
)

// Refresh looks up the masters of a cluster again, and returns when that is done or after 0.3 s. It asks several
// nodes, one after another. The client of a cluster itself asks a random one, which may be the one that does not
// reply, and asks no other while it waits.
func Refresh(ctx context.Context, s Sender) {
	d, ok := s.(*Dispatcher)
	if !ok || d.cluster == nil {
		return
	}
	if cluster, ok := d.rdb.(everyMaster); ok {
		for range refreshTries {
			select {
			case <-d.looks.begin(ctx, cluster):
				return
			case <-time.After(refreshPatience):
			}
		}
	}
}

// An everyMaster is the part of a redis.ClusterClient that looks up the masters before it calls a function for each.
type everyMaster interface {
	ForEachMaster(ctx context.Context, fn func(ctx context.Context, master *redis.Client) error) error
}

// looks are the looks at the masters of a cluster.
type looks struct {
	reloading atomic.Bool // [Reload] runs

	mu    sync.Mutex
	began time.Time
	done  chan struct{} // of the last one
}

// begin begins to look up the masters, unless it has done so just now, and returns a channel that is closed when that is
// done.
func (l *looks) begin(ctx context.Context, cluster everyMaster) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.done == nil || now.Sub(l.began) >= refreshPatience {
		done := make(chan struct{})
		l.began, l.done = now, done
		go func() {
			defer close(done)
			_ = cluster.ForEachMaster(context.WithoutCancel(ctx), func(context.Context, *redis.Client) error { return nil })
		}()
	}
	return l.done
}

// Leavable calls f, which talks to Redis, and abandons the call when ctx is done. go-redis itself checks a context
// only before it sends; then it waits for the reply or for its own timeout.
func Leavable[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: errGone} // unless a hook lets f return
		defer func() { done <- r }()
		r.value, r.err = f()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"slices"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// A brokenPipeline is the error of a call that got no reply in a pipeline with others.
type brokenPipeline struct{ error }

func (b brokenPipeline) Unwrap() error { return b.error }

// errGone reports that a hook has ended the goroutine of a pipeline, as a test's hook does that calls t.FailNow.
var errGone = errors.New("redis: a hook has ended the goroutine that was sending commands")

// send makes one attempt at each of the calls. It returns the calls whose callers it has not woken yet, and the error
// of the first call, or nil if that has had a reply.
func (l *lane) send(calls []*call) (_ []*call, err error) {
	flying := calls
	defer func() {
		for _, c := range flying {
			c.err = errGone
			c.wake()
		}
	}()
	if len(calls) == 1 {
		c := calls[0]
		c.reply, c.err = c.script.send(l.d.bound(c.ctx), l.d.sender, c.evalsha, trip{})
		flying = nil
		return calls, c.err
	}
	ctx := calls[0].ctx
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx = l.d.bound(ctx)
	if l.node != nil {
		ctx = context.WithValue(ctx, toNode{}, l.node)
	}
	again := l.exchange(ctx, calls, false)
	err = calls[0].err
	if len(again) > 0 {
		// The scripts may not be in the cache of Redis. One EVAL carries the text of each; the calls behind it find
		// the script there, unless the cache is emptied once more.
		for _, c := range calls {
			if !slices.Contains(again, c) {
				c.wake()
			}
		}
		flying, calls = again, again
		for _, c := range l.exchange(ctx, calls, true) {
			c.resend = true
		}
	}
	flying = nil
	return calls, err
}

// wake tells the caller that its call has landed. After that the caller may reuse c.
func (c *call) wake() { c.done <- struct{}{} }

// exchange makes one attempt at each of the calls in one round trip. It returns the calls that were not executed
// because Redis lacks their script, or rejects calls that travel together; the others have their outcome. If texts is
// true, the first call of each script carries its text.
func (l *lane) exchange(ctx context.Context, calls []*call, texts bool) (again []*call) {
	parcels := l.pack(ctx, calls, texts)
	cmds := make([]redis.Cmder, len(parcels), len(parcels)+2)
	for i := range parcels {
		cmds[i] = parcels[i].OnceCmd
	}
	var clock *redis.TimeCmd
	if measured(parcels) {
		clock = redis.NewTimeCmd(ctx, "time")
		cmds = append(cmds, Once{clock})
	}
	hello := l.joins.ask(ctx)
	if hello != nil {
		cmds = append(cmds, *hello)
	}
	failure := exec(ctx, l.d.rdb, cmds)
	full := poolFull(l.pool(), failure)
	var p *retry.Panic
	panicked := errors.As(failure, &p)
	last := cmds[len(cmds)-1]
	// go-redis reads the replies in order. If the connection breaks, it sets the error on all commands, even on those
	// with a reply.
	broken := last.Err() != nil && !isReply(last.Err())
	for _, p := range parcels {
		reply, err := p.Result()
		if broken && !whole(reply) {
			reply = nil
		}
		switch {
		case panicked:
			reply, err = nil, failure
		case broken && reply != nil:
			err = nil
		case reply == nil && err == nil:
			err = failure // no connection was made, because Redis rejected it
		}
		switch {
		case err == nil && p.joint && p.share(reply):
			continue
		case err == nil && p.joint:
			l.joins.never()
			again = append(again, p.calls...)
			continue
		case err == nil:
		case full != nil:
			err = full
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			again = append(again, p.calls...)
			continue
		case p.joint && isReply(err) && Classify(err) == retry.Executed:
			l.joins.rejected() // such as by an ACL that denies the keys of one
			again = append(again, p.calls...)
			continue
		case l.node != nil && elsewhere(err):
			for _, c := range p.calls {
				c.resend = true // the client of the cluster or the ring knows where to
			}
		case Classify(err) == retry.Unknown && !panicked:
			err = brokenPipeline{err}
		}
		for _, c := range p.calls {
			c.reply, c.err = reply, err
		}
	}
	if hello != nil && !panicked {
		l.joins.hear(*hello)
	}
	if calls, took := busy(parcels, clock); calls > 1 {
		l.took(calls, took)
	}
	return again
}

// whole reports whether go-redis has read a reply to its end. Of the reply in which the connection breaks it leaves a list or a map
// that is nil, or an empty text, none of which is a nil interface.
func whole(reply any) bool {
	switch v := reply.(type) {
	case []any:
		return v != nil
	case map[any]any:
		return v != nil
	case string:
		return v != ""
	}
	return reply != nil
}

// elsewhere reports whether err says that a command was not executed because another node has to execute it.
func elsewhere(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "READONLY") ||
		errors.Is(err, redis.ErrClosed)
}

func isReply(err error) bool {
	var re redis.Error
	return errors.As(err, &re)
}

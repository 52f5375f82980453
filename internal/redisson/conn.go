// Package redisson is the limiter as it lies in Redis: its keys, its members, and what its scripts take and reply.
// It asks and reads; it does not wait, and starts no goroutine.
//
// This is the only home of the order of KEYS and ARGV, of milliseconds, and of what a number in a reply means. Each
// script's header says the same.
package redisson

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// A Config says how the limiters of one client are asked and written.
type Config struct {
	Scripts     *Scripts
	Divided     bool          // several parts of Redis hold the limiters: a cluster or a ring
	ClientClock bool          // the time is this process', not that of Redis
	SharedClock bool          // the clock is everybody's: that of Redis, or a test's
	LongLength  bool          // members are written in the format Lc0I
	KeyTTL      time.Duration // of this client's permits, where the limiter has none
	Closed      <-chan struct{}
	Touched     func(key string) // before and after each script but those of Acquire; nil for nobody to tell
}

// A Conn is how the limiters of one client reach Redis.
type Conn struct {
	Config
	sender dispatch.Sender
	tag    int
}

// NewConn returns a Conn on rdb.
func NewConn(rdb redis.UniversalClient, cfg Config) *Conn {
	return &Conn{Config: cfg, sender: dispatch.Pin(rdb), tag: newTag(cfg.LongLength)}
}

// Shard returns the shard of a ring that holds a key; false when rdb is no ring, or its shard is not known.
func (c *Conn) Shard(key string) (any, bool) { return dispatch.ShardOf(c.sender, key) }

// A Limiter is one limiter.
type Limiter struct {
	*Conn
	Name string // as the caller knows it, for errors
	Keys Keys
}

// now returns the instant that scripts get: empty for that of Redis.
func (c *Conn) now() any {
	if c.ClientClock {
		return time.Now().UnixMilli()
	}
	return ""
}

// wire returns the type as the hash holds it.
func wire(t permit.Type) string { return strconv.Itoa(int(t)) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// ready returns why a call must not be made: context first.
func (c *Conn) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-c.Closed:
		return permit.ErrClosed
	default:
		return nil
	}
}

// once makes one attempt at a command of s.
func (c *Conn) once(ctx context.Context, s *Script, cmd []any) (any, error) {
	raw, err := s.Once(ctx, c.sender, cmd)
	if err != nil {
		return nil, dispatch.Failure(err)
	}
	return raw, nil
}

func (l *Limiter) touched() {
	if l.Touched != nil {
		l.Touched(l.Keys.Hash)
	}
}

// send runs a script and returns its raw reply. When ctx is done it returns ctx.Err() as it is; then,
// and after an error of outcome Unknown, the script may have run.
func (l *Limiter) send(ctx context.Context, s *Script, keys []string, args ...any) (reply any, err error) {
	cmd, err := s.Command(keys, args...)
	if err != nil {
		return nil, err
	}
	l.touched()
	defer l.touched()
	err = retry.Do(ctx.Done(), l.Closed, func(bool) error {
		if err := l.ready(ctx); err != nil { // which of them ended the pause
			return err
		}
		var err error
		if reply, err = l.once(ctx, s, cmd); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failure := err.(*retry.Error)
		failure.Final = failure.Outcome == retry.Unknown && s.resend != ResendAlways
		return failure
	})
	if err != nil {
		return nil, permit.Failed(s.Name, l.Name, err)
	}
	return reply, nil
}

// run sends a script whose reply is numbers.
func (l *Limiter) run(ctx context.Context, s *Script, keys []string, args ...any) ([]int64, error) {
	raw, err := l.send(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	return l.numbers(s, raw)
}

// command runs a plain command and returns what result makes of it. The error names the limiter, and is
// ErrUnavailable where Redis was not reached; context errors come through unchanged.
func command[T any](ctx context.Context, l *Limiter, op string, cmd redis.Cmder, result func() (T, error)) (T, error) {
	v, err := dispatch.Leavable(ctx, func() (T, error) {
		_ = l.sender.Process(ctx, cmd)
		return result()
	})
	switch {
	case err == nil:
		return v, nil
	case ctx.Err() != nil:
		return v, ctx.Err()
	}
	return v, permit.Failed(op, l.Name, dispatch.Failure(err))
}

// numbers reads a reply that is a number or several.
func (l *Limiter) numbers(s *Script, raw any) ([]int64, error) {
	if n, ok := raw.(int64); ok {
		return []int64{n}, nil
	}
	list, ok := raw.([]any)
	if !ok || len(list) == 0 {
		return nil, l.badReply(s, raw)
	}
	r := make([]int64, len(list))
	for i, v := range list {
		if r[i], ok = v.(int64); !ok {
			return nil, l.badReply(s, raw)
		}
	}
	return r, nil
}

// statusError turns the first number of a reply into an error; statusOK is none.
func (l *Limiter) statusError(r []int64) error {
	switch r[0] {
	case statusOK:
		return nil
	case statusNotInitialized:
		return fmt.Errorf("%w: %q has no rate; call TrySetRate first", permit.ErrNotInitialized, l.Name)
	case statusOtherType:
		if len(r) > 1 && (r[1] == int64(permit.Overall) || r[1] == int64(permit.PerClient)) {
			return &permit.WrongTypeError{Type: permit.Type(r[1])}
		}
		return fmt.Errorf("%w: the type of %q is neither OVERALL nor PER_CLIENT", permit.ErrMalformed, l.Name)
	case statusMalformed:
		return fmt.Errorf("%w: the rate or interval of %q is no positive whole number", permit.ErrMalformed, l.Name)
	}
	return fmt.Errorf("ratelimiter: %q: unexpected status in reply %v", l.Name, r)
}

func (l *Limiter) badReply(s *Script, r any) error {
	return fmt.Errorf("ratelimiter: %s of %q: unexpected reply %v", s.Name, l.Name, r)
}

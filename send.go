package ratelimiter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// newRequestID is not a secret; it only must not repeat.
func newRequestID() (id requestID) {
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// A command that go-redis sends once. Its own retries, and the redirect loop of its cluster client,
// send a command again with the same arguments; whether a script may run twice is for us to say.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// maxAttempts is how often a script is sent when each attempt fails in a way that allows another.
const maxAttempts = 4

// maxSending is how long after the first attempt another one begins at the latest.
const maxSending = 5 * time.Second

// send runs a script and answers its raw reply. When ctx is done it answers ctx.Err() as it is; then,
// and after an error of class unknown, the script may have run.
func (l *RateLimiter) send(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	cmd, err := s.command(keys, args...)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	for attempt := 1; ; attempt++ {
		if err := l.ready(ctx); err != nil {
			return nil, err
		}
		reply, err := l.client.sendOnce(ctx, s, cmd)
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		what := classify(err)
		may := what == notExecuted || what == unknown && s.resend == resendAlways
		if !may || attempt == maxAttempts || time.Since(begin) > maxSending {
			return nil, l.failed(s.name, what, err)
		}
		sleep(backoff(attempt), ctx.Done(), l.client.closed) // ready says which of them ended it
	}
}

// failed is what callers get when a script could not be run to its end.
func (l *RateLimiter) failed(op string, what outcome, err error) error {
	if what == executed {
		return fmt.Errorf("ratelimiter: %s of %q: %w", op, l.name, err)
	}
	return fmt.Errorf("%w: %s of %q: %w", ErrUnavailable, op, l.name, err)
}

// command is the script's EVALSHA.
func (s *script) command(keys []string, args ...any) ([]any, error) {
	if len(keys) != s.keys || len(args) != s.args && len(args) != s.args-s.optional {
		return nil, fmt.Errorf("ratelimiter: %s takes %d keys and %d arguments, got %d and %d",
			s.name, s.keys, s.args, len(keys), len(args))
	}
	cmd := make([]any, 0, 3+len(keys)+len(args))
	cmd = append(cmd, "evalsha", s.sha, len(keys))
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	return append(cmd, args...), nil
}

// sendOnce makes one attempt.
func (c *Client) sendOnce(ctx context.Context, s *script, evalsha []any) (any, error) {
	reply, err := c.process(ctx, evalsha)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// EVAL carries the text and leaves it in the script cache. Sent in place, not loaded
		// first: between a SCRIPT LOAD and an EVALSHA another SCRIPT FLUSH can come.
		return c.process(ctx, append([]any{"eval", s.src}, evalsha[2:]...))
	}
	return reply, err
}

func (c *Client) process(ctx context.Context, args []any) (any, error) {
	return leavable(ctx, func() (any, error) { return c.processed(ctx, args) })
}

// leavable runs f, which talks to Redis, and leaves it when ctx is done: go-redis looks at a context
// before it sends, and then waits for the answer or its own timeout.
func leavable[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

func (c *Client) processed(ctx context.Context, args []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	// The error is on the command too; both are one.
	_ = c.rdb.Process(ctx, cmd)
	return cmd.Result()
}

// outcome is what an error says of whether the script ran. Callers get ErrUnavailable for the last two.
type outcome int

const (
	executed    outcome = iota // it ran and failed, or could not run however often it is sent
	notExecuted                // it surely did not run and may another time
	unknown                    // it may have run
)

func classify(err error) outcome {
	var re redis.Error
	if errors.As(err, &re) {
		for _, p := range []string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY",
			"BUSY", "NOSCRIPT", "OOM", "MISCONF", "NOREPLICAS", "ERR max number of clients", "max number of clients"} {
			if redis.HasErrorPrefix(err, p) {
				return notExecuted
			}
		}
		// Redis before 7 wraps what a script's first write is refused with. Nothing was written then:
		// after one write, the next ones of the script are let through.
		for _, p := range []string{"-OOM ", "-READONLY ", "-MISCONF ", "-NOREPLICAS "} {
			if strings.Contains(re.Error(), p) {
				return notExecuted
			}
		}
		return executed
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrCrossSlot) {
		return executed
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return notExecuted
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return notExecuted
	}
	return unknown
}

// backoff is the pause before the attempt after the n-th: 10, 40, 160 ms, each ± half.
func backoff(n int) time.Duration {
	d := 10 * time.Millisecond << (2 * (n - 1))
	return d/2 + rand.N(d)
}

// sleep sleeps for d unless one of the channels is closed first.
func sleep(d time.Duration, one, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-one:
	case <-other:
	}
}

// Package dispatch sends Lua scripts to Redis, so that the sender knows whether each may have run. What a script
// does, and whether it may run twice, is for its users to say.
//
// Its functions are safe for concurrent use.
package dispatch

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A Script is one embedded file with the numbers of keys and arguments that its wrapper sends.
type Script struct {
	Name       string
	Src        string
	Sha        string
	Keys, Args int
	Optional   int // of the args, at their end
}

// New is a script of that many keys and arguments.
func New(name, src string, keys, args int) *Script {
	sum := sha1.Sum([]byte(src))
	return &Script{Name: name, Src: src, Sha: hex.EncodeToString(sum[:]), Keys: keys, Args: args}
}

// LetOut says that the last n arguments may be left out: each costs a tenth of a microsecond in Redis.
func (s *Script) LetOut(n int) { s.Optional = n }

// Command is the script's EVALSHA, or an error where the numbers of keys and arguments are not its own.
func (s *Script) Command(keys []string, args ...any) ([]any, error) {
	if len(keys) != s.Keys || len(args) != s.Args && len(args) != s.Args-s.Optional {
		return nil, fmt.Errorf("ratelimiter: %s takes %d keys and %d arguments, got %d and %d",
			s.Name, s.Keys, s.Args, len(keys), len(args))
	}
	cmd := make([]any, 0, 3+len(keys)+len(args))
	cmd = append(cmd, "evalsha", s.Sha, len(keys))
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	return append(cmd, args...), nil
}

// Once makes one attempt at a command that [Script.Command] made. When ctx is done it answers ctx.Err();
// then, and after an error of outcome Unknown, the script may have run.
func (s *Script) Once(ctx context.Context, rdb Sender, evalsha []any) (any, error) {
	reply, err := process(ctx, rdb, evalsha)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// EVAL carries the text and leaves it in the script cache. Sent in place, not loaded
		// first: between a SCRIPT LOAD and an EVALSHA another SCRIPT FLUSH can come.
		return process(ctx, rdb, append([]any{"eval", s.Src}, evalsha[2:]...))
	}
	return reply, err
}

// A OnceCmd is a command that go-redis sends once. Its own retries, and the redirect loop of its
// cluster client, send a command again with the same arguments; whether a script may run twice is for
// its user to say.
type OnceCmd struct{ *redis.Cmd }

// NoRetry is what go-redis asks.
func (OnceCmd) NoRetry() bool { return true }

func process(ctx context.Context, rdb Sender, args []any) (any, error) {
	if ctx.Done() == nil {
		return processed(ctx, rdb, args)
	}
	return Leavable(ctx, func() (any, error) { return processed(ctx, rdb, args) })
}

func processed(ctx context.Context, rdb Sender, args []any) (any, error) {
	cmd := OnceCmd{redis.NewCmd(ctx, args...)}
	// The error is on the command too; both are one.
	_ = rdb.Process(ctx, cmd)
	return cmd.Result()
}

// Leavable runs f, which talks to Redis, and leaves it when ctx is done: go-redis looks at a context
// before it sends, and then waits for the answer or its own timeout.
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

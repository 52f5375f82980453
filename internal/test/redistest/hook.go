// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"fmt"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/redis/go-redis/v9"
)

// Passing is a redis.Hook that passes everything on. A test's hook embeds it and has only the method that it is about.
type Passing struct{}

// DialHook returns next.
func (Passing) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook returns next.
func (Passing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook returns next.
func (Passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Reply makes v the reply to the command of a script, as far as go-redis reads such a reply to it.
func Reply(cmd redis.Cmder, v any) {
	x, ok := cmd.(dispatch.Integers)
	if !ok {
		cmd.(dispatch.OnceCmd).SetVal(v)
		return
	}
	list, ok := v.([]any)
	numbers := make([]int64, len(list))
	for i := range list {
		if numbers[i], ok = list[i].(int64); !ok {
			break
		}
	}
	switch {
	case v == nil:
		cmd.SetErr(redis.Nil)
	case !ok:
		cmd.SetErr(fmt.Errorf("redis: can't parse int reply: %v", v))
	default:
		x.SetVal(numbers)
	}
}

// OnCommand returns a hook that calls f in place of next for each command that is not in a pipeline.
func OnCommand(f func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error) redis.Hook {
	return onCommand{f: f}
}

type onCommand struct {
	Passing
	f func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
}

func (o onCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return o.f(ctx, cmd, next) }
}

// Failing returns a hook that makes commands fail: f returns the error of a command, or nil for one that is sent.
func Failing(f func(cmd redis.Cmder) error) redis.Hook {
	return OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if err := f(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	})
}

// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/redis/go-redis/v9"
)

// Ping asks any node for a reply, once. An error is a *[retry.Error].
func (c *Conn) Ping(ctx context.Context) error {
	cmd := dispatch.OnceCmd{Cmd: redis.NewCmd(ctx, "ping")}
	_, err := dispatch.Leavable(ctx, func() (any, error) {
		_ = dispatch.Process(ctx, dispatch.Alone(c.sender), cmd)
		return cmd.Result()
	})
	if err != nil {
		return dispatch.Failure(err)
	}
	return nil
}

// Probe makes one attempt at a write that changes nothing: it would change the score of a member that does not exist.
// It is rejected wherever the first write of a script would be: by a server that is out of memory, by a replica, for
// want of replicas, and after a failed save. Its errors are like those of [Limiter.Acquire]. On a cluster it looks up the
// masters first, since the one that does not reply may have been replaced.
func (l *Limiter) Probe(ctx context.Context) error {
	dispatch.Refresh(ctx, l.sender)
	cmd := dispatch.OnceCmd{Cmd: redis.NewCmd(ctx, "zadd", l.Keys.Permits[l.Type()], "XX", 0, "probe")}
	_, err := dispatch.Leavable(ctx, func() (any, error) {
		_ = dispatch.Process(ctx, l.sender, cmd)
		return cmd.Result()
	})
	if err != nil {
		return dispatch.ClassifyError(ctx, l.sender, err)
	}
	return nil
}

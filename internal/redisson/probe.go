// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// Ping asks any node for a reply, once. An error is a *[retry.Error].
func (c *Conn) Ping(ctx context.Context) error {
	if err := dispatch.Send(ctx, dispatch.Alone(c.sender), dispatch.Once{Cmder: redis.NewCmd(ctx, "ping")}); err != nil {
		return dispatch.Failure(err)
	}
	return nil
}

// Probe makes one attempt at a write that changes nothing: it would change the score of a member that does not exist.
// Redis rejects it in the same states as the first write of a script: out of memory, as a replica, with too few
// replicas, and after a failed save. Its errors are like those of [Limiter.Acquire]. On a cluster it first looks up
// the masters, because the one that does not reply may have been replaced.
func (l *Limiter) Probe(ctx context.Context) error {
	dispatch.Refresh(ctx, l.sender)
	return l.probe(ctx, l.sender)
}

func (l *Limiter) probe(ctx context.Context, sender dispatch.Sender) error {
	cmd := redis.NewCmd(ctx, "zadd", l.Keys.Permits[l.Type()], "XX", 0, "probe")
	if err := dispatch.Send(ctx, sender, dispatch.Once{Cmder: cmd}); err != nil {
		return dispatch.ClassifyError(ctx, l.sender, err)
	}
	return nil
}

// Traffic returns what is on its way to the server that holds the limiter.
func (l *Limiter) Traffic() permit.Traffic {
	return permit.Traffic(dispatch.TrafficTo(l.sender, l.Keys.Hash))
}

// Shortage returns why calls for the limiter wait for a connection, or nil if they do not.
func (l *Limiter) Shortage() error { return dispatch.ShortageTo(l.sender, l.Keys.Hash) }

// Apart returns a prober with a connection of its own, or nil if there is none; see [dispatch.OpenApart].
func (l *Limiter) Apart(ctx context.Context, w permit.Wire) permit.Prober {
	if a := dispatch.OpenApart(ctx, l.sender, l.Keys.Hash, dispatch.Wire(w)); a != nil {
		return apart{a, l}
	}
	return nil
}

// An apart is a prober with a connection of its own.
type apart struct {
	*dispatch.Apart
	l *Limiter
}

// Probe is [Limiter.Probe].
func (a apart) Probe(ctx context.Context) error { return a.l.probe(ctx, a.Apart) }

// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// Ping asks any node for a reply; see [dispatch.Ping]. It takes at most as long as patience and what Sentinel needs.
func (c *Conn) Ping(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience+dispatch.PingNeeds(c.sender))
	defer cancel()
	return dispatch.Ping(ctx, c.sender)
}

// write returns the arguments of a write that changes nothing: it would change the score of a member that does not exist. Redis
// rejects it in the same states as the first write of a script: out of memory, as a replica, with too few replicas, and after
// a failed save.
func (l *Limiter) write() []any { return []any{"zadd", l.Keys.Permits[l.Type()], "XX", 0, "probe"} }

// Probe has the server of the limiter carry out a write that changes nothing, on a new connection; see [dispatch.Probe].
func (l *Limiter) Probe(patience time.Duration) error {
	return dispatch.Probe(l.sender, l.Keys.Hash, l.write(), patience)
}

// Sweep drops the idle connections to the server of the limiter that are broken; see [dispatch.Sweep].
func (l *Limiter) Sweep() { dispatch.Sweep(l.sender, l.Keys.Hash, l.write()) }

// Shortage returns why calls for the limiter wait for a connection, or nil if they do not.
func (l *Limiter) Shortage() error { return dispatch.ShortageTo(l.sender, l.Keys.Hash) }

// Spares reports whether the redis client can spare the connection of an attempt that is given up.
func (l *Limiter) Spares() bool { return dispatch.Spares(l.sender, l.Keys.Hash) }

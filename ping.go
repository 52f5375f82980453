// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// pingTimeout is how long Ping waits for its reply.
const pingTimeout = 2 * time.Second

// Ping asks Redis for a reply, once and for two seconds at most, and returns nil if there was one. A program that
// calls it when it starts learns at once that an address, a password or TLS is wrong, where requests that wait would go on
// waiting as [WithOutageLimit] says. The error says what to check. Ping asks any node of a cluster or shard of a ring, also
// while Redis is known to be unavailable, and decides nothing about outages.
//
// Ping returns ErrUnavailable, the error of Redis, such as that of a wrong password, ctx.Err(), ErrClosed, or
// ErrInvalidArgument if ctx is nil.
func (c *Client) Ping(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalid("the context is nil")
	case c == nil || c.engine == nil:
		return errNotMade
	case ctx.Err() != nil:
		return ctx.Err()
	case c.engine.IsClosed():
		return ErrClosed
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := c.redis.Ping(bounded)
	failure, failed := err.(*retry.Error)
	switch {
	case !failed:
		return err
	case ctx.Err() != nil:
		return permit.Left("Ping", began, nil, ctx.Err())
	case failure.Outcome == retry.Executed:
		return fmt.Errorf("ratelimiter: Ping: %w", failure.Err)
	}
	return fmt.Errorf("%w: Ping: %w", ErrUnavailable, failure.Err)
}

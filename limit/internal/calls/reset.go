// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/outage"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
)

// What is not a request may be done twice, and so needs no id and no line.

// Reset deletes the keys of the limiter.
func (s *Shared) Reset(ctx context.Context) error {
	if err := ContextError(ctx); err != nil {
		return err
	}
	n, err := s.inForce(ctx, Demand{})
	if err != nil {
		return err
	}
	args := []any{"unlink"}
	for _, k := range s.redisKeys(n) {
		args = append(args, k)
	}
	err = s.untilDone(ctx, "to reset "+s.Label(), func(ctx context.Context) error {
		err := dispatch.Send(ctx, s.config.Sender, dispatch.Once{Cmder: redis.NewIntCmd(ctx, args...)})
		if err != nil && ctx.Err() == nil {
			dispatch.ReloadAfter(ctx, s.config.Sender, err) // the master may be another one
		}
		return err
	})
	if err == nil {
		s.config.known.forget(s.slot)
		s.config.queues.look(s.slot)
	}
	return err
}

// Text has a script run that may run twice, and returns the text that it replies. Errors say what it is for.
func (s *Shared) Text(ctx context.Context, what string, script *dispatch.Script, keys []string, args ...any) (text string, err error) {
	cmd, err := script.Command(keys, args...)
	if err != nil {
		return "", err
	}
	var reply any
	err = s.untilDone(ctx, what, func(ctx context.Context) (err error) {
		sent := time.Now()
		reply, err = script.Once(ctx, s.config.Sender, cmd)
		s.config.called(script.Name, 1, sent, err)
		return err
	})
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", s.unexpected(reply)
	}
	return text, nil
}

// untilDone makes attempts at what may be done twice, until one succeeds. Errors say what it is for.
func (s *Shared) untilDone(ctx context.Context, what string, attempt func(ctx context.Context) error) error {
	var last error // of the last attempt
	for tries := (retry.Attempts{Begin: time.Now()}); ; tries.Pause(ctx.Done(), nil) {
		if err := ctx.Err(); err != nil {
			return s.Left(err, tries.Begin, last)
		}
		if _, down := s.health().Outage(); down != nil {
			return notServed(what, cmp.Or(last, down))
		}
		failure := s.attempt(ctx, outage.Traits{Stays: true}, attempt)
		switch {
		case failure == nil:
			return nil
		case ctx.Err() != nil:
			continue
		case failure.Outcome == retry.Executed:
			return fmt.Errorf("limit: %s: %w", what, failure.Err)
		}
		s.health().Await(ctx.Done(), nil)
		if !tries.Failed(failure) || failure.Final {
			return notServed(what, failure.Err)
		}
		last = failure.Err
	}
}

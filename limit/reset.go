// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/redis/go-redis/v9"
)

// Reset forgets what was taken of the limiter's key, for all processes, for instance after more of a used-up quota was bought.
// Other processes, and callers that wait there, notice within a second. Reset deletes the keys that [Shared.Keys] returns; a
// call that is in flight at that moment may take its permits twice.
//
// Reset returns the errors of a call, as [Shared] describes them. After an error the limiter may or may not have been reset.
func (s *Shared) Reset(ctx context.Context) error {
	if err := s.unusable(); err != nil {
		return err
	}
	if err := contextError(ctx); err != nil {
		return err
	}
	n, err := s.inForce(ctx, demand{})
	if err != nil {
		return err
	}
	args := []any{"unlink"}
	for _, k := range s.redisKeys(n) {
		args = append(args, k)
	}
	err = s.untilDone(ctx, "to reset "+s.label(), func() error {
		err := dispatch.Send(ctx, s.config.rdb, dispatch.Once{Cmder: redis.NewIntCmd(ctx, args...)})
		if err != nil && ctx.Err() == nil {
			dispatch.ReloadAfter(ctx, s.config.rdb, err) // the master may be another one
		}
		return err
	})
	if err == nil {
		s.config.known.forget(s.slot)
		s.config.queues.again(s.slot)
	}
	return err
}

// Reset makes the limiter as if it had never been used.
func (l *Local) Reset() {
	if !l.made() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = l.begunLocked()
}
